"""Aggregates whose partials have a bounded size: counts, extremes, first and last values; exact sums and moments are in ``sums``.

A record is *lifted* to a partial of its own; partials of the same group *merge* (associative, exact, in any order); *results*
reads the output value off a partial; *running* gives the outputs after each row of sorted partials. Where ``signs`` are given,
records with -1 are taken out again: their partials subtract. Knows nothing of windows or state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.expressions.types.types import ColumnType
from engine.frames.frames import constant, is_value, values_taken
from engine.operators.aggregation.accumulators.marks import Reason
from engine.state.sorted.running import Groups, codes_of

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Results:
    """Output values of one aggregate.

    Attributes:
        values: the values.
        is_overflow: where a sum did not fit its type; the value is null there.
        is_full: where a collection takes no more values (P12).
    """

    values: pl.Series
    is_overflow: NDArray[np.bool_] | None = None
    is_full: NDArray[np.bool_] | None = None

    @property
    def marks(self) -> list[tuple[Reason, NDArray[np.bool_]]]:
        """What is counted of the values."""
        masks: list[tuple[Reason, NDArray[np.bool_] | None]] = [
            ("sum_overflow", self.is_overflow),
            ("collection_full", self.is_full),
        ]
        return [(reason, mask) for reason, mask in masks if mask is not None and mask.any()]


class Records(NamedTuple):
    """The evaluated argument of one aggregate, and what else is known of the records.

    Attributes:
        values: one per record; null is ignored.
        positions: places in the total order.
        times: event times in ms, None where the caller has none.
        signs: 1 for a record that comes, -1 for one that goes; None: all come.
    """

    values: pl.Series
    positions: pl.Series
    times: pl.Series | None = None
    signs: Int64s | None = None

    def counted(self) -> Int64s:
        """Return the sign of each value, 0 for a null."""
        counts = is_value(self.values).astype(np.int64)
        return counts if self.signs is None else counts * self.signs


class Accumulator(ABC):
    """One aggregate of a group. Its partials' columns begin with ``prefix``.

    Attributes:
        is_added: the columns hold whole numbers that merge by adding; differences of wrapped totals are exact.
        stays_alone: merging one partial gives that partial.
        places: the column that lists places in the order of arrival, where the result depends on it.
    """

    is_added: ClassVar[bool] = False
    stays_alone: ClassVar[bool] = True
    places: str | None = None

    def __init__(self, prefix: str, result: ColumnType) -> None:
        self._prefix = prefix
        self.type = result

    @abstractmethod
    def lift(self, records: Records) -> list[pl.Series]:
        """Make a partial of each record."""

    @abstractmethod
    def merge(self, column: pl.Expr) -> pl.Expr:
        """Merge one column of partials, as an expression for ``group_by().agg``."""

    @abstractmethod
    def results(self, partials: pl.DataFrame) -> Results:
        """Read the output values off partials."""

    @abstractmethod
    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        """Output values after each row, where the rows of a group stand in arrival order."""

    def run_until_idle(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Bring merged partials into a form that can be merged again."""
        return partials

    def own(self, columns: Iterable[str]) -> list[str]:
        """Those of ``columns`` that belong to it."""
        return [name for name in columns if name.startswith(self._prefix)]


class Count(Accumulator):
    """``count(*)`` and ``count(x)``."""

    is_added = True

    def lift(self, records: Records) -> list[pl.Series]:
        return [pl.Series(f"{self._prefix}n", records.counted())]

    def merge(self, column: pl.Expr) -> pl.Expr:
        return column.sum()

    def results(self, partials: pl.DataFrame) -> Results:
        return Results(partials[f"{self._prefix}n"])

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        return Results(pl.Series(groups.sums(partials[f"{self._prefix}n"].to_numpy())))


class Extreme(Accumulator):
    """``min`` and ``max`` of any ordered type; of nothing, null."""

    def __init__(self, prefix: str, result: ColumnType, *, is_max: bool) -> None:
        super().__init__(prefix, result)
        self._name = f"{prefix}v"
        self._is_max = is_max

    def lift(self, records: Records) -> list[pl.Series]:
        return [records.values.alias(self._name)]

    def merge(self, column: pl.Expr) -> pl.Expr:
        return column.max() if self._is_max else column.min()

    def results(self, partials: pl.DataFrame) -> Results:
        return Results(partials[self._name])

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        values = partials[self._name]
        return Results(values if groups.are_alone else _running_greatest(values, codes_of(values), groups, is_max=self._is_max))


