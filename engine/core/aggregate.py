"""Aggregates as mergeable partials: every result is the same however its records were cut into batches and partials.

A record is *lifted* to a partial of its own; partials of the same group *merge* (associative, exact); *results* reads the output
value off a partial; *running* gives the outputs after each row of sorted partials, for EMIT CHANGES. A partial's columns are
prefixed ``a<i>.`` by the place of the aggregate. Knows nothing of windows, time or state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.core import exact_sum
from engine.core.running import Groups, codes_of
from engine.definition.aggregates import result_type
from engine.definition.expressions import compile_scalar
from engine.definition.types import BIGINT, STRING, ColumnType, Schema
from engine.plan.model import AggregateColumn

_CARRY_AT: Final = 1 << 61
"""Limb sums are carried over from here: two partials below it can always be added, and running sums start from one of them."""


@dataclass(frozen=True, slots=True)
class Results:
    """Output values of one aggregate, and where a sum did not fit its type (the value is null there)."""

    values: pl.Series
    is_overflow: NDArray[np.bool_] | None = None


class Records(NamedTuple):
    """The evaluated argument of one aggregate, and the records' places in the total order."""

    values: pl.Series
    positions: pl.Series


class Accumulator(ABC):
    """One aggregate of a group."""

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


class _Count(Accumulator):
    """``count(*)`` and ``count(x)``."""

    def lift(self, records: Records) -> list[pl.Series]:
        return [records.values.is_not_null().cast(pl.Int64).alias(f"{self._prefix}n")]

    def merge(self, column: pl.Expr) -> pl.Expr:
        return column.sum()

    def results(self, partials: pl.DataFrame) -> Results:
        return Results(partials[f"{self._prefix}n"])

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        return Results(pl.Series(groups.sums(partials[f"{self._prefix}n"].to_numpy())))


class _Sum(Accumulator):
    """``sum`` and ``avg``: the number of values and the limbs of their exact sum; of nothing, null."""

    def __init__(self, prefix: str, result: ColumnType, argument: ColumnType, is_mean: bool) -> None:
        super().__init__(prefix, result)
        self._argument = argument
        self._is_mean = is_mean

    def lift(self, records: Records) -> list[pl.Series]:
        argument = records.values
        count = argument.is_not_null().cast(pl.Int64).alias(f"{self._prefix}n")
        if self._argument.kind == "decimal":
            limbs = exact_sum.decimal_limbs(argument)
        elif self._argument.is_integer:
            limbs = exact_sum.int_limbs(argument.cast(pl.Int64).fill_null(0).to_numpy())
        else:
            limbs = exact_sum.double_limbs(argument.fill_null(0.0).to_numpy())
        return [count, *self._columns(limbs)]

    def merge(self, column: pl.Expr) -> pl.Expr:
        return column.sum()

    def settle(self, partials: pl.DataFrame) -> pl.DataFrame:
        limbs = self._limbs(partials)
        if not any(len(limb) and max(int(limb.max()), -int(limb.min())) >= _CARRY_AT for limb in limbs.values()):
            return partials
        kept = [name for name in partials.columns if not name.startswith(f"{self._prefix}l")]
        return partials.select(kept).with_columns(self._columns(exact_sum.carried(limbs)))

    def results(self, partials: pl.DataFrame) -> Results:
        return self._read(partials[f"{self._prefix}n"].to_numpy(), self._limbs(partials))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        limbs = {q: groups.sums(limb) for q, limb in self._limbs(partials).items()}
        return self._read(groups.sums(partials[f"{self._prefix}n"].to_numpy()), limbs)

    def _columns(self, limbs: exact_sum.Limbs) -> list[pl.Series]:
        return [pl.Series(f"{self._prefix}l{q}", limb) for q, limb in limbs.items()]

    def _limbs(self, partials: pl.DataFrame) -> exact_sum.Limbs:
        start = len(self._prefix) + 1
        names = [name for name in self.own(partials.columns) if name[start - 1] == "l"]
        return {int(name[start:]): partials[name].fill_null(0).to_numpy() for name in names}

    def _read(self, counts: NDArray[np.int64], limbs: exact_sum.Limbs) -> Results:
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
        shown = values if is_shown.all() else values.set(pl.Series(~is_shown), None)
        return Results(shown, None if is_valid.all() else ~is_valid)

    def _means(self, counts: NDArray[np.int64], limbs: exact_sum.Limbs) -> tuple[pl.Series, NDArray[np.bool_]]:
        unit = exact_sum.DOUBLE_UNIT if self._argument.kind == "double" else exact_sum.INTEGER_UNIT
        totals, is_valid = exact_sum.to_double(limbs, len(counts), unit)
        scale = 10.0 ** (self._argument.scale or 0)
        with np.errstate(invalid="ignore"):
            return pl.Series(totals / scale / np.maximum(counts, 1)), is_valid


