"""Reads JSON as ksqlDB does (``formats.lenient``): records that need no leniency as columns, the others one by one.

The rules of leniency exist once, in ``json_format``, which reads one by one. This module only finds records so plain that strict reading gives
the same result: those of a few layouts (``json_rows``), and of the rest those that Arrow's strict reader accepts. ``json_format`` reads all
others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np
import polars as pl

from engine.expressions.types.types import ColumnType
from engine.formats.json.byte_words import I64, ByteWords, Mask
from engine.formats.json.json_layout import read_values
from engine.formats.json.json_reader import RegisteredJsonReader, are_lines, stacked
from engine.formats.json.json_rows import FEW_ROWS, JsonRows, LayoutRecords
from engine.formats.lenient.json_format import Layout, decode
from engine.formats.lenient.lenient import field_of
from engine.formats.lenient.strict_objects import read_objects
from engine.formats.port import Read, Reader, SchemaStore, SideConfig
from engine.formats.registry.wire import at_places, rejoined
from engine.frames.byte_texts import is_utf8, texts_of
from engine.records.canonical import empty_rejects, reject_rows
from engine.records.conform import conform, nulls
from engine.records.excerpts import excerpt_of_bytes
from engine.records.scalars import FIRST_DAY, LAST_DAY

_TEXTS: Final = frozenset({"string", "bytes"})
"""Types whose values have quotes; quoted values of other types need leniency."""

_WHOLE: Final = "[1-9][0-9]{0,39}"
_NUMBER: Final = rf"^(0|-?{_WHOLE}|-?(0|{_WHOLE})\.[0-9]{{1,40}})([eE][+-]?[0-9]{{1,3}})?$"
"""Numbers that Python reads in one way: not -0, which has no sign as a whole number, and not those with very many digits."""

_PIECE_ROWS: Final = 128
"""Records of a piece without a common layout; one that needs leniency affects its whole piece."""

_TRIES: Final = 4
"""Failed pieces beyond the successful ones before the rest is read one by one: a try costs a quarter of that."""

_FEW_STRICT: Final = 24
"""Up to this number of records, reading one by one is faster than starting Arrow's reader."""

_DAY_MS: Final = 86_400_000
_NS_PER_MS: Final = 1_000_000

_Column = tuple[pl.Series, Mask | None]
"""Values, and which of them are not plain; None: all are."""


