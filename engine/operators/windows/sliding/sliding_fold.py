"""Folds of ranges of rows: the merge of the partials of each range, without going through the ranges row by row.

Counts and sums come from differences of running totals. Every other aggregate is merged over a binary tree: a range of n rows is
the disjoint union of at most 2·log2(n) nodes. Minima need neither: two overlapping powers of two cover any range. Knows nothing
of time, groups or windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from engine.frames.clocks import I64
from engine.operators.aggregation.aggregate import Aggregates

MAX_ROWS: Final = 1 << 20
"""Rows made at once when something is spread out: bounds memory."""

_OWNER, _PLACE = "_owner", "_place"


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges ``[low, high)`` of rows, none empty, each belonging to an owner.

    Attributes:
        owners: ascending; several ranges may have one owner.
    """

    owners: I64
    low: I64
    high: I64

    @property
    def firsts(self) -> I64:
        """Index of each owner's first range."""
        return np.flatnonzero(np.append(True, self.owners[1:] != self.owners[:-1])) if len(self.owners) else self.owners

    def slices(self, weights: I64) -> Iterator[Ranges]:
        """Cut so that each part has whole owners and, unless one owner alone has more, at most ``MAX_ROWS`` of weight."""
        firsts = self.firsts
        for start, stop in bounded(np.add.reduceat(weights, firsts) if len(firsts) else weights):
            first = firsts[start]
            last = firsts[stop] if stop < len(firsts) else len(self.owners)
            yield Ranges(self.owners[first:last], self.low[first:last], self.high[first:last])


def bounded(weights: I64) -> Iterator[tuple[int, int]]:
    """Cut items into neighbours ``start..stop-1`` of at most ``MAX_ROWS`` of weight together, or one item each."""
    totals = np.cumsum(weights)
    start = 0
    while start < len(weights):
        before = int(totals[start - 1]) if start else 0
        stop = max(int(np.searchsorted(totals, before + MAX_ROWS, "right")), start + 1)
        yield start, stop
        start = stop


def range_minima(values: I64, low: I64, high: I64) -> I64:
    """Return the smallest value of each range; ranges must not be empty."""
    minima = np.empty(len(low), np.int64)
    if not len(low):
        return minima
    levels = np.frexp((high - low).astype(np.float64))[1] - 1
    table, width = values, 1
    for level in range(int(levels.max()) + 1):
        if level:
            table, width = np.minimum(table[:-width], table[width:]), width * 2
        own = np.flatnonzero(levels == level)
        minima[own] = np.minimum(table[low[own]], table[high[own] - width])
    return minima


class RangeFold:
    """Merges ranges of lifted partials.

    Args:
        aggregates: whose partials they are.
        records: one row per record, with the partials' columns; others are ignored.

    Attributes:
        names: the partials' columns.
    """

    def __init__(self, aggregates: Aggregates, records: pl.DataFrame) -> None:
        self._aggregates = aggregates
        summed, others = (aggregates.own(records.columns, is_added=is_added) for is_added in (True, False))
        self.names = [*summed, *others]
        self._totals = {name: np.append(0, np.cumsum(records[name].fill_null(0).to_numpy())) for name in summed}
        self._others = records.select(others)
        self._levels = [self._others]
        self._offsets = [0]

    def fold(self, ranges: Ranges) -> pl.DataFrame:
        """Return one partial per owner, in the owners' order."""
        firsts = ranges.firsts
        is_single = len(firsts) == len(ranges.owners)
        merged = []
        for name, totals in self._totals.items():
            sums = totals[ranges.high] - totals[ranges.low]
            merged.append(pl.Series(name, sums if is_single else np.add.reduceat(sums, firsts)))
        if self._others.width:
            merged += self._tree(ranges).get_columns()
        return self._aggregates.run_until_idle(pl.DataFrame(merged))

    def _tree(self, ranges: Ranges) -> pl.DataFrame:
        """Merge the partials that cannot be subtracted."""
        longest = int((ranges.high - ranges.low).max(initial=1))
        self._grow(longest.bit_length())
        nodes = pl.concat(self._levels, how="diagonal")
        weights = np.full(len(ranges.owners), 2 * len(self._levels))
        parts = []
        for part in ranges.slices(weights):
            owners, places = self._nodes(part)
            spread = nodes[places].with_columns(pl.Series(_OWNER, owners))
            merge = self._aggregates.merge(nodes.columns)
            parts.append(spread.sort(_OWNER, maintain_order=True).group_by(_OWNER, maintain_order=True).agg(merge).drop(_OWNER))
        return pl.concat(parts, how="diagonal") if parts else nodes.clear()

    def _grow(self, levels: int) -> None:
        while len(self._levels) < levels:
            below = self._levels[-1]
            numbered = below.with_columns(pl.Series(_PLACE, np.arange(below.height) >> 1))
            merged = numbered.group_by(_PLACE, maintain_order=True).agg(self._aggregates.merge(below.columns)).drop(_PLACE)
            merged = self._aggregates.run_until_idle(merged)
            self._offsets.append(self._offsets[-1] + below.height)
            self._levels.append(merged)

    def _nodes(self, ranges: Ranges) -> tuple[I64, I64]:
        """Cut ranges into nodes of the tree: the owner and the row of each."""
        owners, low, high = ranges.owners, ranges.low, ranges.high
        found: list[tuple[I64, I64]] = []
        for offset in self._offsets:
            is_left = (low & 1 == 1) & (low < high)
            found.append((owners[is_left], low[is_left] + offset))
            low = low + is_left
            is_right = (high & 1 == 1) & (low < high)
            found.append((owners[is_right], high[is_right] - 1 + offset))
            low, high = low >> 1, (high - is_right) >> 1
        return np.concatenate([own for own, _ in found]), np.concatenate([place for _, place in found])
