"""Functions that put together arrays of unlike values, make combinations of items, or take a lambda."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any, Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.by_value import Unfit, by_value
from engine.expressions.library.entry import Arguments, Function, OverNodes
from engine.expressions.limits import MAX_REDUCED_BYTES, MAX_REDUCED_ELEMENTS, MAX_TEXT_BYTES
from engine.expressions.types.types import STRING, ColumnType
from engine.expressions.values import lambdas
from engine.expressions.values.arithmetic import negate
from engine.expressions.values.nested import array_of_all, struct_of
from engine.expressions.values.operands import ExpressionInvalid, Operand, cast, common_type, number_literal


def mixed_array(arguments: Arguments) -> Operand:
    others = [each for each in arguments if each.type is not None and not _is_written(each)]
    if others and all(each.type is not None and each.type.is_numeric for each in others):
        return array_of_all([_number(each) if _is_written(each) else each for each in arguments])
    kinds = [each.type for each in others if each.type is not None]
    if len(others) > 1 and all(kind.kind == "struct" for kind in kinds):
        whole = _with_all_fields(kinds)
        return array_of_all([each if each.type is None else cast(each, whole) for each in arguments])
    return array_of_all(arguments)


def _is_written(operand: Operand) -> bool:
    return operand.type == STRING and isinstance(operand.literal, str)


def _number(operand: Operand) -> Operand:
    try:
        value = Decimal(str(operand.literal).strip())
        whole = value.is_finite() and value == value.to_integral_value() and abs(value.adjusted()) < _MOST_DIGITS
    except InvalidOperation as error:
        raise ExpressionInvalid(
            "type_mismatch", f"ARRAY: {str(operand.literal)[:40]!r} is no number as the others are"
        ) from error
    found = number_literal(f"{abs(value):f}" if whole else str(abs(value)))
    return negate(found) if value < 0 else found


def _with_all_fields(kinds: Sequence[ColumnType]) -> ColumnType:
    """Return the struct with the fields of all of these, each in the common type."""
    names = dict.fromkeys(name for kind in kinds for name, _ in kind.fields)
    fields = []
    for name in names:
        found = common_type(
            [Operand(pl.lit(None), dict(kind.fields)[name]) for kind in kinds if name in dict(kind.fields)], "ARRAY"
        )
        fields.append((name, found or STRING))
    return struct_of(fields)


_MOST_DIGITS: Final = 38
MIXED_ARRAYS: Final = (
    Function(
        "ksql_array", "x...: any", "array of the common type",
        "As ARRAY[…], where texts written out beside numbers are read as numbers, and structs take the fields of all.",
        (
            Example("ksql_array(1, '2e1')", [1, 20]),
            Example("ksql_array(STRUCT(a := 1), STRUCT(b := 2))", [{"a": 1, "b": None}, {"a": None, "b": 2}]),
        ),
        mixed_array,
    ),
)  # fmt: skip


MAX_PLACES: Final = 16
"""Of an array whose combinations are made: each place doubles their number."""


def cube(arguments: Arguments) -> Operand:
    (items,) = arguments
    if items.type is None or items.type.kind != "array":
        raise ExpressionInvalid("type_mismatch", f"cube takes an array, not {items.kind}")
    return by_value(_combinations, [items.expr], ColumnType("array", element=items.type))


def _combinations(items: list[Any]) -> list[list[Any]]:
    if len(items) > MAX_PLACES:
        raise Unfit
    return [list(chosen) for chosen in product(*([None] if item is None else [None, item] for item in items))]


COMBINATIONS: Sequence[Function] = (
    Function(
        "cube", "items: array", "array of such arrays",
        f"All arrays that leave out some of the items, with NULL in their places. Of at most {MAX_PLACES} items, else NULL; a NULL is left out "
        "once.",
        (Example("cube(split('a,b', ','))", [[None, None], [None, "b"], ["a", None], ["a", "b"]]),), cube,
    ),
)  # fmt: skip


LAMBDAS: Sequence[Function] = (
    Function(
        "transform", "x: array or map, f: lambda, g?: lambda", "array or map",
        "What a lambda gives for each element. Of a map f gives the key and g the value, each of key and value; the last of equal keys "
        f"counts. Elements behind the first {MAX_TEXT_BYTES >> 20} MiB of texts that it makes are NULL, and the record is counted.",
        (
            Example("transform(ARRAY[1, 2], x => x * 10)", [10, 20]),
            Example("transform(MAP('a' := 1), (k, v) => upper(k), (k, v) => v + 1)", {"A": 2}),
        ),
        OverNodes(lambdas.transform), ksqldb=("TRANSFORM",),
    ),
    Function(
        "filter", "x: array or map, f: lambda", "type of x", "The elements for which a lambda is true; of a map it takes key and value.",
        (
            Example("filter(ARRAY[1, 2, 3], x => x <> 2)", [1, 3]),
            Example("filter(MAP('a' := 1, 'b' := 2), (k, v) => v > 1)", {"b": 2}),
        ),
        OverNodes(lambdas.filtered), ksqldb=("FILTER",),
    ),
    Function(
        "reduce", "x: array or map, start: any, f: lambda", "type of the start, or what f gives if it is wider",
        "One value of all elements: f gives the next state from the state and an element (of a map: the state, a key and a value). "
        f"NULL where the start is, the start where x is NULL; NULL and counted of more than {MAX_REDUCED_ELEMENTS:,} elements, "
        f"or {MAX_REDUCED_BYTES >> 20} MiB of texts on the way.",
        (Example("reduce(ARRAY[1, 2, 3], 0, (s, x) => s + x)", 6), Example("reduce(MAP('a' := 1), '', (s, k, v) => s || k)", "a")),
        OverNodes(lambdas.reduced), ksqldb=("REDUCE",),
    ),
)  # fmt: skip
