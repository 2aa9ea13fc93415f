"""The greatest values of a group: ``top_k``, ``top_k_distinct``, and ``top_k`` with what stood beside them. As in ``list_accumulators``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from engine.expressions.types.types import ColumnType
from engine.frames.list_columns import Flat, Int64s, flat, lengths, singletons
from engine.operators.aggregation.accumulators.accumulators import Records, Results
from engine.operators.aggregation.accumulators.list_accumulators import Collected, Collection, ListAccumulator, cut
from engine.state.sorted.running import Groups, codes_of


class Top(ListAccumulator):
    """``top_k`` and ``top_k_distinct``: the k greatest values, descending. A partial is such a list."""

    def __init__(self, prefix: str, result: ColumnType, limit: int, kind: Collected) -> None:
        super().__init__(prefix, result)
        self._name = f"{prefix}v"
        self._limit = limit
        self._kind = kind

    def lift(self, records: Records) -> list[pl.Series]:
        return [singletons(records.values).alias(self._name)]

    def run_until_idle(self, partials: pl.DataFrame) -> pl.DataFrame:
        return partials.with_columns(self._greatest(partials).alias(self._name))

    def results(self, partials: pl.DataFrame) -> Results:
        values, rows = flat(self._greatest(partials))
        return self._kind.lists(values, rows, partials.height)

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        values, rows = flat(partials[self._name])
        best = running_best(codes_of(values), rows, groups, self._limit, is_distinct=self._kind.is_distinct)
        values, owners = best.of(values)
        is_kept = self._kind.room.fitting(values, owners)
        if not is_kept.all():
            values, owners = values.filter(pl.Series(is_kept)), owners[is_kept]
        return self._kind.lists(values, owners, partials.height)

    def _greatest(self, partials: pl.DataFrame) -> pl.Series:
        lists = partials[self._name]
        if self._kind.is_distinct:
            lists = lists.list.unique()
        greatest = lists.list.sort(descending=True).list.head(self._limit)
        if self._kind.room.is_ample(lengths(greatest)):
            return greatest
        values, rows = flat(greatest)
        is_kept = self._kind.room.fitting(values, rows)
        return greatest if is_kept.all() else cut(values, rows, is_kept, partials.height)


class TopRows(Collection):
    """``top_k`` with further values: the k greatest with what stood beside them, of equal ones the earliest arrived.

    The argument is a struct of all, of which ``a0`` decides; the elements are structs of the result.
    """

    def __init__(self, prefix: str, result: ColumnType, limit: int, kind: Collected) -> None:
        super().__init__(prefix, result, kind)
        self._limit = limit

    def lift(self, records: Records) -> list[pl.Series]:
        is_value = records.values.struct.field("a0").is_not_null()
        rows = records.values.struct.unnest()
        names = [] if self.type.element is None else [name for name, _ in self.type.element.fields]
        structs = rows.rename(dict(zip(rows.columns, names, strict=True))).to_struct("v")
        shown = pl.DataFrame([structs]).select(pl.when(is_value).then(pl.col("v"))).to_series()
        return super().lift(records._replace(values=shown))

    def order(self, positions: Int64s, elements: Flat) -> Int64s:
        return np.lexsort((positions, -codes_of(_deciding(elements.values)), elements.rows))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        values, rows = flat(partials[self._values])
        positions = flat(partials[self._positions]).values.to_numpy()
        codes = np.zeros(len(rows), np.int64)
        codes[np.lexsort((-positions, codes_of(_deciding(values))))] = np.arange(1, len(rows) + 1)
        values, owners = running_best(codes, rows, groups, self._limit, is_distinct=False).of(values)
        is_kept = self.kind.room.fitting(values, owners)
        if not is_kept.all():
            values, owners = values.filter(pl.Series(is_kept)), owners[is_kept]
        return self.kind.lists(values, owners, partials.height)


def _deciding(values: pl.Series) -> pl.Series:
    return values.struct.field(values.struct.fields[0])


class RunningBest(NamedTuple):
    """The greatest codes after each row.

    Attributes:
        best: of each row, descending; 0 is none.
        holders: which element has a code.
    """

    best: Int64s
    holders: Int64s

    def of(self, values: pl.Series) -> Flat:
        """Return the elements with these codes, row by row."""
        is_there = self.best > 0
        owners = np.repeat(np.arange(len(self.best)), is_there.sum(axis=1))
        return Flat(values.gather(self.holders[self.best[is_there]]), owners)


def running_best(codes: Int64s, rows: Int64s, groups: Groups, limit: int, *, is_distinct: bool) -> RunningBest:
    """Combine ranges of doubling length: after step s each row knows the greatest of the ``2^s`` rows up to it.

    Args:
        codes: of the elements, from 1.
        rows: which row each belongs to, ascending.
        groups: of the rows.
        limit: how many are wanted.
        is_distinct: each code once.
    """
    height = len(groups.ids)
    sizes = np.bincount(rows, minlength=height).astype(np.int64)
    width = min(limit, int(np.bincount(groups.ids[rows]).max(initial=0)))
    best = np.zeros((height, max(width, int(sizes.max(initial=0)))), np.int64)
    best[rows, np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = codes
    best = _greatest_codes(best, width, is_distinct=is_distinct)
    index = np.arange(height)
    distance = 1
    while (joined := np.flatnonzero(index - distance >= groups.firsts)).size:
        both = np.concatenate([best[joined], best[joined - distance]], axis=1)
        best[joined] = _greatest_codes(both, width, is_distinct=is_distinct)
        distance *= 2
    holders = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    holders[codes] = np.arange(len(codes))
    return RunningBest(best, holders)


def _greatest_codes(codes: Int64s, width: int, *, is_distinct: bool) -> Int64s:
    ordered = -np.sort(-codes, axis=1)
    if is_distinct:
        ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = 0
        ordered = -np.sort(-ordered, axis=1)
    return ordered[:, :width]
