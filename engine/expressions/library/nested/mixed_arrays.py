"""Arrays of what ksqlDB puts together: literal texts that write a number beside numbers, and structs with other fields."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.types.types import STRING, ColumnType
from engine.expressions.values.arithmetic import negate
from engine.expressions.values.nested import array_of_all
from engine.expressions.values.nested_types import struct_of
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
