"""Topics of SQL tests: records as bytes, as a broker holds them, and what a relation sees in them and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from engine.expressions.types.types import TIMESTAMP
from engine.formats.lenient.json_format import Layout, Payload
from engine.frames.frames import OFFSET, OP, TS
from engine.records.canonical import LOGGED, MAX_EVENT_TIME_MS, OP_DELETE, OP_UPSERT, canonicalise, stop_on_rejects
from engine.statements.context.session import WINDOW_BOUNDS, Format, SqlRelation
from tests.conformance.ksqldb.notation import NOTATIONS, Side

_WINDOW_TYPES: Final = {"session": "session"}
"""What tests call the windows of a key: all others are ``time``."""


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a key, in milliseconds."""

    start: int
    end: int
    type: str


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic."""

    key: Payload
    value: Payload
    timestamp: int
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Sides:
    """The keys and the values of a topic as one relation reads and writes them."""

    key: Side
    value: Side


def sides_of(relation: SqlRelation) -> Sides:
    """Say how a relation's topic is read and written."""
    topic = relation.topic
    is_wrapped = topic.is_wrapped is not False
    return Sides(
        _side(topic.key_format, relation, relation.key, is_wrapped=False),
        _side(topic.value_format, relation, relation.values, is_wrapped=is_wrapped),
    )


_NOTHING: Final = "NONE"
"""The format of a side without columns."""

_STANDS_IN: Final = {"AVRO": "JSON", "JSON_SR": "JSON"}
"""Formats whose records tests give and expect as those of another one: with a registry of schemas only their bytes would differ."""


def unknown_formats(relation: SqlRelation) -> list[str]:
    """Return the formats of a relation's topic that cannot be read here."""
    names = (relation.topic.key_format.name, relation.topic.value_format.name)
    return [name for name in names if name != _NOTHING and _STANDS_IN.get(name, name) not in NOTATIONS]


def _side(written: Format, relation: SqlRelation, columns: Sequence[str], *, is_wrapped: bool) -> Side:
    return Side(
        _STANDS_IN.get(written.name, written.name), Layout(relation.columns.select(columns), is_wrapped, written.delimiter)
    )


def record_of(given: Mapping[str, Any], sides: Sides) -> Record:
    """Return a record as a test gives it."""
    window = given.get("window")
    return Record(
        sides.key.payload(given.get("key")),
        sides.value.payload(given.get("value")),
        int(given.get("timestamp") or 0),
        None if window is None else Window(int(window["start"]), int(window["end"]), str(window["type"]).lower()),
    )


def shown(records: Sequence[Record], sides: Sides) -> list[dict[str, Any]]:
    """Return records as a test shows them."""
    keys = sides.key.shown([record.key for record in records])
    values = sides.value.shown([record.value for record in records])
    result = []
    for record, key, value in zip(records, keys, values, strict=True):
        row = {"key": key, "value": value, "timestamp": record.timestamp}
        if record.window is not None:
            row["window"] = {"start": record.window.start, "end": record.window.end, "type": record.window.type}
        result.append(row)
    return result


def seen(records: Sequence[Record], relation: SqlRelation, sides: Sides) -> pl.DataFrame:
    """Return the records that a relation can read, judged as those of a log; ``_offset`` is a record's place.

    A table leaves out those without a key.

    Raises:
        DataInvalid: one that the relation stops for.
    """
    keys = sides.key.decode([record.key for record in records])
    values = sides.value.decode([record.value for record in records])
    ops = [OP_DELETE if is_absent else OP_UPSERT for is_absent in values.is_absent]
    raw = pl.DataFrame(
        [
            pl.Series(TS, [record.timestamp for record in records], pl.Int64),
            pl.Series(OFFSET, range(len(records)), pl.Int64),
            pl.Series(OP, ops, pl.Int8),
            *keys.columns.values(),
            *values.columns.values(),
            *(_bounds(records) if relation.window is not None else ()),
        ]
    )
    unread = sorted({*keys.faults, *values.faults})
    readable = raw.filter(~pl.col(OFFSET).is_in(unread)) if unread else raw
    if relation.kind == "table":
        readable = readable.filter(pl.all_horizontal(pl.col(relation.key).is_not_null()))
    accepted, rejects = canonicalise(readable, relation.entry.relation, MAX_EVENT_TIME_MS, LOGGED)
    stop_on_rejects(rejects, relation.entry.relation)
    return accepted


def written(changes: pl.DataFrame, relation: SqlRelation, sides: Sides, *, is_rekeyed: bool = False) -> list[Record]:
    """Return what a query's changes are as records.

    Args:
        changes: ``_ts``, ``_op`` and the relation's columns.
        relation: what they are written to.
        sides: how it is written.
        is_rekeyed: the key is made of values: several that are all null are a key, while a key that was passed on is none then.
    """
    keys = sides.key.encode(changes)
    values = sides.value.encode(changes)
    if len(relation.key) == 1 or (relation.key and not is_rekeyed):
        parts = changes.select(relation.key).iter_rows()
        keys = [None if all(part is None for part in row) else key for key, row in zip(keys, parts, strict=True)]
    found = zip(keys, values, changes[TS], changes[OP], _windows(changes, relation), strict=True)
    return [Record(key, None if op == OP_DELETE else value, ts, window) for key, value, ts, op, window in found]


def _bounds(records: Sequence[Record]) -> list[pl.Series]:
    windows = [record.window for record in records]
    bounds = (
        [None if each is None else each.start for each in windows],
        [None if each is None else each.end for each in windows],
    )
    return [
        pl.Series(name, times, pl.Int64).cast(pl.Datetime("ms", "UTC")).cast(TIMESTAMP.polars)
        for name, times in zip(WINDOW_BOUNDS, bounds, strict=True)
    ]


def _windows(changes: pl.DataFrame, relation: SqlRelation) -> list[Window | None]:
    if relation.window is None:
        return [None] * changes.height
    starts, ends = (changes[name].dt.timestamp("ms") for name in WINDOW_BOUNDS)
    type_ = _WINDOW_TYPES.get(relation.window.type, "time")
    return [Window(start, end, type_) for start, end in zip(starts, ends, strict=True)]
