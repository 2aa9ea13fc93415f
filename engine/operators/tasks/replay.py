"""Late records on their way through a query for a second time: from their JSON back to rows before the operator that refused them.

A replayed record is joined now, as of its own time. It is not judged again, moves no clock of the join and waits for nothing; the
operators behind the join handle its row like any other. Only joins of a stream with a table replay: what closed windows or expired
histories refused cannot be taken in without changing what was final.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from polars.datatypes import DataTypeClass

from engine.expressions.types.types import Schema
from engine.frames.frames import NO_RECORD, OFFSET, OP, POS, RANK, SERVICE_COLUMNS, TS
from engine.frames.hashing import KeyHash
from engine.frames.places import packed

REPLAYABLE: Final = frozenset(("late_dropped", "late_diverted", "expired_dropped", "expired_diverted"))
"""Reasons of late records that a stream-table join takes in again."""

STAGE, OPERATOR, RECORD = "stage", "operator", "record"
"""Columns of a replay feed beside ``_ts`` and ``_op``: where the record was refused, and what it was there (JSON)."""


def replayed_rows(records: pl.DataFrame, schema: Schema, key: tuple[str, ...], position: int, hashing: KeyHash) -> pl.DataFrame:
    """Return late records as rows of the running relation before the operator that refused them.

    Args:
        records: ``_ts`` and ``record``, as ``late_rows`` wrote it.
        schema: the columns before that operator.
        key: the columns whose hash chose the task.
        position: where all of them stand, one after the other.
        hashing: of the checkpoint.
    """
    rows = decoded(records.get_column(RECORD), schema)
    count = rows.height
    service = [
        pl.Series(POS, np.full(count, position)),
        packed(count, 0, np.arange(count), 0).alias(RANK),
        records.get_column(TS),
        pl.Series(OP, np.zeros(count, np.int8)),
        hashing.of(rows, key),
        pl.repeat(NO_RECORD, count, dtype=pl.Int64, eager=True).alias(OFFSET),
    ]
    return rows.with_columns(service)[[*SERVICE_COLUMNS, *schema.names]]


def decoded(records: pl.Series, schema: Schema) -> pl.DataFrame:
    """Read the payload of late records back: the inverse of what ``late_rows`` writes. Columns that a record lacks are null."""
    types = schema.polars()
    if not types:
        return pl.DataFrame({"_": records}).drop("_")
    written = pl.Struct({name: _written(dtype) for name, dtype in types.items()})
    rows = records.str.json_decode(written).struct.unnest()
    return rows.select(_read(pl.col(name), dtype).cast(dtype).alias(name) for name, dtype in types.items())


def _written(dtype: pl.DataType) -> pl.DataType:
    """Return the type a value has in JSON: bytes are base64 texts, at any depth."""
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _written(_instance(field.dtype)) for field in dtype.fields})
    if isinstance(dtype, pl.List):
        return pl.List(_written(_instance(dtype.inner)))
    return pl.String() if dtype == pl.Binary else dtype


def _read(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if dtype == _written(dtype):
        return value
    if isinstance(dtype, pl.Struct):
        fields = [_read(value.struct.field(field.name), _instance(field.dtype)).alias(field.name) for field in dtype.fields]
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    if isinstance(dtype, pl.List):
        return value.list.eval(_read(pl.element(), _instance(dtype.inner)))
    return value.str.decode("base64")


def _instance(dtype: pl.DataType | DataTypeClass) -> pl.DataType:
    return dtype() if isinstance(dtype, type) else dtype
