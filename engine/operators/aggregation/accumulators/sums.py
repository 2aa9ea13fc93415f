"""Exact sums and moments: ``sum``, ``avg``, ``stddev``, ``variance``, ``correlation``. As in ``accumulators``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.expressions.types.types import DOUBLE, ColumnType
from engine.frames.list_columns import flat
from engine.operators.aggregation.accumulators import exact_moments, exact_sum
from engine.operators.aggregation.accumulators.accumulators import Accumulator, Int64s, Records, Results
from engine.state.sorted.running import Groups

_CARRY_AT: Final = 1 << 61
"""Limb sums are carried over from here: two partials below it can always be added. Running sums start from the few that are held."""


class LimbAccumulator(Accumulator):
    """A number of values beside sums kept as limbs: a column ``<family><q>`` for each limb q of each family of sums."""

    is_added = True
    families: Sequence[str]

    def merge(self, column: pl.Expr) -> pl.Expr:
        return column.sum()

    def run_until_idle(self, partials: pl.DataFrame) -> pl.DataFrame:
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
        is_zero_of_nothing: the sum and the mean of a group without values are 0.
    """

    families = ("l",)

    def __init__(
        self,
        prefix: str,
        result: ColumnType,
        argument: ColumnType,
        *,
        is_mean: bool,
        is_zero_when_emptied: bool = False,
        is_zero_of_nothing: bool = False,
    ) -> None:
        super().__init__(prefix, result)
        self._argument = argument
        self._is_mean = is_mean
        self._counts_rows = is_zero_when_emptied and not is_mean and not is_zero_of_nothing
        self._is_zero_of_nothing = is_zero_of_nothing

    def lift(self, records: Records) -> list[pl.Series]:
        columns = [pl.Series(f"{self._prefix}n", self.counted(records))]
        if self._counts_rows:
            rows = np.ones(len(records.values), np.int64) if records.signs is None else records.signs
            columns.append(pl.Series(f"{self._prefix}r", rows))
        return [*columns, *self.columns(self.added(records.values), "l", records.signs)]

    def counted(self, records: Records) -> Int64s:
        """Return how many values each record adds."""
        return records.counted()

    def added(self, values: pl.Series) -> exact_sum.Limbs:
        """Return what each record adds."""
        return limbs_of(values, self._argument)

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
            values, is_valid = self._decimals(limbs, rows)
        elif self.type.is_integer:
            totals, is_valid = exact_sum.to_int64(limbs, rows)
            if self.type.kind == "int":
                is_valid &= totals == totals.astype(np.int32)
            values = pl.Series(totals).cast(self.type.polars, strict=False)
        else:
            doubles, is_valid = exact_sum.to_double(limbs, rows, exact_sum.DOUBLE_UNIT)
            values = pl.Series(doubles)
        is_shown = is_valid if self._is_zero_of_nothing else (counts > 0) & is_valid
        if self._counts_rows:
            is_shown |= self.counts(partials, groups, "r") == 0  # without values the limbs are 0, and so is the sum
        shown = values if is_shown.all() else values.set(pl.Series(~is_shown), None)
        return Results(shown, None if is_valid.all() else ~is_valid)

    def _decimals(self, limbs: exact_sum.Limbs, rows: int) -> tuple[pl.Series, NDArray[np.bool_]]:
        values, is_valid = exact_sum.to_decimal(limbs, rows, self.type.scale or 0)
        if values.dtype == self.type.polars:
            return values, is_valid
        fitting = values.cast(self.type.polars, strict=False)
        return fitting, is_valid & fitting.is_not_null().to_numpy()

    def _means(self, counts: Int64s, limbs: exact_sum.Limbs) -> tuple[pl.Series, NDArray[np.bool_]]:
        unit = exact_sum.DOUBLE_UNIT if self._argument.kind == "double" else exact_sum.INTEGER_UNIT
        totals, is_valid = exact_sum.to_double(limbs, len(counts), unit)
        scale = 10.0 ** (self._argument.scale or 0)
        with np.errstate(invalid="ignore"):
            return pl.Series(totals / scale / np.maximum(counts, 1)), is_valid


