"""The values operators hand each other: frames with service columns, outputs, emissions.

A frame between operators has ``_pos`` (Int64, non-decreasing: the position of the record that caused the row, T2),
``_rank`` (Binary: its order there, ``engine.frames.places``), ``_ts`` (Int64 ms), ``_op`` (Int8: 0 row, 1 delete), ``_key_hash`` (UInt64),
``_offset`` (Int64) and payload columns. Row order is
the order of processing. Nothing here knows Spark, files or the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.datatypes import DataTypeClass

from engine.expressions.types.types import Schema
from engine.frames.clocks import I64, Bools

POS, TS, OP, KEY_HASH, OFFSET, RANK = "_pos", "_ts", "_op", "_key_hash", "_offset", "_rank"

HEAD = "_head"
"""Running maximum of event time in the lane of a record (``engine.operators.tasks.order``): how far the merge of a query's inputs had come with
it."""

ORIGIN = "_origin"
"""Column of an emission that goes through an exchange: offset of the record it was made of, or ``NO_RECORD``."""

OUT_OF_ORDER_IGNORED: Final = "out_of_order_ignored"
"""Counts, by the table's alias, changes that were older than their key's latest, or came again (``engine.operators.rows.conflicts``)."""

OPEN_ROW, OPEN_DELETE = 3, 4
"""``_op`` of a row that an open window has now, or has no more: for reading only, never a result (``engine.operators.windows.open_windows``)."""

NO_RECORD = -1
"""Offset of a row that is not made of one record: several caused it, or time alone did (T10, ticks)."""

SERVICE_COLUMNS: dict[str, pl.DataType] = {
    POS: pl.Int64(),
    TS: pl.Int64(),
    OP: pl.Int8(),
    KEY_HASH: pl.UInt64(),
    OFFSET: pl.Int64(),
    RANK: pl.Binary(),
}

LATE_SCHEMA: dict[str, pl.DataType] = {
    "input": pl.String(),
    "reason": pl.String(),
    "event_time_ms": pl.Int64(),
    "stream_time_ms": pl.Int64(),
    "offset": pl.Int64(),
    "record": pl.String(),
    POS: pl.Int64(),
    RANK: pl.Binary(),
}
"""What is kept of late rows, and where they stand: their order is the feed's, whatever tasks judged them."""

EXCERPT_CHARS = 4096
"""A late record that cannot be replayed is kept for reading: this much shows any sane record whole and bounds what is kept."""

WHOLE_CHARS = 1 << 20
"""One that can is kept whole up to here; what is longer is cut, and cannot be replayed any more."""

SHORT_ROWS: Final = 1_024
"""Columns of one value that have no more rows share one."""

Counters = dict[tuple[str, str], int]
"""(operator or input alias, reason) → how many in this batch. Reasons that did not occur are absent."""


_NO_LATE: Final = pl.DataFrame(schema=LATE_SCHEMA)


def empty_late() -> pl.DataFrame:
    """Return a frame of no late rows."""
    return _NO_LATE


def empty_frame(schema: Schema) -> pl.DataFrame:
    """Return a frame without rows: the service columns and those of ``schema``."""
    return pl.DataFrame(schema={**SERVICE_COLUMNS, **schema.polars()})


