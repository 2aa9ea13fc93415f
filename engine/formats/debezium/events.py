"""From envelopes to records: the effect of each change on a table's rows. Whole columns at a time; knows nothing of encodings."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

import polars as pl
from polars.datatypes import DataTypeClass

from engine.expressions.types.types import Schema
from engine.formats.debezium.fields import SOURCE
from engine.formats.debezium.positions import is_misplaced, positions_of, without_older
from engine.formats.port import Read
from engine.frames.nesting import structs_from
from engine.records.canonical import reject_rows
from engine.records.excerpts import excerpts_of

_UPSERTS: Final = ("c", "r", "u")
_DELETE, _TRUNCATE = "d", "t"
_PLAIN: Final = {"op": pl.String(), "ts_ms": pl.Int64()}
_REASONS: Final = {
    "table_truncated": "the table was truncated at its source; no record names the rows that are gone: delete them here, too",
    "not_a_change": "it is no change of a row: no insert, update, delete or read of a snapshot",
    "value_unavailable": "the event does not hold a value that did not change (__debezium_unavailable_value): set REPLICA IDENTITY FULL on the "
    "table, so that the database logs large values with every change",
    "position_not_read": "where the change stands cannot be kept: the connector, name, db, change_lsn or scn of its source holds a NUL, or "
    "the position is longer than a database writes it",
    "key_missing": "a column of the table's key is null or not in the row: the key must be columns of the database's primary key, by the "
    "same names",
    "row_missing": "the event has no row: of an insert, update or read `after` is null, of a delete `before` (see REPLICA IDENTITY)",
}


class Rows(NamedTuple):
    """The rows of events, independent of earlier events.

    Attributes:
        raw: rows for ``canonicalise``: the relation's columns, ``$op``, ``$event_time_ms``, the event's place ``_offset``, the change's position
            (``positions``), and its missing columns (``absent``). A changed key makes two rows of one event, the delete first.
        rejects: events without a row.
    """

    raw: pl.DataFrame
    rejects: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Changes:
    """The effects of events.

    Attributes:
        raw: see ``Rows``.
        rejects: see ``Rows``.
        older: events left out, because a newer change of their key, or the same change, came before.
        newest: see ``without_older``.
    """

    raw: pl.DataFrame
    rejects: pl.DataFrame
    older: int
    newest: pl.DataFrame


def counted(rows: Rows, key: tuple[str, ...], newest: pl.DataFrame | None = None) -> Changes:
    """Leave out changes that are older than earlier ones.

    Args:
        rows: in the order of arrival.
        key: the relation's key columns.
        newest: the newest positions so far; see ``without_older``.
    """
    counting, newest_now = without_older(rows.raw, key, newest) if key else (rows.raw, rows.raw.head(0))
    older = rows.raw.get_column("_offset").n_unique() - counting.get_column("_offset").n_unique()
    return Changes(counting, rows.rejects, older, newest_now)


def rows_of(envelopes: Read, columns: Schema, key: tuple[str, ...]) -> Rows:
    """Convert envelopes to rows.

    Args:
        envelopes: with ``before``, ``after``, ``op``, ``ts_ms``, ``source`` and ``_offset``.
        columns: of the relation.
        key: its key columns.
    """
    frame = _completed(envelopes.raw, columns)
    reasons = _reasons(frame, key)
    is_good = reasons.is_null()
    rejects = pl.concat([envelopes.rejects, _rejects(frame.filter(~is_good), reasons.filter(~is_good))]).sort("offset")
    frame = frame.filter(is_good)
    times = frame.select(_time().alias("$event_time_ms")).to_series()
    is_delete = frame.get_column("op") == _DELETE
    after, before = frame.get_column("after"), frame.get_column("before")
    common = [frame.get_column("_offset"), times, *positions_of(frame.get_column("source"), frame.get_column("op"))]
    ops = pl.Series("$op", ["upsert"], dtype=pl.String).new_from_index(0, frame.height).set(is_delete, "delete")
    fields = [field.name for field in after.dtype.fields] if isinstance(after.dtype, pl.Struct) else []
    chosen = [after.struct.field(name).zip_with(~is_delete, before.struct.field(name)).alias(name) for name in fields]
    rows = pl.DataFrame([*chosen, *common, ops, pl.repeat(1, frame.height, dtype=pl.Int8, eager=True).alias("_place")])
    return Rows(_with_old_keys(rows, before, after, ~is_delete, key).drop("_place"), rejects)


def _completed(frame: pl.DataFrame, columns: Schema) -> pl.DataFrame:
    """Add missing fields to the envelopes: a schema may lack some, and a batch may be empty."""
    rows = frame.height
    plain = [
        frame.get_column(name).cast(dtype)
        if name in frame.columns
        else pl.Series(name, [None], dtype=dtype).new_from_index(0, rows)
        for name, dtype in _PLAIN.items()
    ]
    structs = [_struct(frame, side, columns.polars()) for side in ("before", "after")]
    known = {name: kind.polars for name, kind in SOURCE.fields}
    return frame.with_columns(*plain, *structs, _struct(frame, "source", known))


def _struct(frame: pl.DataFrame, name: str, fields: Mapping[str, pl.DataType]) -> pl.Series:
    values = (
        frame.get_column(name)
        if name in frame.columns
        else pl.Series(name, [None], dtype=pl.Null).new_from_index(0, frame.height)
    )
    given = {field.name for field in values.dtype.fields} if isinstance(values.dtype, pl.Struct) else set()
    found = [
        values.struct.field(each) if each in given else pl.Series(each, [None], dtype=dtype).new_from_index(0, len(values))
        for each, dtype in fields.items()
    ]
    return structs_from(found, values.is_null()).alias(name)


def _with_old_keys(
    rows: pl.DataFrame, before: pl.Series, after: pl.Series, is_upsert: pl.Series, key: tuple[str, ...]
) -> pl.DataFrame:
    """Put a delete of the old key before an update that changed it; Debezium itself sends two events for this."""
    moved = pl.repeat(value=False, n=len(before), dtype=pl.Boolean, eager=True)
    known = before.is_not_null() & is_upsert
    for name in key:
        old = before.struct.field(name)
        moved |= known & old.is_not_null() & old.ne_missing(after.struct.field(name))
    if not moved.any():
        return rows
    gone = rows.filter(moved).with_columns(
        *(pl.Series(name, before.struct.field(name).filter(moved)) for name in before.struct.fields if name in rows.columns),
        pl.lit("delete").alias("$op"),
        pl.lit(0, pl.Int8).alias("_place"),
    )
    return pl.concat([rows, gone]).sort("_offset", "_place")


def _reasons(frame: pl.DataFrame, key: tuple[str, ...]) -> pl.Series:
    """Return why an event is no record; null for records."""
    op = pl.col("op")
    row = pl.when(op == _DELETE).then(pl.col("before")).otherwise(pl.col("after")).struct
    has_no_key = pl.any_horizontal(*(row.field(name).is_null() for name in key)) if key else pl.lit(value=False)
    return frame.select(
        pl.when(op == _TRUNCATE)
        .then(pl.lit("table_truncated"))
        .when(op.is_null() | ~op.is_in([*_UPSERTS, _DELETE]))
        .then(pl.lit("not_a_change"))
        .when((op == _DELETE) & pl.col("before").is_null() | (op != _DELETE) & pl.col("after").is_null())
        .then(pl.lit("row_missing"))
        .when(has_no_key)
        .then(pl.lit("key_missing"))
        .when((op != _DELETE) & is_unavailable(frame.schema["after"], "after"))
        .then(pl.lit("value_unavailable"))
        .when(is_misplaced(frame.get_column("source")))
        .then(pl.lit("position_not_read"))
        .otherwise(None)
    ).to_series()


def _time() -> pl.Expr:
    """Return the time of the change in the database; else the time at which Debezium read it."""
    source = pl.col("source").struct
    return pl.coalesce(source.field("ts_us").floordiv(1_000), source.field("ts_ms"), pl.col("ts_ms"))


def _rejects(frame: pl.DataFrame, reasons: pl.Series) -> pl.DataFrame:
    texts = excerpts_of(frame.drop("_offset"))
    pairs = zip(frame.get_column("_offset").to_list(), reasons.to_list(), texts, strict=True)
    return reject_rows([(place, reason, _REASONS[reason], text) for place, reason, text in pairs])


_TEXT: Final = "__debezium_unavailable_value"


_BYTES: Final = _TEXT.encode()


_TEXTS: Final = (_TEXT, base64.b64encode(_BYTES).decode(), json.dumps({_TEXT: _TEXT}, separators=(",", ":")))
"""A text; bytes in JSON; an hstore."""


_UUID: Final = str(UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3))


_NUMBERS: Final = ",".join(str(byte) for byte in _BYTES)


def is_unavailable(row: pl.DataType, side: str) -> pl.Expr:
    """Say whether a field of a row is no value: a text, its bytes, or an array of it. Arrays of numbers hold it byte by byte."""
    fields = row.to_schema() if isinstance(row, pl.Struct) else {}
    found = [_is(pl.col(side).struct.field(name), dtype) for name, dtype in fields.items()]
    said = [each for each in found if each is not None]
    return pl.any_horizontal(*said).fill_null(value=False) if said else pl.lit(value=False)


def _is(value: pl.Expr, dtype: pl.DataType | DataTypeClass) -> pl.Expr | None:
    """Return whether values are none; None: of their type all are values."""
    if dtype == pl.String:
        return value.is_in(_TEXTS)
    if dtype == pl.Binary:
        return value == _BYTES
    if not isinstance(dtype, pl.List):
        return None
    first = value.list.first()
    if dtype.inner == pl.String:
        return (value.list.len() == 1) & first.is_in([*_TEXTS, _UUID])
    if dtype.inner == pl.Binary:
        return (value.list.len() == 1) & (first == _BYTES)
    if dtype.inner is not None and dtype.inner.is_numeric():
        numbers = value.cast(pl.List(pl.Int64), strict=False).cast(pl.List(pl.String))
        return (value.list.len() == len(_BYTES)) & (numbers.list.join(",") == _NUMBERS)
    return None
