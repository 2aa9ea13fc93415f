"""The aggregates of one operator: lifting records to partials, merging them, reading results off.

Every result is the same however its records were cut into batches and partials. A partial's columns are prefixed ``a<i>.`` by the
place of the aggregate. Knows nothing of windows or state. What each aggregate keeps is in the modules beside, first ``accumulators``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.errors import InvariantBroken
from engine.expressions.aggregates.aggregates import ENTRIES, MAX_TOP_K, AggregateFunction, is_undoable, result_type
from engine.expressions.expressions import Scalar, compile_scalar
from engine.expressions.limits import MAX_COLLECTED_BYTES, MAX_COLLECTED_VALUES, MAX_DISTINCT_BYTES, MAX_DISTINCT_VALUES
from engine.expressions.types.types import BIGINT, STRING, ColumnType, Schema
from engine.expressions.values.operands import Operand, cast
from engine.frames.evaluation import Evaluation
from engine.frames.evaluation_errors import GapCounter
from engine.frames.frames import TS, Counters, constant
from engine.operators.aggregation.accumulators.accumulators import Accumulator, Count, Extreme, Pick, PickBy, Records, Results
from engine.operators.aggregation.accumulators.capacity import Most, Room
from engine.operators.aggregation.accumulators.frequency_readings import OnlyValue, Percentile
from engine.operators.aggregation.accumulators.latest_values import LatestValues
from engine.operators.aggregation.accumulators.list_accumulators import (
    Collected,
    Collection,
    DistinctCount,
    Frequencies,
    Texts,
    trace_mark,
)
from engine.operators.aggregation.accumulators.marks import Marks
from engine.operators.aggregation.accumulators.sums import Correlation, Deviation, ListSum, Sum
from engine.operators.aggregation.accumulators.tops import Top, TopRows
from engine.operators.aggregation.accumulators.undoable_lists import UndoableCollection
from engine.plan.operators.aggregation import AggregateColumn
from engine.state.sorted.running import Groups
from engine.state.sorted.sorted_search import distinct

FEW_ROWS: Final = 1_024
"""Of so many finding out whether they differ costs less than the plan of a query that merges them; of more it would only be done twice."""


class Aggregates:
    """All aggregates of one operator.

    Args:
        columns: the aggregates in output order.
        schema: the columns their arguments are over.
        with_undo: records may be taken out again (A1): partials keep what that needs, all aggregates must be undoable.
    """

    def __init__(self, columns: Sequence[AggregateColumn], schema: Schema, *, with_undo: bool = False) -> None:
        self._names = [column.name for column in columns]
        given: list[tuple[str, pl.Expr]] = []
        self._accumulators: list[Accumulator] = []
        self._with_undo = with_undo
        self._scalars = [compile_scalar(text, schema) for column in columns for text in column.arguments]
        for i, column in enumerate(columns):
            if with_undo and not is_undoable(column.function):
                raise InvariantBroken(f"{column.function} cannot be undone; the plan should have refused it")
            expression, arguments = _argument(column, schema)
            if expression is not None:
                given.append((f"a{i}", expression))
            result = result_type(column.function, arguments, column.limit)
            kind = _Kind(column, f"a{i}.", arguments, result, with_undo)
            self._accumulators.append(ACCUMULATORS[column.function](kind))
        self._arguments = Evaluation(given)
        self._is_given = [column.argument is not None for column in columns]

    @staticmethod
    def undoable(function: AggregateFunction) -> bool:
        """Whether records can be taken out of the aggregate again; the plan asks ``definition.aggregates.is_undoable``."""
        return is_undoable(function)

    @property
    def schema(self) -> tuple[tuple[str, ColumnType], ...]:
        """Name and type of each output column."""
        return tuple((name, each.type) for name, each in zip(self._names, self._accumulators, strict=True))

    def count_gaps(self, frame: pl.DataFrame, operator: str, counters: Counters) -> None:
        """Count, under the operator's name, where arguments have no value (``engine.expressions.values.evaluation_errors``)."""
        GapCounter(operator, self._scalars).count(frame, counters)

    def lift(self, frame: pl.DataFrame, positions: pl.Series, signs: NDArray[np.int64] | None = None) -> list[pl.Series]:
        """Make each record's partial: the columns of all aggregates.

        Args:
            frame: the records; with ``_ts`` where there is a first or last by event time.
            positions: their places in the total order; where two are equal the earlier row arrived first, as long as they are
                merged in that order.
            signs: 1 for a record that comes, -1 for one that goes, only with ``with_undo``; None: all come.
        """
        if signs is not None and not self._with_undo:
            raise InvariantBroken("records cannot be taken out of aggregates that were not made for it")
        times = frame[TS] if TS in frame.columns else None
        given, rows = iter(self._arguments.of(frame)), constant(1, frame.height, "rows")
        records = [Records(next(given) if is_given else rows, positions, times, signs) for is_given in self._is_given]
        return [part for each, own in zip(self._accumulators, records, strict=True) for part in each.lift(own)]

    def merge(self, columns: Sequence[str]) -> list[pl.Expr]:
        """Expressions for ``group_by().agg`` over partials with these columns."""
        return [each.merge(pl.col(name)) for each in self._accumulators for name in each.own(columns)]

    def own(self, columns: Sequence[str], *, is_added: bool) -> list[str]:
        """Those of partials' columns that are merged by adding whole numbers, or the others."""
        return [name for each in self._accumulators if each.is_added == is_added for name in each.own(columns)]

    def stay_alone(self, partials: pl.DataFrame) -> bool:
        """Whether merging partials of which no two belong together would give them back."""
        return all(each.stays_alone for each in self._accumulators) and not any(
            partials.get_column(name).null_count() for name in self.own(partials.columns, is_added=True)
        )

    def are_merged(self, partials: pl.DataFrame, hashes: str) -> bool:
        """Whether partials are a few whose groups all differ in their hash, so that merging would give them back."""
        if partials.height > FEW_ROWS or not self.stay_alone(partials):
            return False
        return len(distinct(partials.get_column(hashes).to_numpy())) == partials.height

    @property
    def places(self) -> list[str]:
        """The partials' columns that list places in the order of arrival, where a result depends on it."""
        return [each.places for each in self._accumulators if each.places is not None]

    def run_until_idle(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Call on merged partials before they are kept or merged again."""
        for each in self._accumulators:
            partials = each.run_until_idle(partials)
        return partials

    def results(self, partials: pl.DataFrame) -> tuple[list[pl.Series], Marks]:
        """Output columns of merged partials, and what is to be counted of them."""
        return self._named([each.results(partials) for each in self._accumulators], self._names)

    def running(
        self, partials: pl.DataFrame, groups: Groups, only: AbstractSet[str] | None = None
    ) -> tuple[list[pl.Series], Marks]:
        """Output columns after each row of partials, and what is to be counted of them.

        Args:
            partials: those of a group stand together in arrival order.
            groups: which ones.
            only: names of the columns that are wanted; None: all.
        """
        wanted = zip(self._names, self._accumulators, strict=True)
        results = {name: each.running(partials, groups) for name, each in wanted if only is None or name in only}
        return self._named(list(results.values()), list(results))

    @staticmethod
    def _named(results: Sequence[Results], names: Sequence[str]) -> tuple[list[pl.Series], Marks]:
        columns = [result.values.alias(name) for name, result in zip(names, results, strict=True)]
        return columns, Marks(tuple(mark for result in results for mark in result.marks))


def _argument(column: AggregateColumn, schema: Schema) -> tuple[pl.Expr | None, list[ColumnType]]:
    """Return what is aggregated, of several values a struct of them, and their types; None stands for the row itself."""
    if column.argument is None:
        return None, [BIGINT]
    scalars = [compile_scalar(text, schema) for text in column.arguments]
    values, types = [_value(each) for each in scalars], [each.type for each in scalars]
    if ENTRIES[column.function].is_of_text:
        values, types = [cast(Operand(*each), STRING).expr for each in zip(values, types, strict=True)], [STRING]
    if len(values) == 1:
        return values[0], types
    return pl.struct(value.alias(f"a{i}") for i, value in enumerate(values)), types


def _value(scalar: Scalar) -> pl.Expr:
    expr = scalar.expr
    if scalar.type.kind == "double":
        # -0.0 and 0.0 are equal: which one a minimum shows must not depend on order. (Polars optimises `x + 0.0` away.)
        expr = pl.when(expr == 0.0).then(0.0).when(expr.is_finite()).then(expr)
    return expr


class _Kind(NamedTuple):
    """What an accumulator is made from."""

    column: AggregateColumn
    prefix: str
    arguments: list[ColumnType]
    result: ColumnType
    with_undo: bool

    @property
    def argument(self) -> ColumnType:
        return self.arguments[0]

    @property
    def keeps_nulls(self) -> bool:
        return self.column.options is not None and self.column.options.keeps_nulls


def _distinct(kind: _Kind) -> Accumulator:
    if kind.with_undo:
        return Frequencies(kind.prefix, kind.result, shown=None, with_undo=True)
    most = Most(kind.column.limit or MAX_DISTINCT_VALUES, MAX_DISTINCT_BYTES)
    return DistinctCount(kind.prefix, kind.result, Room(most, kind.argument))


def _top(kind: _Kind, *, is_distinct: bool = False, of_ksqldb: bool = False) -> Accumulator:
    limit = kind.column.limit
    if limit is None:
        raise InvariantBroken("top_k has no limit")
    if len(kind.arguments) == 1:
        room = Room(Most(MAX_TOP_K + 1, MAX_COLLECTED_BYTES), kind.argument)
        return Top(kind.prefix, kind.result, limit, Collected(room, is_distinct=is_distinct, is_empty_of_nothing=of_ksqldb))
    return TopRows(kind.prefix, kind.result, limit, _so_many(limit, _element(kind), is_empty_of_nothing=of_ksqldb))


def _element(kind: _Kind) -> ColumnType:
    if kind.result.element is None:
        raise InvariantBroken(f"{kind.column.function} gives no array")
    return kind.result.element


def _so_many(limit: int, element: ColumnType, *, keeps_nulls: bool = False, is_empty_of_nothing: bool) -> Collected:
    """Return a collection of so many values; only one that ends before is full."""
    room, marked = (Room(Most(most, MAX_COLLECTED_BYTES), element) for most in (limit, limit + 1))
    return Collected(room, keeps_nulls=keeps_nulls, is_empty_of_nothing=is_empty_of_nothing, marked=marked)


def _room(kind: _Kind) -> Room:
    return Room(Most(kind.column.limit or MAX_COLLECTED_VALUES, MAX_COLLECTED_BYTES), kind.argument)


def _collection(kind: _Kind, *, is_distinct: bool, of_ksqldb: bool = False) -> Accumulator:
    collected = Collected(_room(kind), is_distinct, keeps_nulls=of_ksqldb, is_empty_of_nothing=of_ksqldb)
    made = UndoableCollection if kind.with_undo else Collection
    return made(kind.prefix, kind.result, collected)


def _picked(kind: _Kind, *, is_last: bool, is_by_time: bool, of_ksqldb: bool = False) -> Accumulator:
    if kind.column.limit is None:
        return Pick(kind.prefix, kind.result, is_last=is_last, is_by_time=is_by_time, keeps_nulls=kind.keeps_nulls)
    made = LatestValues if is_last else Collection
    collected = _so_many(kind.column.limit, kind.argument, keeps_nulls=kind.keeps_nulls, is_empty_of_nothing=of_ksqldb)
    return made(kind.prefix, kind.result, collected)


def _total(kind: _Kind, *, is_mean: bool, of_ksqldb: bool = False) -> Accumulator:
    return Sum(
        kind.prefix,
        kind.result,
        kind.argument,
        is_mean=is_mean,
        is_zero_when_emptied=kind.with_undo,
        is_zero_of_nothing=of_ksqldb,
    )


def _total_of_lists(kind: _Kind, *, of_ksqldb: bool = False) -> Accumulator:
    element = kind.argument.element
    if element is None:
        raise InvariantBroken("sum_list is of no list")
    return ListSum(
        kind.prefix, kind.result, element, is_mean=False, is_zero_when_emptied=kind.with_undo, is_zero_of_nothing=of_ksqldb
    )


def _deviation(kind: _Kind, *, is_root: bool, of_few: float | None = None) -> Accumulator:
    return Deviation(kind.prefix, kind.result, kind.argument, is_root=is_root, of_few=of_few)


def _percentile(kind: _Kind, *, is_approximate: bool = False) -> Accumulator:
    written = None if kind.column.options is None else kind.column.options.fraction
    fraction = _MIDDLE if written is None else float(written)
    room = Room(Most(kind.column.limit or MAX_DISTINCT_VALUES, MAX_DISTINCT_BYTES), BIGINT)
    return Percentile(kind.prefix, kind.result, room, fraction=fraction, is_approximate=is_approximate, with_undo=kind.with_undo)


def _histogram(kind: _Kind, *, of_ksqldb: bool = False) -> Accumulator:
    return Frequencies(kind.prefix, kind.result, shown=_room(kind), with_undo=kind.with_undo, is_empty_of_nothing=of_ksqldb)


def _only(kind: _Kind) -> Accumulator:
    room = Room(Most(_SEVERAL, MAX_COLLECTED_BYTES), ColumnType("struct", fields=(("x", kind.argument),)))
    return OnlyValue(kind.prefix, kind.result, shown=room, with_undo=kind.with_undo)


_MIDDLE: Final = 0.5
"""What ``median`` is a percentile of."""

_SEVERAL: Final = 2
"""Values of ``attr`` that are as good as any more."""

ACCUMULATORS: Final[dict[AggregateFunction, Callable[[_Kind], Accumulator]]] = {
    "count": lambda kind: Count(kind.prefix, kind.result),
    "count_distinct": _distinct,
    "sum": partial(_total, is_mean=False),
    "sum_list": _total_of_lists,
    "avg": partial(_total, is_mean=True),
    "stddev": partial(_deviation, is_root=True),
    "variance": partial(_deviation, is_root=False),
    "correlation": lambda kind: Correlation(kind.prefix, kind.result, kind.arguments, is_nan=False),
    "median": _percentile,
    "percentile": _percentile,
    "approx_percentile": partial(_percentile, is_approximate=True),
    "min": lambda kind: Extreme(kind.prefix, kind.result, is_max=False),
    "max": lambda kind: Extreme(kind.prefix, kind.result, is_max=True),
    "min_by": lambda kind: PickBy(kind.prefix, kind.result, is_max=False),
    "max_by": lambda kind: PickBy(kind.prefix, kind.result, is_max=True),
    "first": partial(_picked, is_last=False, is_by_time=True),
    "last": partial(_picked, is_last=True, is_by_time=True),
    "first_by_arrival": partial(_picked, is_last=False, is_by_time=False),
    "last_by_arrival": partial(_picked, is_last=True, is_by_time=False),
    "attr": _only,
    "collect_list": partial(_collection, is_distinct=False),
    "collect_set": partial(_collection, is_distinct=True),
    "top_k": _top,
    "top_k_distinct": partial(_top, is_distinct=True),
    "histogram": _histogram,
    "ksql_sum": partial(_total, is_mean=False, of_ksqldb=True),
    "ksql_sum_list": partial(_total_of_lists, of_ksqldb=True),
    "ksql_avg": partial(_total, is_mean=True, of_ksqldb=True),
    "ksql_stddev_samp": partial(_deviation, is_root=False, of_few=0.0),
    "ksql_stddev_sample": partial(_deviation, is_root=True, of_few=0.0),
    "ksql_correlation": lambda kind: Correlation(kind.prefix, kind.result, kind.arguments, is_nan=True),
    "ksql_collect_list": partial(_collection, is_distinct=False, of_ksqldb=True),
    "ksql_collect_set": partial(_collection, is_distinct=True, of_ksqldb=True),
    "ksql_topk": partial(_top, of_ksqldb=True),
    "ksql_topkdistinct": partial(_top, is_distinct=True, of_ksqldb=True),
    "ksql_earliest_by_offset": partial(_picked, is_last=False, is_by_time=False, of_ksqldb=True),
    "ksql_latest_by_offset": partial(_picked, is_last=True, is_by_time=False, of_ksqldb=True),
    "ksql_histogram": partial(_histogram, of_ksqldb=True),
    "concat": lambda kind: Texts(kind.prefix, None),
    "trace": lambda kind: Texts(kind.prefix, "0", trace_mark),
}
"""How each aggregate is computed."""
