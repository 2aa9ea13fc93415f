"""List columns seen as flat values and lengths: what vectorised work on lists needs. Lists hold no nulls and are never null."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


class Flat(NamedTuple):
    """The elements of all lists, one after the other.

    Attributes:
        values: the elements.
        rows: index of the list each belongs to, ascending.
    """

    values: pl.Series
    rows: Int64s


def flat(lists: pl.Series) -> Flat:
    """Flatten a list column."""
    return Flat(lists.list.explode(keep_nulls=False, empty_as_null=False), np.repeat(np.arange(len(lists)), lengths(lists)))


def lengths(lists: pl.Series) -> Int64s:
    """Return the number of elements of each list."""
    return lists.list.len().to_numpy().astype(np.int64)


def lists_of(values: pl.Series, sizes: Int64s) -> pl.Series:
    """Cut ``values`` into consecutive lists of these sizes."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    array = pa.LargeListArray.from_arrays(pa.array(offsets), values.rechunk().to_arrow())
    return pl.Series(array, dtype=pl.List(values.dtype))


def lists_by_row(values: pl.Series, rows: Int64s, count: int) -> pl.Series:
    """Make ``count`` lists of the values whose ``rows``, ascending, name their list."""
    return lists_of(values, np.bincount(rows, minlength=count).astype(np.int64))


def singletons(values: pl.Series) -> pl.Series:
    """Return ``[x]`` for each value, ``[]`` for null."""
    return lists_of(values.drop_nulls(), values.is_not_null().to_numpy().astype(np.int64))


def null_where_empty(lists: pl.Series) -> pl.Series:
    """Replace empty lists by null: what an aggregate of nothing is."""
    is_empty = lists.list.len() == 0
    return lists.set(is_empty, None) if is_empty.any() else lists