class _Extreme(Accumulator):
    """``min`` and ``max`` of any ordered type; of nothing, null."""

    def __init__(self, prefix: str, result: ColumnType, is_max: bool) -> None:
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
        codes = codes_of(values)
        if not self._is_max:
            codes = np.where(codes > 0, int(codes.max(initial=0)) + 1 - codes, 0)
        holders = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int64)
        holders[codes] = np.arange(len(codes))
        best = groups.maxima(codes)
        found = values.gather(holders[best])
        return Results(found if best.all() else found.set(pl.Series(best == 0), None))


class _CountDistinct(Accumulator):
    """``count(distinct x)``, exact: a partial is the list of its distinct values."""

    def __init__(self, prefix: str, result: ColumnType) -> None:
        super().__init__(prefix, result)
        self._name = f"{prefix}d"

    def lift(self, records: Records) -> list[pl.Series]:
        return [_one_element_lists(records.values).alias(self._name)]

    def merge(self, column: pl.Expr) -> pl.Expr:
        return _joined(column).unique(maintain_order=True)

    def results(self, partials: pl.DataFrame) -> Results:
        return Results(partials[self._name].list.len().cast(pl.Int64))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        lists = partials[self._name]
        rows = np.repeat(np.arange(len(lists)), lists.list.len().to_numpy())
        codes = codes_of(lists.list.explode(keep_nulls=False, empty_as_null=False))
        pairs = groups.ids[rows] * (int(codes.max(initial=0)) + 1) + codes
        _, first_seen = np.unique(pairs, return_index=True)
        return Results(pl.Series(groups.sums(np.bincount(rows[first_seen], minlength=len(lists)).astype(np.int64))))


