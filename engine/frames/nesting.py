"""Nested columns taken apart into the columns inside them, and put together again: what whole-column work at any depth needs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.frames.list_columns import lists_of

KEY, VALUE = "key", "value"
"""Fields of a map's entries: in frames a map is a list of structs."""


class Elements(NamedTuple):
    """What lists hold.

    Attributes:
        values: the elements of all lists, one after the other.
        sizes: how many each list has; 0 where it is null.
        is_null: which lists are null.
    """

    values: pl.Series
    sizes: npt.NDArray[np.int64]
    is_null: pl.Series


def elements_of(lists: pl.Series) -> Elements:
    """Take a list column apart."""
    values = lists.list.explode(keep_nulls=False, empty_as_null=False)
    return Elements(values, lists.list.len().fill_null(0).to_numpy().astype(np.int64), lists.is_null())


def lists_from(values: pl.Series, sizes: npt.NDArray[np.int64], is_null: pl.Series) -> pl.Series:
    """Cut values into lists of these sizes; null where ``is_null`` says so."""
    return _null_where(lists_of(values, sizes), is_null)


def structs_from(fields: Sequence[pl.Series], is_null: pl.Series) -> pl.Series:
    """Put the fields of structs together; null where ``is_null`` says so."""
    return _null_where(pl.DataFrame(list(fields)).to_struct(""), is_null)


def rows_with(mask: pl.Series, sizes: npt.NDArray[np.int64]) -> pl.Series:
    """Return which lists hold an element of the mask."""
    rows = np.repeat(np.arange(len(sizes)), sizes)[mask.fill_null(value=False).to_numpy()]
    return pl.Series(np.bincount(rows, minlength=len(sizes)) > 0)


def either(one: pl.Series | None, other: pl.Series | None) -> pl.Series | None:
    """Return the rows of one mask or the other; None stands for no rows."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


def as_lists(column: pl.Series) -> pl.Series:
    """Return lists for what holds as good as lists: arrays of a fixed size, and maps."""
    if isinstance(column.dtype, pl.Array):
        return column.arr.to_list()
    if isinstance(column.dtype, pl.Map):
        return column.cast(pl.List(pl.Struct({KEY: column.dtype.key, VALUE: column.dtype.value})))
    return column


def _null_where(column: pl.Series, is_null: pl.Series) -> pl.Series:
    return column.set(is_null, None) if is_null.any() else column
