"""What an entry of the list of aggregates says, and how the types of arguments decide the type of the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from engine.expressions.documented import JsonValue
from engine.expressions.types.types import BIGINT, DOUBLE, MAX_DECIMAL_PRECISION, STRING, ColumnType, decimal, parse_type
from engine.expressions.values.operands import ExpressionInvalid

AggregateName = Literal[
    "count", "count_distinct", "sum", "sum_list", "avg", "min", "max", "min_by", "max_by", "stddev", "variance", "correlation", "median",
    "percentile", "approx_percentile", "first", "last", "first_by_arrival", "last_by_arrival", "attr", "collect_list", "collect_set",
    "top_k", "top_k_distinct", "histogram", "ksql_sum", "ksql_sum_list", "ksql_avg", "ksql_stddev_samp", "ksql_stddev_sample",
    "ksql_correlation", "ksql_collect_list", "ksql_collect_set", "ksql_topk", "ksql_topkdistinct", "ksql_earliest_by_offset",
    "ksql_latest_by_offset", "ksql_histogram",
]  # fmt: skip
AggregateFunction = Literal[AggregateName, "concat", "trace"]
"""Those that a definition may name, and two that serve the conformance corpora."""

_ORDERED = ("int", "bigint", "double", "decimal", "string", "bytes", "date", "time", "timestamp")


@dataclass(frozen=True)
class AggregateExample:
    """A call, the values of x in a group in their order (of event time and arrival alike), and what it gives; tests run it.

    Attributes:
        type: of x.
    """

    call: str
    values: tuple[JsonValue, ...]
    gives: JsonValue
    type: str = "int"


class Typed(NamedTuple):
    """A call whose arguments have been compiled.

    Attributes:
        function: which aggregate.
        arguments: types of the values that it takes of each record.
        limit: the number that was written behind them, None where there is none.
    """

    function: AggregateFunction
    arguments: tuple[ColumnType, ...]
    limit: int | None = None

    @property
    def argument(self) -> ColumnType:
        """Type of the first value."""
        return self.arguments[0]


@dataclass(frozen=True)
class Aggregate:
    """One entry of the list: everything there is to say of an aggregate.

    Attributes:
        name: as it is called; of ``count_distinct`` the call is ``count(distinct x)``.
        takes: its arguments, in words.
        result: type of its result, in words.
        doc: what it gives.
        result_type: from the types of the arguments to the type of the result; refuses types that it does not work on.
        is_undoable: whether a row can be taken out of it again, as an aggregation over a table must (A1). The smallest of a group's
            values, for one, cannot be known once the smallest has gone, unless all are kept.
        is_growing: whether its result takes more room with every record (``engine.plan.model``).
        is_of_text: whether it takes its argument as text.
        aliases: further names of the same.
        written: how it is written, where that is not ``name(x)``.
        takes_rows: ``*`` in place of an argument counts rows.
        of_distinct: the aggregate that ``name(distinct x)`` is.
        values: how many values it takes of each record.
        takes_further: further values may follow.
        largest_k: a number may stand behind the values, written out, 1 to this.
        needs_k: the number must stand there.
        takes_fraction: a number from 0 to 1 stands behind the values, written out.
        takes_ignore_nulls: TRUE or FALSE may stand last.
        ksqldb: its names in definitions of the dialect ksqldb, in capital letters: a call of one of them there means this entry.
        is_nested_in_ksqldb: ksqlDB keeps arrays, maps or structs for it, and so cannot compute it of formats that have none.
    """

    name: AggregateFunction
    takes: str
    result: str
    doc: str
    result_type: Callable[[Typed], ColumnType]
    example: AggregateExample
    is_undoable: bool = False
    is_growing: bool = False
    is_of_text: bool = False
    aliases: tuple[str, ...] = ()
    written: str | None = None
    takes_rows: bool = False
    of_distinct: AggregateName | None = None
    values: int = 1
    takes_further: bool = False
    largest_k: int | None = None
    needs_k: bool = False
    takes_fraction: bool = False
    takes_ignore_nulls: bool = False
    ksqldb: tuple[str, ...] = ()
    is_nested_in_ksqldb: bool = False

    @property
    def form(self) -> str:
        """How it is written."""
        return self.written or f"{self.name}(x)"


def whole_number(_: Typed) -> ColumnType:
    """Of anything a number of values."""
    return BIGINT


def same(call: Typed) -> ColumnType:
    """Of anything one of the values."""
    return call.argument


def listed(call: Typed) -> ColumnType:
    """Of anything some of the values."""
    result = ColumnType("array", element=call.argument)
    try:
        return parse_type(str(result))
    except ValueError as error:
        detail = f"{call.function} would give a type that cannot be declared: {error}"
        raise ExpressionInvalid("type_mismatch", detail) from error


def one_or_listed(call: Typed) -> ColumnType:
    """Of anything one of the values, or with a number so many of them."""
    return same(call) if call.limit is None else listed(call)


def distinct_count(call: Typed) -> ColumnType:
    """Of what can be compared a number of values."""
    _check_comparable(call.argument, "distinct ones cannot be counted")
    return BIGINT


def distinct_list(call: Typed) -> ColumnType:
    """Of what can be compared some of the values."""
    _check_comparable(call.argument, "distinct ones cannot be collected")
    return listed(call)


def total(call: Typed) -> ColumnType:
    """Of numbers their sum, with as much room as there is."""
    argument = call.argument
    _check_numeric(call.function, argument)
    if argument.kind == "double":
        return DOUBLE
    return BIGINT if argument.is_integer else decimal(MAX_DECIMAL_PRECISION, argument.scale or 0)


def same_number(call: Typed) -> ColumnType:
    """Of numbers their sum, in their own type."""
    _check_numeric(call.function, call.argument)
    return call.argument


def total_of_lists(call: Typed) -> ColumnType:
    """Of arrays of numbers the sum of all."""
    return total(call._replace(arguments=(_element(call),)))


def same_number_of_lists(call: Typed) -> ColumnType:
    """Of arrays of numbers the sum of all, in their own type."""
    return same_number(call._replace(arguments=(_element(call),)))


def _element(call: Typed) -> ColumnType:
    if call.argument.kind != "array" or call.argument.element is None:
        raise ExpressionInvalid("type_mismatch", f"{call.function} works on arrays of numbers, not {call.argument}")
    return call.argument.element


def moment(call: Typed) -> ColumnType:
    """Of numbers a double."""
    for argument in call.arguments:
        _check_numeric(call.function, argument)
    return DOUBLE


def extreme(call: Typed) -> ColumnType:
    """Of what has an order one of the values."""
    _check_ordered(call.function, call.argument)
    return call.argument


def by_extreme(call: Typed) -> ColumnType:
    """Of anything that value which stands beside the smallest or greatest of what has an order."""
    _check_ordered(call.function, call.arguments[1])
    return call.argument


def greatest(call: Typed) -> ColumnType:
    """Of what has an order some of the values, or structs of them and of what stood beside them."""
    _check_ordered(call.function, call.argument)
    if len(call.arguments) == 1:
        return ColumnType("array", element=call.argument)
    names = ("sort_col", *(f"col{i}" for i in range(len(call.arguments) - 1)))
    return listed(call._replace(arguments=(ColumnType("struct", fields=tuple(zip(names, call.arguments, strict=True))),)))


def frequencies(call: Typed) -> ColumnType:
    """Of what has a text a map of texts and counts."""
    if call.argument.is_nested or call.argument.kind == "bytes":
        raise ExpressionInvalid("type_mismatch", f"{call.function} counts values by their text, and {call.argument} has none")
    return ColumnType("map", key=STRING, value=BIGINT)


def text(_: Typed) -> ColumnType:
    """Of anything a text."""
    return STRING


def _check_comparable(argument: ColumnType, consequence: str) -> None:
    if argument.has_map:
        raise ExpressionInvalid("type_mismatch", f"{argument}: the entries of a map have no order, so {consequence}")


def _check_numeric(function: str, argument: ColumnType) -> None:
    if not argument.is_numeric:
        raise ExpressionInvalid("type_mismatch", f"{function} works on numbers, not {argument}")


def _check_ordered(function: str, argument: ColumnType) -> None:
    if argument.kind not in _ORDERED:
        raise ExpressionInvalid("type_mismatch", f"{function} needs values that have an order, not {argument}")
