"""``collect_list`` over a table: values go again. As in ``list_accumulators``.

Which of several equal values goes is not known, for rows have no names here: the last one does, as in ksqlDB. So each value is a stack.
What happened to it, in order, is kept without what came and went: some that go first, whose coming is in an older partial, then some
that stay. Partials are merged with their neighbours in time, as a group's segments are.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from engine.expressions.types.types import ColumnType
from engine.frames.list_columns import Int64s, flat, lists_by_row, lists_of
from engine.operators.aggregation.accumulators.accumulators import Records, Results
from engine.operators.aggregation.accumulators.list_accumulators import Collected, ListAccumulator
from engine.state.sorted.running import Groups, codes_of
from engine.state.sorted.sorted_search import expand


class UndoableCollection(ListAccumulator):
    """The values that are there, in order of arrival. All are kept, also those that the result has no room for."""

    def __init__(self, prefix: str, result: ColumnType, kind: Collected) -> None:
        super().__init__(prefix, result)
        self._kind = kind
        self._positions, self._values, self._signs = f"{prefix}p", f"{prefix}v", f"{prefix}s"

    def lift(self, records: Records) -> list[pl.Series]:
        count = len(records.values)
        signs = np.ones(count, np.int64) if records.signs is None else records.signs
        is_value = np.ones(count, np.bool_) if self._kind.keeps_nulls else records.values.is_not_null().to_numpy()
        columns = ((records.positions, self._positions), (records.values, self._values), (pl.Series(signs), self._signs))
        return [lists_of(each.filter(pl.Series(is_value)), is_value.astype(np.int64)).alias(name) for each, name in columns]

    def run_until_idle(self, partials: pl.DataFrame) -> pl.DataFrame:
        names = (self._positions, self._values, self._signs)
        columns, rows = self._left(partials)
        own = [lists_by_row(each, rows, partials.height).alias(name) for each, name in zip(columns, names, strict=True)]
        return partials.with_columns(own)

    def results(self, partials: pl.DataFrame) -> Results:
        (_, values, signs), rows = self._left(partials)
        comes = signs > 0
        return self._shown(values.filter(comes), rows[comes.to_numpy()], partials.height)

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        values, rows = flat(partials[self._values])
        signs = flat(partials[self._signs]).values.to_numpy()
        gone_at = np.full(len(rows), partials.height)
        came, went = _pairs(groups.ids[rows], codes_of(values), signs)
        gone_at[came] = rows[went]
        starts = np.searchsorted(rows, groups.firsts)
        ends = np.searchsorted(rows, np.arange(partials.height), "right")
        elements = expand(starts, ends)
        owners = np.repeat(np.arange(partials.height), ends - starts)
        is_there = (signs[elements] > 0) & (gone_at[elements] > owners)
        return self._shown(values.gather(elements[is_there]), owners[is_there], partials.height)

    def _shown(self, values: pl.Series, rows: Int64s, count: int) -> Results:
        is_kept = self._kind.room.fitting(values, rows)
        if not is_kept.all():
            values, rows = values.filter(pl.Series(is_kept)), rows[is_kept]
        return self._kind.lists(values, rows, count)

    def _left(self, partials: pl.DataFrame) -> tuple[tuple[pl.Series, pl.Series, pl.Series], Int64s]:
        """Return positions, values and signs of what did not both come and go, in order, and the rows they belong to."""
        values, rows = flat(partials[self._values])
        positions, signs = flat(partials[self._positions]).values, flat(partials[self._signs]).values
        order = np.lexsort((positions.to_numpy(), rows))
        is_left = np.ones(len(order), np.bool_)
        is_left[np.concatenate(_pairs(rows[order], codes_of(values)[order], signs.to_numpy()[order]))] = False
        order = order[is_left]
        return (positions.gather(order), values.gather(order), signs.gather(order)), rows[order]


def _pairs(owners: Int64s, codes: Int64s, signs: Int64s) -> tuple[Int64s, Int64s]:
    """Return which elements went, as pairs of where they came and where they went: of an owner's equal values the last one goes.

    Each level of a stack is taken and left by turns, so who comes to a level is the one who leaves it next.
    """
    base = int(codes.max(initial=0)) + 1
    stacks = np.unique(owners * base + codes, return_inverse=True)[1]
    order = np.argsort(stacks, kind="stable")
    ordered = signs[order]
    totals = np.cumsum(ordered)
    is_first = np.append([True], stacks[order][1:] != stacks[order][:-1])[: len(order)]
    firsts = np.flatnonzero(is_first)[np.cumsum(is_first) - 1] if len(order) else order
    heights = totals - (totals - ordered)[firsts]
    levels = np.where(ordered > 0, heights, heights + 1)
    by_level = np.lexsort((np.arange(len(order)), levels, stacks[order]))
    this, following = by_level[:-1], by_level[1:]
    is_pair = (stacks[order][this] == stacks[order][following]) & (levels[this] == levels[following])
    is_pair &= (ordered[this] > 0) & (ordered[following] < 0)
    return order[this[is_pair]], order[following[is_pair]]
