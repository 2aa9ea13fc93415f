"""Aggregates whose partials have a bounded size: counts, exact sums and moments, extremes, first and last values.

A record is *lifted* to a partial of its own; partials of the same group *merge* (associative, exact, in any order); *results*
reads the output value off a partial; *running* gives the outputs after each row of sorted partials. Where ``signs`` are given,
records with -1 are taken out again: their partials subtract. Knows nothing of windows or state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.core.aggregation import exact_moments, exact_sum
from engine.core.aggregation.marks import Reason
from engine.core.aggregation.running import Groups, codes_of
from engine.definition.types import ColumnType

Int64s = NDArray[np.int64]

_CARRY_AT: Final = 1 << 61
"""Limb sums are carried over from here: two partials below it can always be added, and running sums start from one of them."""


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
        counts = self.values.is_not_null().to_numpy().astype(np.int64)
        return counts if self.signs is None else counts * self.signs


class Accumulator(ABC):
    """One aggregate of a group. Its partials' columns begin with ``prefix``.

    Attributes:
        is_added: the columns hold whole numbers that merge by adding; differences of wrapped totals are exact.
        places: the column that lists places in the order of arrival, where the result depends on it.
    """

    is_added: ClassVar[bool] = False
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

    def settle(self, partials: pl.DataFrame) -> pl.DataFrame:
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


class LimbAccumulator(Accumulator):
    """A number of values beside sums kept as limbs: a column ``<family><q>`` for each limb q of each family of sums."""

    is_added = True
    families: Sequence[str]

    def merge(self, column: pl.Expr) -> pl.Expr:
        return column.sum()

    def settle(self, partials: pl.DataFrame) -> pl.DataFrame:
        for family in self.families:
            limbs = self.limbs(partials, family)
            if any(len(limb) and max(int(limb.max()), -int(limb.min())) >= _CARRY_AT for limb in limbs.values()):
                kept = [name for name in partials.columns if not name.startswith(f"{self._prefix}{family}")]
                partials = partials.select(kept).with_columns(self.columns(exact_sum.carried(limbs), family))
        return partials

    def columns(self, limbs: exact_sum.Limbs, family: str, signs: Int64s | None = None) -> list[pl.Series]:
        """Write limbs as columns of partials."""
        return [pl.Series(f"{self._prefix}{family}{q}", limb if signs is None else limb * signs) for q, limb in limbs.items()]

    def limbs(self, partials: pl.DataFrame, family: str, groups: Groups | None = None) -> exact_sum.Limbs:
        """Read the limbs of each row, or with ``groups`` their running sums."""
        start = len(self._prefix) + 1
        names = [name for name in self.own(partials.columns) if name[start - 1] == family]
        found = {int(name[start:]): partials[name].fill_null(0).to_numpy() for name in names}
        return found if groups is None else {q: groups.sums(limb) for q, limb in found.items()}

    def counts(self, partials: pl.DataFrame, groups: Groups | None = None, column: str = "n") -> Int64s:
        """Read the number of values of each row, or with ``groups`` the running one."""
        found = partials[f"{self._prefix}{column}"].to_numpy()
        return found if groups is None else groups.sums(found)


def limbs_of(values: pl.Series, argument: ColumnType) -> exact_sum.Limbs:
    """Split numbers into limbs; nulls count as 0."""
    if argument.kind == "decimal":
        return exact_sum.decimal_limbs(values)
    if argument.is_integer:
        return exact_sum.int_limbs(values.cast(pl.Int64).fill_null(0).to_numpy())
    return exact_sum.double_limbs(values.fill_null(0.0).to_numpy())


class Sum(LimbAccumulator):
    """``sum`` and ``avg``: the number of values and the limbs of their exact sum; of nothing, null.

    Args:
        prefix: of its columns.
        result: the type it gives.
        argument: the type of what it adds.
        is_mean: ``avg``.
        is_zero_when_emptied: the sum of a group that had rows and has none is 0 (A2).
    """

    families = ("l",)

    def __init__(
        self, prefix: str, result: ColumnType, argument: ColumnType, *, is_mean: bool, is_zero_when_emptied: bool = False
    ) -> None:
        super().__init__(prefix, result)
        self._argument = argument
        self._is_mean = is_mean
        self._counts_rows = is_zero_when_emptied and not is_mean

    def lift(self, records: Records) -> list[pl.Series]:
        columns = [pl.Series(f"{self._prefix}n", records.counted())]
        if self._counts_rows:
            rows = np.ones(len(records.values), np.int64) if records.signs is None else records.signs
            columns.append(pl.Series(f"{self._prefix}r", rows))
        return [*columns, *self.columns(limbs_of(records.values, self._argument), "l", records.signs)]

    def results(self, partials: pl.DataFrame) -> Results:
        return self._read(partials, None)

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        return self._read(partials, groups)

    def _read(self, partials: pl.DataFrame, groups: Groups | None) -> Results:
        counts, limbs = self.counts(partials, groups), self.limbs(partials, "l", groups)
        rows = len(counts)
        if self._is_mean:
            values, is_valid = self._means(counts, limbs)
        elif self.type.kind == "decimal":
            values, is_valid = exact_sum.to_decimal(limbs, rows, self.type.scale or 0)
        elif self.type.kind == "bigint":
            totals, is_valid = exact_sum.to_int64(limbs, rows)
            values = pl.Series(totals)
        else:
            doubles, is_valid = exact_sum.to_double(limbs, rows, exact_sum.DOUBLE_UNIT)
            values = pl.Series(doubles)
        is_shown = (counts > 0) & is_valid
        if self._counts_rows:
            is_shown |= self.counts(partials, groups, "r") == 0  # without values the limbs are 0, and so is the sum
        shown = values if is_shown.all() else values.set(pl.Series(~is_shown), None)
        return Results(shown, None if is_valid.all() else ~is_valid)

    def _means(self, counts: Int64s, limbs: exact_sum.Limbs) -> tuple[pl.Series, NDArray[np.bool_]]:
        unit = exact_sum.DOUBLE_UNIT if self._argument.kind == "double" else exact_sum.INTEGER_UNIT
        totals, is_valid = exact_sum.to_double(limbs, len(counts), unit)
        scale = 10.0 ** (self._argument.scale or 0)
        with np.errstate(invalid="ignore"):
            return pl.Series(totals / scale / np.maximum(counts, 1)), is_valid


class Deviation(LimbAccumulator):
    """``stddev`` and ``variance`` of a sample: count, exact sum and exact sum of squares; of fewer than two values, null."""

    families = ("l", "s")

    def __init__(self, prefix: str, result: ColumnType, argument: ColumnType, *, is_root: bool) -> None:
        super().__init__(prefix, result)
        self._argument = argument
        self._is_root = is_root

    def lift(self, records: Records) -> list[pl.Series]:
        values = records.values
        limbs = limbs_of(values, self._argument)
        if self._argument.kind == "double":
            squares = exact_moments.double_squares(values.fill_null(0.0).to_numpy())
        else:
            squares = exact_moments.squared(limbs, len(values))
        own = [*self.columns(limbs, "l", records.signs), *self.columns(squares, "s", records.signs)]
        return [pl.Series(f"{self._prefix}n", records.counted()), *own]

    def results(self, partials: pl.DataFrame) -> Results:
        return self._read(partials, None)

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        return self._read(partials, groups)

    def _read(self, partials: pl.DataFrame, groups: Groups | None) -> Results:
        counts = self.counts(partials, groups)
        unit = exact_moments.DOUBLE_SQUARE_UNIT if self._argument.kind == "double" else exact_sum.INTEGER_UNIT
        sums, squares = self.limbs(partials, "l", groups), self.limbs(partials, "s", groups)
        values, is_valid = exact_moments.variances(counts, sums, squares, unit, self._argument.scale or 0, is_root=self._is_root)
        is_overflow = (counts > 1) & ~is_valid
        is_shown = (counts > 1) & is_valid
        shown = pl.Series(values) if is_shown.all() else pl.Series(values).set(pl.Series(~is_shown), None)
        return Results(shown, is_overflow if is_overflow.any() else None)


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
        return Results(_running_greatest(values, codes_of(values), groups, is_max=self._is_max))


class Pick(Accumulator):
    """``first`` and ``last``, by event time or by arrival alone; of nothing, null.

    A partial is a struct of event time, position and value. Of equal event times ``first`` takes the earliest arrived, ``last`` the
    latest.
    """

    def __init__(self, prefix: str, result: ColumnType, *, is_last: bool, is_by_time: bool) -> None:
        super().__init__(prefix, result)
        self._name = f"{prefix}b"
        self._is_last = is_last
        self._is_by_time = is_by_time

    def lift(self, records: Records) -> list[pl.Series]:
        values, positions, times, _ = records
        if self._is_by_time and times is None:
            raise ValueError("first and last by event time need the records' event times")
        own_times = times if self._is_by_time and times is not None else pl.repeat(0, len(values), dtype=pl.Int64, eager=True)
        is_value = values.is_not_null()
        fields = pl.DataFrame([own_times.alias("t"), positions.alias("p"), values.alias("v")])
        return [fields.select(pl.when(is_value).then(pl.struct("t", "p", "v")).alias(self._name)).to_series()]

    def merge(self, column: pl.Expr) -> pl.Expr:
        order = (column.struct.field("t"), column.struct.field("p"))
        if self._is_last:
            return column.sort_by(*order, nulls_last=False, maintain_order=True).last()
        return column.sort_by(*order, nulls_last=True, maintain_order=True).first()

    def results(self, partials: pl.DataFrame) -> Results:
        return Results(partials[self._name].struct.field("v"))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        times, positions, values = (partials[self._name].struct.field(name) for name in ("t", "p", "v"))
        is_value = times.is_not_null().to_numpy()
        codes = np.zeros(len(values), np.int64)
        rows = np.flatnonzero(is_value)
        order = np.lexsort((positions.fill_null(0).to_numpy()[rows], times.fill_null(0).to_numpy()[rows]))
        codes[rows[order]] = np.arange(1, len(rows) + 1)
        return Results(_running_greatest(values, codes, groups, is_max=self._is_last))


def _running_greatest(values: pl.Series, codes: Int64s, groups: Groups, *, is_max: bool) -> pl.Series:
    """Return after each row the value of the greatest, or smallest, code of its group so far; code 0 is no value."""
    if not is_max:
        codes = np.where(codes > 0, int(codes.max(initial=0)) + 1 - codes, 0)
    holders = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int64)
    holders[codes] = np.arange(len(codes))
    best = groups.maxima(codes)
    found = values.gather(holders[best])
    return found if best.all() else found.set(pl.Series(best == 0), None)