class ListSum(Sum):
    """``sum_list``: the sum of all elements of arrays; nulls among them are passed over."""

    def counted(self, records: Records) -> Int64s:
        elements, rows = self._elements(records.values)
        found = np.bincount(rows[elements.is_not_null().to_numpy()], minlength=len(records.values)).astype(np.int64)
        return found if records.signs is None else found * records.signs

    def added(self, values: pl.Series) -> exact_sum.Limbs:
        elements, rows = self._elements(values)
        limbs: exact_sum.Limbs = {}
        for q, limb in limbs_of(elements, self._argument).items():
            limbs[q] = np.zeros(len(values), np.int64)
            np.add.at(limbs[q], rows, limb)
        return limbs

    def _elements(self, values: pl.Series) -> tuple[pl.Series, Int64s]:
        is_list = values.is_not_null()
        elements, rows = flat(values.filter(is_list))
        if self._argument.kind == "double":
            elements = elements.set(~elements.is_finite().fill_null(value=True), None)
        return elements, np.flatnonzero(is_list.to_numpy())[rows]


class Deviation(LimbAccumulator):
    """``stddev`` and ``variance`` of a sample: count, exact sum and exact sum of squares.

    Args:
        prefix: of its columns.
        result: the type it gives.
        argument: the type of the values.
        is_root: ``stddev``.
        of_few: what it gives of fewer than two values.
    """

    families = ("l", "s")

    def __init__(
        self, prefix: str, result: ColumnType, argument: ColumnType, *, is_root: bool, of_few: float | None = None
    ) -> None:
        super().__init__(prefix, result)
        self._argument = argument
        self._is_root = is_root
        self._of_few = of_few

    def lift(self, records: Records) -> list[pl.Series]:
        values = records.values
        limbs = limbs_of(values, self._argument)
        squares = _squares(values, limbs, self._argument)
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
        if self._of_few is not None:
            shown = shown.set(pl.Series(counts < 2), self._of_few)
        return Results(shown, is_overflow if is_overflow.any() else None)


class Correlation(LimbAccumulator):
    """``correlation``: of two columns the count, the exact sums, and those of x², y² and (x + y)², which holds x·y.

    The argument is a struct of both, ``a0`` and ``a1``. Where both are whole numbers, or decimals of one scale, they are taken as such,
    else as doubles.

    Args:
        prefix: of its columns.
        result: the type it gives.
        arguments: the types of the values.
        is_nan: it is NaN, not null, where one column does not vary.
    """

    families = ("l", "m", "s", "t", "u")

    def __init__(self, prefix: str, result: ColumnType, arguments: Sequence[ColumnType], *, is_nan: bool) -> None:
        super().__init__(prefix, result)
        first, second = arguments
        is_exact = (first.is_integer and second.is_integer) or (
            first.kind == second.kind == "decimal" and first.scale == second.scale
        )
        self._arguments = (first, second) if is_exact else (DOUBLE, DOUBLE)
        self._is_nan = is_nan

    def lift(self, records: Records) -> list[pl.Series]:
        both = [records.values.struct.field(name) for name in ("a0", "a1")]
        is_none = both[0].is_null() | both[1].is_null()
        counts = (~is_none).to_numpy().astype(np.int64)
        counts = counts if records.signs is None else counts * records.signs
        columns = [pl.Series(f"{self._prefix}n", counts)]
        own = []
        for values, kind, (family, squares) in zip(both, self._arguments, (("l", "s"), ("m", "t")), strict=True):
            values = values.set(is_none, None)
            values = values.cast(pl.Float64) if kind.kind == "double" else values
            own.append(limbs_of(values, kind))
            columns += self.columns(own[-1], family, records.signs)
            columns += self.columns(_squares(values, own[-1], kind), squares, records.signs)
        together = exact_moments.squared(exact_sum.added(*own), len(counts))
        return [*columns, *self.columns(together, "u", records.signs)]

    def results(self, partials: pl.DataFrame) -> Results:
        return self._read(partials, None)

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        return self._read(partials, groups)

    def _read(self, partials: pl.DataFrame, groups: Groups | None) -> Results:
        counts = self.counts(partials, groups)
        sums = [self.limbs(partials, family, groups) for family in self.families]
        values, is_known = exact_moments.correlations(counts, sums)
        if self._is_nan or is_known.all():
            return Results(pl.Series(values))
        return Results(pl.Series(values).set(pl.Series(~is_known), None))


def _squares(values: pl.Series, limbs: exact_sum.Limbs, kind: ColumnType) -> exact_sum.Limbs:
    if kind.kind == "double":
        return exact_moments.double_squares(values.fill_null(0.0).to_numpy())
    return exact_moments.squared(limbs, len(values))
