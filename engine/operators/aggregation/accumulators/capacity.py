"""Where a collection of values ends (P12): its first values belong to it, as long as there is room.

A value belongs to its collection if fewer than ``most.values`` stand before it, and these have less than ``most.bytes``. So a collection that
was cut is full, what was cut off it belongs to no collection that it becomes part of, and it can be cut as early as one likes.
Of which order a collection is must be known from its values alone, or from their positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from engine.expressions.types.types import ColumnType
from engine.frames.clocks import Bools
from engine.frames.list_columns import Int64s
from engine.frames.row_bytes import RowBytes


@dataclass(frozen=True, slots=True)
class Most:
    """At how many values, and at how many bytes (as S4 counts them), a collection is full."""

    values: int
    bytes: int


class Room:
    """The bound of an aggregate's collections.

    Args:
        most: the bound.
        element: type of the values.
    """

    def __init__(self, most: Most, element: ColumnType) -> None:
        self._most = most
        self._row_bytes = RowBytes({"x": element.polars})
        width = self._row_bytes.width
        self._is_counted_only = width is not None and width * most.values < most.bytes

    def is_ample(self, sizes: Int64s) -> bool:
        """Whether lists of so many values have room for more, whatever the values are."""
        return self._is_counted_only and int(sizes.max(initial=0)) < self._most.values

    def fitting(self, values: pl.Series, owners: Int64s) -> Bools:
        """Say which values belong to their collection.

        Args:
            values: those of a collection stand together, in its order.
            owners: number of each one's collection.
        """
        is_first = np.ones(len(owners), np.bool_)
        is_first[1:] = owners[1:] != owners[:-1]
        firsts = np.flatnonzero(is_first)[np.cumsum(is_first) - 1] if len(owners) else owners
        is_kept: Bools = np.arange(len(owners)) - firsts < self._most.values
        if not self._is_counted_only and len(owners):
            before = self._bytes_before(values)[:-1]
            is_kept &= before - before[firsts] < self._most.bytes
        return is_kept

    def full(self, values: pl.Series, starts: Int64s, ends: Int64s) -> Bools:
        """Say which collections are full: they begin in ``values`` at ``starts`` and end before ``ends``."""
        is_full: Bools = ends - starts >= self._most.values
        if not self._is_counted_only:
            before = self._bytes_before(values)
            is_full |= before[ends] - before[starts] >= self._most.bytes
        return is_full

    def starts(self, values: pl.Series, firsts: Int64s, ends: Int64s) -> Int64s:
        """Return where the last values that have room begin, of ranges of ``values`` from whose ends on the room is filled."""
        starts = np.maximum(firsts, ends - self._most.values)
        if not self._is_counted_only:
            before = self._bytes_before(values)
            fitting = np.searchsorted(before, before[ends] - self._most.bytes, "right") - 1
            starts = np.maximum(starts, np.minimum(fitting, ends))
        return starts

    def is_reached(self, counts: Int64s, sizes: Int64s) -> Bools:
        """Say where so many values of so many bytes fill a collection."""
        return (counts >= self._most.values) | (sizes >= self._most.bytes)

    def bytes_of(self, values: pl.Series) -> Int64s:
        """Return the bytes of each value."""
        return self._row_bytes.of(pl.DataFrame([values.alias("x")])).astype(np.int64)

    def _bytes_before(self, values: pl.Series) -> Int64s:
        return np.append(np.zeros(1, np.int64), np.cumsum(self.bytes_of(values)))