def blanked(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return the frame with null in these columns of every row that is no value."""
    if not columns or not frame.get_column(OP).to_numpy().any():
        return frame
    return frame.with_columns(pl.when(pl.col(OP) == 0).then(pl.col(name)).alias(name) for name in columns)


def with_series(frame: pl.DataFrame, *columns: pl.Series) -> pl.DataFrame:
    """Return the frame with these columns, in the place of those of their names.

    What ``with_columns`` gives. That plans a query first, which for a few rows costs thirty times what it does (90 and 3 µs).
    """
    result = frame.clone()
    further = []
    for column in columns:
        if column.name in result.columns:
            result.replace_column(result.get_column_index(column.name), column)
        else:
            further.append(column)
    return result.hstack(further) if further else result


def without(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """Return the frame without columns of these names, where it has them: ``drop`` without a plan."""
    result = frame.clone()
    for name in set(names).intersection(result.columns):
        result.drop_in_place(name)
    return result


def only(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """Return the frame with these columns alone, in this order, at least one: ``select`` without a plan."""
    return frame if frame.columns == [*names] else frame_of(map(frame.get_column, names))


def frame_of(columns: Iterable[pl.Series]) -> pl.DataFrame:
    """Return a frame of columns of one length, at least one. ``pl.DataFrame`` finds out first what it was given, at three times the cost."""
    first, *others = columns
    return first.to_frame().hstack(others) if others else first.to_frame()


def values_taken(values: pl.Series, rows: NDArray[np.integer[Any]]) -> pl.Series:
    """Gather values: ``gather`` without a plan, which for a few costs thirty times what it does (220 and 8 µs)."""
    return values[pl.Series(rows.astype(np.uint32))]


def without_rows(frame: pl.DataFrame, rows: I64) -> pl.DataFrame:
    """Return the frame without the rows at these places."""
    if not len(rows):
        return frame
    is_other = np.ones(frame.height, np.bool_)
    is_other[rows] = False
    return frame[np.flatnonzero(is_other)]


def is_value(column: pl.Series) -> Bools:
    """Say which values are not null: ``is_not_null`` without a plan where none is, and of integers, which numpy has as NaN."""
    if not column.null_count():
        return np.ones(len(column), np.bool_)
    return ~np.isnan(column.to_numpy()) if column.dtype.is_integer() else column.is_not_null().to_numpy()


def constant(value: int, rows: int, name: str, dtype: type[np.int64] | type[np.int8] = np.int64) -> pl.Series:
    """Return a column of one value, the same in each batch: ``repeat`` without a plan.

    A short one is a part of one that is made once (3 instead of 9 µs).
    """
    if rows > SHORT_ROWS:
        return pl.Series(name, np.full(rows, value, dtype))
    return _short(value, np.dtype(dtype)).head(rows).alias(name)


@lru_cache(maxsize=16)
def _short(value: int, dtype: np.dtype[Any]) -> pl.Series:
    return pl.Series(np.full(SHORT_ROWS, value, dtype))


def add_counter(counters: Counters, operator: str, reason: str, count: int) -> None:
    """Add ``count`` to one counter; nothing is written for zero."""
    if count:
        counters[operator, reason] = counters.get((operator, reason), 0) + count


def merge_counters(into: Counters, other: Counters) -> None:
    """Add every counter of ``other`` to ``into``."""
    for (operator, reason), count in other.items():
        add_counter(into, operator, reason, count)


def late_rows(
    frame: pl.DataFrame, operator: str, reason: str, stream_times: pl.Series | None, max_chars: int = EXCERPT_CHARS
) -> pl.DataFrame:
    """Describe rows of ``frame`` for the table of late records.

    Args:
        frame: the late records with ``_ts``, ``_offset``, their places and payload.
        operator: input alias or operator that judged them.
        reason: why they are late.
        stream_times: the operator's clock before each row, or None where it has none.
        max_chars: how much of each record is kept.

    Returns:
        One ``LATE_SCHEMA`` row for each row; ``record`` is the payload as JSON, cut at ``max_chars``. ``offset`` is null where the
        row is not made of one record of an input.
    """
    if frame.is_empty():
        return empty_late()
    payload = [name for name in frame.columns if name not in SERVICE_COLUMNS]
    readable = [_readable(pl.col(name), frame.schema[name]).alias(name) for name in payload]
    record = pl.struct(readable).struct.json_encode().str.slice(0, max_chars) if payload else pl.lit("{}")
    clock = pl.lit(None, pl.Int64) if stream_times is None else pl.lit(stream_times.cast(pl.Int64))
    return frame.select(
        pl.lit(operator, pl.String).alias("input"),
        pl.lit(reason, pl.String).alias("reason"),
        pl.col(TS).alias("event_time_ms"),
        clock.alias("stream_time_ms"),
        pl.when(pl.col(OFFSET) >= 0).then(pl.col(OFFSET)).alias("offset"),
        record.alias("record"),
        POS,
        RANK,
    )


def _holds_bytes(dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(_holds_bytes(_instance(field.dtype)) for field in dtype.fields)
    if isinstance(dtype, pl.List):
        return _holds_bytes(_instance(dtype.inner))
    return dtype == pl.Binary


def _readable(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Write bytes as base64, at any depth: JSON has none and Polars' encoder panics on them."""
    if not _holds_bytes(dtype):
        return value
    if isinstance(dtype, pl.Struct):
        fields = [_readable(value.struct.field(field.name), _instance(field.dtype)).alias(field.name) for field in dtype.fields]
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    if isinstance(dtype, pl.List):
        return value.list.eval(_readable(pl.element(), _instance(dtype.inner)))
    return value.bin.encode("base64")


def _instance(dtype: pl.DataType | DataTypeClass) -> pl.DataType:
    return dtype() if isinstance(dtype, type) else dtype
