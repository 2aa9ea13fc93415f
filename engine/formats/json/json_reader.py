"""Reads JSON strictly, like posted records; with or without a schema's number before it.

Payloads are concatenated as lines, so that the reader of lines reads them. A payload that is no line (it has a line break inside, or does
not begin and end with a brace) is read alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from engine.definition.relations import EventTimeUnit
from engine.expressions.types.types import BIGINT, TIMESTAMP, Schema
from engine.formats.json.byte_words import I64, MARGIN
from engine.formats.json.json_reading import JsonReader
from engine.formats.json.json_records import known_names, parse_lines, parse_objects
from engine.formats.port import Read, Reader, SchemaStore, SideConfig
from engine.formats.registry.wire import at_places, cast_part, read_by_schema, rejoined
from engine.plan.model import RelationSchema
from engine.records.canonical import empty_rejects, reject_rows
from engine.records.excerpts import excerpt_of_bytes, excerpts_of

REASON: Final = "malformed_json"
_US_PER: Final[dict[EventTimeUnit, int]] = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
"""Microseconds of a unit; nanoseconds are first divided to microseconds."""

_NANOS_PER_US: Final = 1_000
_MOST_US: Final = 253_402_300_799_999_999
"""The last moment of the year 9999."""

_BREAK: Final = pl.Series([b"\n"])
_AROUND: Final = b"\n" * MARGIN
_OPENING, _CLOSING, _LINE_FEED = b"{}\n"


class JsonSideReader:
    """Reads objects, or single values without one."""

    def __init__(self, config: SideConfig) -> None:
        self._columns = config.columns
        self._bare = config.single if config.is_unwrapped else None
        self._unit = config.time_unit
        counted = config.columns if self._unit == "ms" else _counted(config.columns)
        self._relation = bare_relation(counted)
        self._json = JsonReader(counted.types, known_names(self._relation))

    def read(self, payloads: pl.Series) -> Read:
        found = self._read(payloads)
        return found if self._unit == "ms" else _with_timestamps(found, self._columns, self._unit)

    def _read(self, payloads: pl.Series) -> Read:
        if self._bare is not None:
            return self._one_by_one(payloads)
        if len(payloads) and _is_lines(whole := stacked(payloads)):
            return self._lines(whole)
        is_line = are_lines(payloads)
        places = np.flatnonzero(is_line), np.flatnonzero(~is_line)
        parts = [self._lines(stacked(payloads.gather(places[0]))), self._one_by_one(payloads.gather(places[1]))]
        return rejoined(
            [at_places(part, at) for part, at in zip(parts, places, strict=True)], empty_rejects(), self._relation.columns
        )

    def _lines(self, of: Stacked) -> Read:
        raw, rejects, _ = parse_lines(of.text, self._relation, "ignore", bounds=(of.starts, of.ends))
        return Read(raw if raw.width else pl.DataFrame({"_offset": pl.Series([], dtype=pl.Int64)}), rejects)

    def _one_by_one(self, payloads: pl.Series) -> Read:
        values, places, bad = [], [], []
        for place, payload in enumerate(payloads.to_list()):
            try:
                value = self._json.read(payload)
            except (ValueError, RecursionError) as error:
                bad.append((place, REASON, str(error)[:300], excerpt_of_bytes(payload)))
                continue
            values.append(value if self._bare is None else {self._bare: value})
            places.append(place)
        raw, rejects = parse_objects(values, np.array(places, np.int64), self._relation, "ignore")
        return Read(raw, pl.concat([rejects, reject_rows(bad)]).sort("offset"))


class RegisteredJsonReader:
    """Reads JSON after a schema's number. The schema itself is not used: the declared columns decide."""

    def __init__(self, inner: Reader, columns: Schema) -> None:
        self._inner = inner
        self._columns = columns

    def read(self, payloads: pl.Series) -> Read:
        return read_by_schema(payloads, lambda group: self._inner.read(group.values), self._columns)


def json_reader(config: SideConfig, _store: SchemaStore) -> Reader:
    inner = JsonSideReader(config)
    return RegisteredJsonReader(inner, config.columns) if config.has_registry else inner


def bare_relation(columns: Schema) -> RelationSchema:
    """Return columns as a relation for readers of records: without key, times and conditions, which are checked elsewhere."""
    return RelationSchema("payload", "stream", columns, (), None, None, None, None, None)


def _counted(columns: Schema) -> Schema:
    """Return the columns with numbers for timestamps."""
    return Schema(tuple((name, BIGINT if declared == TIMESTAMP else declared) for name, declared in columns.items()))


def _with_timestamps(found: Read, columns: Schema, unit: EventTimeUnit) -> Read:
    """Convert numbers to timestamps; refuse values that are no number, or outside of a timestamp's range."""
    names = [name for name, declared in columns.items() if declared == TIMESTAMP and name in found.raw.columns]
    raw, rejects = cast_part(found, Schema(tuple((name, BIGINT) for name in names)))
    bad = pl.repeat(value=False, n=raw.height, dtype=pl.Boolean, eager=True)
    times = []
    for name in names:
        counted = raw.get_column(name)
        micros = counted // _NANOS_PER_US if unit == "ns" else counted
        held = micros.is_between(-_MOST_US // _US_PER[unit], _MOST_US // _US_PER[unit])
        bad |= (~held).fill_null(value=False)
        scaled = micros.set(~held, None) * _US_PER[unit]
        times.append(scaled.cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias(name))
    raw = raw.with_columns(times)
    if not bad.any():
        return Read(raw, rejects)
    refused = raw.filter(bad)
    texts = excerpts_of(refused.drop("_offset"))
    detail = f"a timestamp is out of reach where numbers count {unit} since 1970 (`time_unit`)"
    places = refused.get_column("_offset").to_list()
    rows = [(place, "wrong_type", detail, text) for place, text in zip(places, texts, strict=True)]
    return Read(raw.filter(~bad), pl.concat([rejects, reject_rows(rows)]).sort("offset"))


class Stacked(NamedTuple):
    """Payloads as lines of one text.

    Attributes:
        text: of all, a line break after each, and more around all: see ``ByteWords``.
        starts: where they begin.
        ends: where they end.
    """

    text: bytes
    starts: I64
    ends: I64


def stacked(payloads: pl.Series) -> Stacked:
    """Concatenate payloads as lines; none is null."""
    if not len(payloads):
        return Stacked(b"", np.empty(0, np.int64), np.empty(0, np.int64))
    lines = (payloads + _BREAK).to_arrow()
    offsets = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset : lines.offset + len(lines) + 1]
    first = offsets[0]
    text = b"".join((_AROUND, memoryview(lines.buffers()[2])[first : offsets[-1]], _AROUND))
    starts = offsets - first + MARGIN
    return Stacked(text, starts[:-1], starts[1:] - 1)


def _is_lines(of: Stacked) -> bool:
    """Whether all payloads are lines, by the rule of ``are_lines``."""
    text, starts, ends = of
    data = np.frombuffer(text, np.uint8)
    is_framed = (ends - starts).min() > 1 and (data[starts] == _OPENING).all() and (data[ends - 1] == _CLOSING).all()
    return bool(is_framed and np.count_nonzero(data == _LINE_FEED) == len(starts) + 2 * MARGIN and b"\r" not in text)


def are_lines(payloads: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which payloads are one line from brace to brace: only these keep their number when concatenated."""
    framed = payloads.bin.starts_with(b"{") & payloads.bin.ends_with(b"}")
    return (framed & ~payloads.bin.contains(b"\n") & ~payloads.bin.contains(b"\r")).to_numpy()
