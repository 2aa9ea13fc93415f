"""The aggregates a window may compute, and the types of their results."""

from __future__ import annotations

from typing import Literal

from sqlglot import exp

from engine.definition.operands import ExpressionInvalid
from engine.definition.types import BIGINT, DOUBLE, MAX_DECIMAL_PRECISION, ColumnType, decimal

AggregateName = Literal["count", "count_distinct", "sum", "avg", "min", "max"]

SUPPORTED: tuple[AggregateName, ...] = ("count", "sum", "avg", "min", "max")

FORMS = "count(*), count(x), count(distinct x), sum(x), avg(x), min(x), max(x)"

LATER = (
    "first", "last", "earliest", "latest", "earliest_by_offset", "latest_by_offset", "collect_list", "collect_set", "top_k",
    "topk", "stddev", "variance", "histogram", "median", "percentile",
)  # fmt: skip
"""Known to the product; executed by a later release."""

AGGREGATE_NAMES = frozenset((*SUPPORTED, *LATER))

_ORDERED = ("int", "bigint", "double", "decimal", "string", "date", "time", "timestamp")


def read_call(tree: exp.Expr) -> tuple[AggregateName, exp.Expr | None]:
    """Read one aggregate call.

    Returns:
        The function, and the tree of its argument; None for ``count(*)``.

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
    if name in LATER:
        raise ExpressionInvalid("not_supported_yet", f"{name} comes later; there are {FORMS}")
    function = next((known for known in SUPPORTED if known == name), None)
    if function is None:
        raise ExpressionInvalid("unknown_function", f"there is no aggregate {name[:60]!r}; there are {FORMS}")
    if len(arguments) != 1:
        raise ExpressionInvalid("type_mismatch", f"{name} takes one argument, not {len(arguments)}")
    argument = arguments[0]
    if isinstance(argument, exp.Star):
        if function == "count":
            return "count", None
        raise ExpressionInvalid("type_mismatch", f"{name} takes a column, not *")
    if isinstance(argument, exp.Distinct):
        return _distinct(function, argument)
    return function, argument


def _distinct(function: AggregateName, argument: exp.Distinct) -> tuple[AggregateName, exp.Expr]:
    if function != "count":
        raise ExpressionInvalid("not_supported_yet", f"{function}(distinct …) comes later; only count takes distinct")
    if len(argument.expressions) != 1:
        raise ExpressionInvalid("not_supported_yet", "count(distinct …) takes one expression for now; join several with ||")
    inner: exp.Expr = argument.expressions[0]
    return "count_distinct", inner


def result_type(function: AggregateName, argument: ColumnType) -> ColumnType:
    """Return the type an aggregate gives.

    Raises:
        ExpressionInvalid: ``type_mismatch``: the function does not work on that type.
    """
    if function == "count":
        return BIGINT
    if function == "count_distinct":
        if argument.is_nested:
            raise ExpressionInvalid("type_mismatch", f"{argument} cannot be compared, so distinct ones cannot be counted")
        return BIGINT
    if function in ("sum", "avg"):
        if not argument.is_numeric:
            raise ExpressionInvalid("type_mismatch", f"{function} works on numbers, not {argument}")
        if function == "avg" or argument.kind == "double":
            return DOUBLE
        return BIGINT if argument.is_integer else decimal(MAX_DECIMAL_PRECISION, argument.scale or 0)
    if argument.kind not in _ORDERED:
        raise ExpressionInvalid("type_mismatch", f"{function} needs values that have an order, not {argument}")
    return argument
