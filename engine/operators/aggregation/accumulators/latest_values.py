"""The last n values of a group in the order of arrival: ``last_by_arrival(x, n)``. As in ``list_accumulators``."""

from __future__ import annotations

import numpy as np
import polars as pl

from engine.frames.list_columns import Flat, Int64s, flat
from engine.operators.aggregation.accumulators.accumulators import Results
from engine.operators.aggregation.accumulators.list_accumulators import Collection
from engine.state.sorted.running import Groups


class LatestValues(Collection):
    """A collection whose last values belong to it; they are shown, and kept, in the order of arrival."""

    def order(self, positions: Int64s, elements: Flat) -> Int64s:
        return np.lexsort((-positions, elements.rows))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        values, rows = flat(partials[self._values])
        firsts = np.searchsorted(rows, groups.firsts)
        ends = np.searchsorted(rows, np.arange(partials.height), "right")
        return self.ranges(values, self.kind.room.starts(values, firsts, ends), ends)

    def _in_order(self, partials: pl.DataFrame) -> tuple[pl.Series, Flat]:
        positions, elements = super()._in_order(partials)
        order = np.lexsort((positions.to_numpy(), elements.rows))
        return positions.gather(order), Flat(elements.values.gather(order), elements.rows)