class LenientJsonReader:
    """Reads objects, or single values without one."""

    def __init__(self, config: SideConfig) -> None:
        self._columns = config.columns
        self._layout = Layout(config.columns, is_wrapped=not config.is_unwrapped)
        self._is_flat = not self._layout.is_bare and not any(declared.is_nested for declared in config.columns.types)

    def read(self, payloads: pl.Series) -> Read:
        if not self._is_flat or len(payloads) <= FEW_ROWS:
            return self.read_one_by_one(payloads)
        is_left, is_odd = np.ones(len(payloads), np.bool_), np.zeros(len(payloads), np.bool_)
        parts: list[pl.DataFrame] = []
        for part in chain(self._by_layout(payloads, is_odd), self._strict(payloads, is_left, is_odd)):
            parts.append(part)
            is_left[part.get_column("_offset").to_numpy()] = False
        if not parts:
            return self.read_one_by_one(payloads)
        if is_left.any():
            left = np.flatnonzero(is_left)
            rest = at_places(self.read_one_by_one(payloads.gather(left)), left)
            return rejoined([*(Read(part, empty_rejects()) for part in parts), rest], empty_rejects(), self._columns)
        return Read(parts[0] if len(parts) == 1 else pl.concat(parts).sort("_offset"), empty_rejects())

    def read_one_by_one(self, payloads: pl.Series) -> Read:
        """Read records with full leniency. ``read`` gives the same result."""
        texts = payloads.to_list()
        found = decode(texts, self._layout)
        bad = [(place, "wrong_type", why, excerpt_of_bytes(texts[place])) for place, why in sorted(found.faults.items())]
        raw = pl.DataFrame([*found.columns.values(), pl.int_range(len(texts), dtype=pl.Int64, eager=True).alias("_offset")])
        return Read(raw.filter(~pl.col("_offset").is_in(list(found.faults))) if bad else raw, reject_rows(bad))

    def _strict(self, payloads: pl.Series, is_left: Mask, is_odd: Mask) -> Iterator[pl.DataFrame]:
        """Yield the rows of records that Arrow accepts, from those that are left and not marked as odd at the first request."""
        left = np.flatnonzero(is_left & ~is_odd)
        left = left[are_lines(payloads.gather(left))]
        if (whole := self._by_arrow(payloads, left)) is not None:
            yield whole
            return
        hope = _TRIES
        for first in range(0, len(left), _PIECE_ROWS):
            if (piece := self._by_arrow(payloads, left[first : first + _PIECE_ROWS])) is not None:
                hope = min(hope + 1, _TRIES)
                yield piece
            elif (hope := hope - 1) == 0:
                return

    def _by_arrow(self, payloads: pl.Series, rows: I64) -> pl.DataFrame | None:
        if len(rows) < _FEW_STRICT:
            return None
        chunk, starts, ends = stacked(payloads.gather(rows))
        if (frame := read_objects(chunk[starts[0] : ends[-1]], starts - starts[0], self._columns)) is None:
            return None
        return _framed([_typed(frame.get_column(name), declared) for name, declared in self._columns.items()], rows)

    def _by_layout(self, payloads: pl.Series, is_odd: Mask) -> Iterator[pl.DataFrame]:
        """Yield the rows of records of a few layouts; mark in ``is_odd`` records whose layout needs leniency: Arrow accepts none of them."""
        chunk, starts, ends = stacked(payloads)
        is_plain = np.ones(len(payloads), np.bool_)
        if not is_utf8(chunk):
            is_plain = texts_of(payloads).is_not_null().to_numpy()
        rows = JsonRows(chunk, starts, ends, is_plain)
        for alike in rows.layouts():
            if self._may_be_plain(alike):
                yield self._rows(rows.words, alike)
            else:
                is_odd[alike.rows] = True

    def _fields(self, alike: LayoutRecords) -> dict[str, int | None]:
        """Return the field from which each column is read."""
        places = {field.name: place for place, field in enumerate(alike.layout.fields)}
        return {name: field_of(places, name) for name in self._columns.names}

    def _may_be_plain(self, alike: LayoutRecords) -> bool:
        """Whether the values have forms that their types read without leniency."""
        fields = alike.layout.fields
        return all(
            place is None or self._columns[name].kind in _TEXTS or not fields[place].is_text
            for name, place in self._fields(alike).items()
        )

    def _rows(self, words: ByteWords, alike: LayoutRecords) -> pl.DataFrame:
        """Read the records whose values are plain."""
        of_columns = self._fields(alike)
        columns: list[_Column] = []
        for name, place in of_columns.items():
            declared = self._columns[name]
            if place is None:
                columns.append((nulls(name, declared, len(alike.rows)), None))
                continue
            values, bad = _values(words, alike, place, declared)
            typed, unfit = _typed(values.alias(name), declared)
            columns.append((typed, bad if unfit is None else unfit if bad is None else bad | unfit))
        others = {*range(len(alike.spans))} - {*of_columns.values()}
        return _framed(columns, alike.rows, [_values(words, alike, place, None)[1] for place in others])


def _framed(columns: Sequence[_Column], rows: I64, masks: Sequence[Mask | None] = ()) -> pl.DataFrame:
    """Put columns together, without the records that are not plain."""
    frame = pl.DataFrame([*(values for values, _ in columns), pl.Series("_offset", rows, dtype=pl.Int64)])
    bad = [mask for mask in (*(mask for _, mask in columns), *masks) if mask is not None]
    return frame.filter(~np.logical_or.reduce(bad)) if bad else frame


def _values(words: ByteWords, alike: LayoutRecords, place: int, declared: ColumnType | None) -> _Column:
    """Read a field; return also which of its values are not plain."""
    begins, stops = alike.spans[place]
    is_text = alike.layout.fields[place].is_text
    if is_text or declared is None or declared.kind not in _TEXTS:
        return read_values(words, begins, stops, declared, is_text=is_text, number=_NUMBER)
    is_null = words.is_word(b"null", begins, stops)
    return nulls("", declared, len(begins)), None if is_null.all() else ~is_null


def _typed(values: pl.Series, declared: ColumnType) -> _Column:
    """Convert values to their type; return also which values the type does not hold, nulls excluded."""
    bounds = _BOUNDS.get(declared.kind)
    if bounds is not None:
        held = values.is_between(*bounds)
        typed = values.set(~held, None)
        match declared.kind:
            case "date":
                typed = typed.cast(pl.Int32).cast(pl.Date)
            case "time":
                typed = (typed * _NS_PER_MS).cast(pl.Time)
            case _:
                typed, _ = conform(typed, declared)
        return typed, None if typed.null_count() == values.null_count() else (typed.is_null() & values.is_not_null()).to_numpy()
    typed, bad = conform(values, declared)
    return typed, None if bad is None else bad.to_numpy()


_BOUNDS: Final = {
    "date": (FIRST_DAY, LAST_DAY),
    "time": (0, _DAY_MS - 1),
    "timestamp": (FIRST_DAY * _DAY_MS, (LAST_DAY + 1) * _DAY_MS - 1),
}
"""Bounds of numbers that stand for times."""


def lenient_json_reader(config: SideConfig, _store: SchemaStore) -> Reader:
    inner = LenientJsonReader(config)
    return RegisteredJsonReader(inner, config.columns) if config.has_registry else inner
