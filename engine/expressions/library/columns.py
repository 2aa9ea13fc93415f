"""Columns of values that Python made, whole lists at a time: Polars itself makes a frame of every nested value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from engine.expressions.values.exploding import lists_of


def column_of(values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    """Return a column of values: lists for a list, dicts by name for a struct, None for null; what is none of the type is null."""
    if not isinstance(dtype, pl.List | pl.Struct):
        return pl.Series(values, dtype=dtype, strict=False)
    is_null = pl.Series([value is None for value in values], dtype=pl.Boolean)
    if isinstance(dtype, pl.List):
        sizes = np.fromiter((0 if value is None else len(value) for value in values), np.int64, len(values))
        inside = column_of([each for value in values if value is not None for each in value], _as_instance(dtype.inner))
        made = lists_of(inside, sizes)
    else:
        fields = [
            column_of([None if value is None else value.get(field.name) for value in values], _as_instance(field.dtype)).alias(
                field.name
            )
            for field in dtype.fields
        ]
        made = pl.DataFrame(fields).to_struct()
    return made.to_frame("made").select(pl.when(~is_null).then(pl.col("made"))).to_series() if is_null.any() else made


def _as_instance(dtype: Any) -> pl.DataType:
    made: pl.DataType = dtype if isinstance(dtype, pl.DataType) else dtype()
    return made