class _Concat(Accumulator):
    """``concat``: strings in arrival order, for the conformance corpora. A partial is the lists of positions and texts."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix, STRING)
        self._positions, self._texts = f"{prefix}p", f"{prefix}t"

    def lift(self, records: Records) -> list[pl.Series]:
        texts, places = records
        if texts.null_count():
            places = places.set(texts.is_null(), None)
        return [_one_element_lists(places).alias(self._positions), _one_element_lists(texts).alias(self._texts)]

    def merge(self, column: pl.Expr) -> pl.Expr:
        return _joined(column)

    def results(self, partials: pl.DataFrame) -> Results:
        joined: list[str | None] = []
        for places, texts in zip(partials[self._positions].to_list(), partials[self._texts].to_list(), strict=True):
            in_order = sorted(zip(places, texts, strict=True))
            joined.append("".join(text for _, text in in_order) if in_order else None)
        return Results(pl.Series(joined, dtype=pl.String))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        own = self.results(partials).values.to_list()
        for row in range(1, len(own)):
            if groups.firsts[row] != row:
                own[row] = own[row - 1] if own[row] is None else (own[row - 1] or "") + own[row]
        return Results(pl.Series(own, dtype=pl.String))


def _one_element_lists(values: pl.Series) -> pl.Series:
    """``[x]`` for each value, ``[]`` for null."""
    return values.to_frame("v").select(pl.concat_list("v").list.drop_nulls()).to_series()


def _joined(lists: pl.Expr) -> pl.Expr:
    return lists.list.explode(keep_nulls=False, empty_as_null=False)


class Aggregates:
    """All aggregates of one operator.

    Args:
        columns: the aggregates in output order.
        schema: the columns their arguments are over.
    """

    def __init__(self, columns: Sequence[AggregateColumn], schema: Schema) -> None:
        self._names = [column.name for column in columns]
        self._arguments: list[pl.Expr] = []
        self._accumulators: list[Accumulator] = []
        for i, column in enumerate(columns):
            expression, argument = _argument(column, schema)
            self._arguments.append(expression.alias(f"a{i}"))
            self._accumulators.append(_accumulator(column, f"a{i}.", argument))

    @property
    def schema(self) -> tuple[tuple[str, ColumnType], ...]:
        """Name and type of each output column."""
        return tuple((name, each.type) for name, each in zip(self._names, self._accumulators, strict=True))

    def lift(self, frame: pl.DataFrame, positions: pl.Series) -> list[pl.Series]:
        """Make each record's partial: the columns of all aggregates."""
        if not self._arguments:
            return []
        records = [Records(argument, positions) for argument in frame.select(self._arguments).iter_columns()]
        return [part for each, own in zip(self._accumulators, records, strict=True) for part in each.lift(own)]

    def merge(self, columns: Sequence[str]) -> list[pl.Expr]:
        """Expressions for ``group_by().agg`` over partials with these columns."""
        return [each.merge(pl.col(name)) for each in self._accumulators for name in each.own(columns)]

    def settle(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Call on merged partials before they are kept or merged again."""
        for each in self._accumulators:
            partials = each.settle(partials)
        return partials

    def results(self, partials: pl.DataFrame) -> tuple[list[pl.Series], list[NDArray[np.bool_]]]:
        """Output columns of merged partials, and masks of the sums that overflowed."""
        return self._named([each.results(partials) for each in self._accumulators])

    def running(self, partials: pl.DataFrame, groups: Groups) -> tuple[list[pl.Series], list[NDArray[np.bool_]]]:
        """Output columns after each row of sorted partials, and masks of the sums that overflowed."""
        return self._named([each.running(partials, groups) for each in self._accumulators])

    def _named(self, results: list[Results]) -> tuple[list[pl.Series], list[NDArray[np.bool_]]]:
        columns = [result.values.alias(name) for name, result in zip(self._names, results, strict=True)]
        return columns, [result.is_overflow for result in results if result.is_overflow is not None]


def _argument(column: AggregateColumn, schema: Schema) -> tuple[pl.Expr, ColumnType]:
    if column.argument is None:
        return pl.repeat(1, pl.len(), dtype=pl.Int64), BIGINT
    scalar = compile_scalar(column.argument, schema)
    if scalar.type.kind != "double":
        return scalar.expr, scalar.type
    # -0.0 and 0.0 are equal: which one a minimum shows must not depend on order. (Polars optimises `x + 0.0` away.)
    is_zero, is_finite = scalar.expr == 0.0, scalar.expr.is_finite()
    return pl.when(is_zero).then(0.0).when(is_finite).then(scalar.expr), scalar.type


def _accumulator(column: AggregateColumn, prefix: str, argument: ColumnType) -> Accumulator:
    if column.function == "concat":
        return _Concat(prefix)
    result = result_type(column.function, argument)
    match column.function:
        case "count":
            return _Count(prefix, result)
        case "count_distinct":
            return _CountDistinct(prefix, result)
        case "sum" | "avg":
            return _Sum(prefix, result, argument, is_mean=column.function == "avg")
        case "min" | "max":
            return _Extreme(prefix, result, is_max=column.function == "max")
