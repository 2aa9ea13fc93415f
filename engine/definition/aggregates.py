"""The aggregates a group may have: how they are written, what types they give, which of them can be undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from sqlglot import exp

from engine.definition.operands import ExpressionInvalid
from engine.definition.suggestions import meant
from engine.definition.types import BIGINT, DOUBLE, MAX_DECIMAL_PRECISION, STRING, ColumnType, decimal, parse_type

AggregateName = Literal[
    "count", "count_distinct", "sum", "avg", "min", "max", "stddev", "variance", "first", "last", "first_by_arrival",
    "last_by_arrival", "collect_list", "collect_set", "top_k", "histogram",
]  # fmt: skip

MAX_TOP_K: Final = 100
"""Every change of a group repeats its k values: more than this is a list, not a top."""

FORMS = (
    "count(*), count(x), count(distinct x), sum(x), avg(x), min(x), max(x), stddev(x), variance(x), first(x), last(x), "
    "first_by_arrival(x), last_by_arrival(x), collect_list(x), collect_set(x), top_k(x, k), histogram(x)"
)

_SUPPORTED: Final[dict[str, AggregateName]] = {
    "count": "count",
    "sum": "sum",
    "avg": "avg",
    "min": "min",
    "max": "max",
    "stddev": "stddev",
    "stddev_samp": "stddev",
    "variance": "variance",
    "var_samp": "variance",
    "first": "first",
    "last": "last",
    "first_by_arrival": "first_by_arrival",
    "earliest_by_offset": "first_by_arrival",
    "last_by_arrival": "last_by_arrival",
    "latest_by_offset": "last_by_arrival",
    "collect_list": "collect_list",
    "collect_set": "collect_set",
    "top_k": "top_k",
    "topk": "top_k",
    "histogram": "histogram",
}
"""As written → which aggregate. The names of SQL and of ksqlDB mean the same ones."""

_LATER = ("median", "percentile", "stddev_pop", "var_pop")
"""Known names that come with a later release."""

AGGREGATE_NAMES = frozenset((*_SUPPORTED, *_LATER))

_UNDOABLE = frozenset(("count", "count_distinct", "sum", "avg", "stddev", "variance", "histogram", "trace"))

_ORDERED = ("int", "bigint", "double", "decimal", "string", "date", "time", "timestamp")


class WrittenAggregate(NamedTuple):
    """One aggregate call as it was written.

    Attributes:
        function: which aggregate.
        argument: the tree of what it aggregates; None for ``count(*)``.
        limit: k of ``top_k``, else None.
    """

    function: AggregateName
    argument: exp.Expr | None
    limit: int | None = None


def read_call(tree: exp.Expr) -> WrittenAggregate:
    """Read one aggregate call.

    Raises:
        ExpressionInvalid: ``not_supported_yet``, ``unknown_function``, ``type_mismatch`` or ``expression_malformed``.
    """
    if not isinstance(tree, exp.Anonymous):
        if any(node.name.lower() in AGGREGATE_NAMES for node in tree.find_all(exp.Anonymous)):
            raise ExpressionInvalid(
                "not_supported_yet", "an aggregate is one call, such as sum(x); compute from several of them in `select`"
            )
        raise ExpressionInvalid("expression_malformed", f"this is no aggregate; write one of {FORMS}")
    name, arguments = tree.name.lower(), tree.expressions
    if name in _LATER:
        raise ExpressionInvalid("not_supported_yet", f"{name} comes later; there are {FORMS}")
    function = _SUPPORTED.get(name)
    if function is None:
        near = meant(name, _SUPPORTED)
        ending = f"; there are {FORMS}" if near is None else f"; did you mean {near}?"
        raise ExpressionInvalid("unknown_function", f"there is no aggregate {name[:60]!r}{ending}")
    if function == "top_k":
        return _top_k(arguments)
    if len(arguments) != 1:
        raise ExpressionInvalid("type_mismatch", f"{name} takes one argument, not {len(arguments)}")
    argument = arguments[0]
    if isinstance(argument, exp.Star):
        if function == "count":
            return WrittenAggregate("count", None)
        raise ExpressionInvalid("type_mismatch", f"{name} takes a column, not *")
    if isinstance(argument, exp.Distinct):
        return _distinct(function, argument)
    return WrittenAggregate(function, argument)


def _distinct(function: AggregateName, argument: exp.Distinct) -> WrittenAggregate:
    if function != "count":
        raise ExpressionInvalid("not_supported_yet", f"{function}(distinct …) comes later; only count takes distinct")
    if len(argument.expressions) != 1:
        raise ExpressionInvalid("not_supported_yet", "count(distinct …) takes one expression for now; join several with ||")
    return WrittenAggregate("count_distinct", argument.expressions[0])


def _top_k(arguments: list[exp.Expr]) -> WrittenAggregate:
    if len(arguments) != 2:
        raise ExpressionInvalid("type_mismatch", f"top_k takes a column and how many, as in top_k(x, 3); not {len(arguments)}")
    argument, written = arguments
    if isinstance(argument, exp.Star | exp.Distinct):
        raise ExpressionInvalid("type_mismatch", "top_k takes a column first, as in top_k(x, 3)")
    text = written.name if isinstance(written, exp.Literal) and not written.is_string else ""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_TOP_K)) and 1 <= int(text) <= MAX_TOP_K):
        raise ExpressionInvalid("type_mismatch", f"top_k takes its k written out, 1 to {MAX_TOP_K}")
    return WrittenAggregate("top_k", argument, int(text))


def is_undoable(function: str) -> bool:
    """Whether a row can be taken out of the aggregate again, as an aggregation over a table must (A1).

    The smallest of a group's values, for one, cannot be known once the smallest has gone, unless all are kept.
    """
    return function in _UNDOABLE


def result_type(function: AggregateName, argument: ColumnType) -> ColumnType:
    """Return the type an aggregate gives.

    Raises:
        ExpressionInvalid: ``type_mismatch``: the function does not work on that type.
    """
    return _RESULT_TYPES[function](function, argument)


def _of_anything(_: str, __: ColumnType) -> ColumnType:
    return BIGINT


def _same(_: str, argument: ColumnType) -> ColumnType:
    return argument


def _list(function: str, argument: ColumnType) -> ColumnType:
    result = ColumnType("array", element=argument)
    try:
        return parse_type(str(result))
    except ValueError as error:
        raise ExpressionInvalid("type_mismatch", f"{function} would give a type that cannot be declared: {error}") from error


def _distinct_count(_: str, argument: ColumnType) -> ColumnType:
    _check_comparable(argument, "distinct ones cannot be counted")
    return BIGINT


def _distinct_list(_: str, argument: ColumnType) -> ColumnType:
    _check_comparable(argument, "distinct ones cannot be collected")
    return ColumnType("array", element=argument)


def _total(function: str, argument: ColumnType) -> ColumnType:
    _check_numeric(function, argument)
    if argument.kind == "double":
        return DOUBLE
    return BIGINT if argument.is_integer else decimal(MAX_DECIMAL_PRECISION, argument.scale or 0)


def _moment(function: str, argument: ColumnType) -> ColumnType:
    _check_numeric(function, argument)
    return DOUBLE


def _extreme(function: str, argument: ColumnType) -> ColumnType:
    if argument.kind not in _ORDERED:
        raise ExpressionInvalid("type_mismatch", f"{function} needs values that have an order, not {argument}")
    return argument


def _greatest(function: str, argument: ColumnType) -> ColumnType:
    return ColumnType("array", element=_extreme(function, argument))


def _frequencies(function: str, argument: ColumnType) -> ColumnType:
    if argument.is_nested or argument.kind == "bytes":
        raise ExpressionInvalid("type_mismatch", f"{function} counts values by their text, and {argument} has none")
    return ColumnType("map", key=STRING, value=BIGINT)


def _check_comparable(argument: ColumnType, consequence: str) -> None:
    if argument.is_nested:
        raise ExpressionInvalid("type_mismatch", f"{argument} cannot be compared, so {consequence}")


def _check_numeric(function: str, argument: ColumnType) -> None:
    if not argument.is_numeric:
        raise ExpressionInvalid("type_mismatch", f"{function} works on numbers, not {argument}")


_RESULT_TYPES: Final[dict[AggregateName, Callable[[str, ColumnType], ColumnType]]] = {
    "count": _of_anything,
    "count_distinct": _distinct_count,
    "sum": _total,
    "avg": _moment,
    "stddev": _moment,
    "variance": _moment,
    "min": _extreme,
    "max": _extreme,
    "first": _same,
    "last": _same,
    "first_by_arrival": _same,
    "last_by_arrival": _same,
    "collect_list": _list,
    "collect_set": _distinct_list,
    "top_k": _greatest,
    "histogram": _frequencies,
}