class Pick(Accumulator):
    """``first`` and ``last``, by event time or by arrival alone; of nothing, null.

    A partial is a struct of event time, position and value. Of equal event times ``first`` takes the earliest arrived, ``last`` the
    latest.

    Args:
        prefix: of its columns.
        result: type of the result.
        is_last: ``last``.
        is_by_time: event time counts before arrival.
        keeps_nulls: a null is a value like others.
    """

    def __init__(self, prefix: str, result: ColumnType, *, is_last: bool, is_by_time: bool, keeps_nulls: bool = False) -> None:
        super().__init__(prefix, result)
        self._name = f"{prefix}b"
        self._is_last = is_last
        self._is_by_time = is_by_time
        self._keeps_nulls = keeps_nulls

    def lift(self, records: Records) -> list[pl.Series]:
        values, positions, times, _ = records
        if self._is_by_time and times is None:
            raise ValueError("first and last by event time need the records' event times")
        own_times = times if self._is_by_time and times is not None else constant(0, len(values), "t")
        fields = pl.DataFrame([own_times.alias("t"), positions.alias("p"), values.alias("v")])
        if self._keeps_nulls:
            return [fields.to_struct(self._name)]
        return [fields.select(pl.when(values.is_not_null()).then(pl.struct("t", "p", "v")).alias(self._name)).to_series()]

    def merge(self, column: pl.Expr) -> pl.Expr:
        order = (column.struct.field("t"), column.struct.field("p"))
        if self._is_last:
            return column.sort_by(*order, nulls_last=False, maintain_order=True).last()
        return column.sort_by(*order, nulls_last=True, maintain_order=True).first()

    def results(self, partials: pl.DataFrame) -> Results:
        return Results(partials[self._name].struct.field("v"))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        times, positions, values = (partials[self._name].struct.field(name) for name in ("t", "p", "v"))
        has_value = is_value(times)
        codes = np.zeros(len(values), np.int64)
        rows = np.flatnonzero(has_value)
        order = np.lexsort((positions.fill_null(0).to_numpy()[rows], times.fill_null(0).to_numpy()[rows]))
        codes[rows[order]] = np.arange(1, len(rows) + 1)
        return Results(_running_greatest(values, codes, groups, is_max=self._is_last))


class PickBy(Accumulator):
    """``min_by`` and ``max_by``: the value beside the smallest or greatest of another; of equal ones the earliest arrived.

    The argument is a struct of both, ``a0`` and ``a1``. A partial is a struct of what decides, position and value.
    """

    def __init__(self, prefix: str, result: ColumnType, *, is_max: bool) -> None:
        super().__init__(prefix, result)
        self._name = f"{prefix}b"
        self._is_max = is_max

    def lift(self, records: Records) -> list[pl.Series]:
        values, deciding = (records.values.struct.field(name) for name in ("a0", "a1"))
        fields = pl.DataFrame([deciding.alias("t"), records.positions.alias("p"), values.alias("v")])
        return [fields.select(pl.when(deciding.is_not_null()).then(pl.struct("t", "p", "v")).alias(self._name)).to_series()]

    def merge(self, column: pl.Expr) -> pl.Expr:
        order = (column.struct.field("t"), column.struct.field("p"))
        return column.sort_by(*order, descending=[self._is_max, False], nulls_last=True, maintain_order=True).first()

    def results(self, partials: pl.DataFrame) -> Results:
        return Results(partials[self._name].struct.field("v"))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        deciding, positions, values = (partials[self._name].struct.field(name) for name in ("t", "p", "v"))
        ranks = codes_of(deciding)
        codes = np.zeros(len(values), np.int64)
        rows = np.flatnonzero(ranks > 0)
        order = np.lexsort((positions.fill_null(0).to_numpy()[rows], -ranks[rows] if self._is_max else ranks[rows]))
        codes[rows[order]] = np.arange(1, len(rows) + 1)
        return Results(_running_greatest(values, codes, groups, is_max=False))


def _running_greatest(values: pl.Series, codes: Int64s, groups: Groups, *, is_max: bool) -> pl.Series:
    """Return after each row the value of the greatest, or smallest, code of its group so far; code 0 is no value."""
    if not is_max:
        codes = np.where(codes > 0, int(codes.max(initial=0)) + 1 - codes, 0)
    holders = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int64)
    holders[codes] = np.arange(len(codes))
    best = groups.maxima(codes)
    found = values_taken(values, holders[best])
    return found if best.all() else found.set(pl.Series(best == 0), None)
