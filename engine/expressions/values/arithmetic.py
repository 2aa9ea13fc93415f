"""Arithmetic with SQL's types and without failures.

Whole numbers are computed as bigint, through 128 bits: a result that does not fit a bigint is NULL, as is a division by zero.
Division of whole numbers truncates towards zero, and a remainder takes the dividend's sign, as in Postgres. Decimals add,
subtract and multiply exactly, in the type that surely holds the result; where that would need more than 38 digits, and for
division, the result is a double.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Literal

import polars as pl

from engine.expressions.types.types import BIGINT, DOUBLE, MAX_DECIMAL_PRECISION, ColumnType, decimal
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand, coerce, common_type, digits_of, finite

Operator = Literal["+", "-", "*", "/", "%"]

_WIDE = pl.Int128()
_EXACT: dict[Operator, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


def binary(operator: Operator, left: Operand, right: Operand) -> Operand:
    """Compile ``left operator right``. Raises ExpressionInvalid (``type_mismatch``)."""
    where = f"'{operator}'"
    for side in (left, right):
        if side.type is not None and not side.type.is_numeric:
            hint = "; join texts with ||" if side.type.kind == "string" and operator == "+" else ""
            raise ExpressionInvalid("type_mismatch", f"{where} works on numbers, not {side.kind}{hint}")
    found = common_type([left, right], where)
    if found is None:
        return Operand(pl.lit(None, dtype=pl.Int64), BIGINT)
    if found.is_integer:
        return Operand(_integers(operator, coerce(left, found, where), coerce(right, found, where)), BIGINT)
    if found.kind == "decimal" and operator in _EXACT:
        return _decimals(operator, left, right, found)
    return Operand(_doubles(operator, coerce(left, DOUBLE, where), coerce(right, DOUBLE, where)), DOUBLE)


def negate(operand: Operand) -> Operand:
    """Compile ``-operand``. A negated literal stays a literal, so that -1.5 adapts like 1.5 does."""
    if operand.type is None:
        return Operand(pl.lit(None, dtype=pl.Int64), BIGINT)
    if not operand.type.is_numeric:
        raise ExpressionInvalid("type_mismatch", f"'-' works on numbers, not {operand.kind}")
    if operand.literal is not None and not isinstance(operand.literal, str):
        value = _negated(operand.literal)
        kind = operand.type
        shown = float(value) if kind.kind == "double" else value
        return Operand(pl.lit(shown, dtype=kind.polars), kind, value)
    if operand.type.is_integer:
        return Operand(narrow(0 - operand.expr.cast(_WIDE)), BIGINT)
    return Operand(-operand.expr, operand.type)


def _negated(value: int | Decimal) -> int | Decimal:
    """Return a literal's number negated, with all its digits: ``-value`` rounds a decimal to 28."""
    return value.copy_negate() if isinstance(value, Decimal) and value else -value


def absolute(operand: Operand, kind: ColumnType) -> Operand:
    """Compile ``abs``: whole numbers give a bigint, as every arithmetic does."""
    if kind.is_integer:
        return Operand(narrow(operand.expr.cast(_WIDE).abs()), BIGINT)
    return Operand(operand.expr.abs(), kind)


def narrow(wide: pl.Expr) -> pl.Expr:
    """Return a 128-bit result as bigint, NULL where it does not fit."""
    return wide.cast(pl.Int64, strict=False)


def _integers(operator: Operator, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    a, b = left.cast(_WIDE), right.cast(_WIDE)
    if operator in _EXACT:
        return narrow(_EXACT[operator](a, b))
    return narrow(once(_quotient if operator == "/" else _remainder, a, b))


def _quotient(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    divisor = pl.when(b != 0).then(b)
    size = a.abs() // divisor.abs()
    return pl.when((a < 0) == (divisor < 0)).then(size).otherwise(0 - size)


def _remainder(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    size = a.abs() % pl.when(b != 0).then(b.abs())
    return pl.when(a < 0).then(0 - size).otherwise(size)


def _decimals(operator: Operator, left: Operand, right: Operand, common: ColumnType) -> Operand:
    result = _decimal_result(operator, _exact_type(left, common), _exact_type(right, common))
    if result is None:
        return Operand(_doubles(operator, coerce(left, DOUBLE, operator), coerce(right, DOUBLE, operator)), DOUBLE)
    # Polars computes in the operands' common scale, so both take the result's first; 38 digits hold every step.
    wide = decimal(MAX_DECIMAL_PRECISION, result.scale or 0)
    computed = _EXACT[operator](coerce(left, wide, operator), coerce(right, wide, operator))
    return Operand(computed.cast(result.polars, strict=False), result)


def _exact_type(operand: Operand, common: ColumnType) -> ColumnType:
    """Return the operand's own exact type; a literal such as 1.5 and a NULL take the common type."""
    return operand.type if operand.type is not None and operand.type.kind != "double" else common


def _decimal_result(operator: Operator, left: ColumnType, right: ColumnType) -> ColumnType | None:
    (left_whole, left_scale), (right_whole, right_scale) = digits_of(left), digits_of(right)
    if operator == "*":
        whole, scale = left_whole + right_whole, left_scale + right_scale
    else:
        whole, scale = max(left_whole, right_whole) + 1, max(left_scale, right_scale)
    return decimal(whole + scale, scale) if whole + scale <= MAX_DECIMAL_PRECISION else None


def _doubles(operator: Operator, a: pl.Expr, b: pl.Expr) -> pl.Expr:
    if operator in _EXACT:
        return finite(_EXACT[operator](a, b))
    return finite(once(_double_quotient if operator == "/" else _double_remainder, a, b))


def _double_quotient(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    return a / pl.when(b != 0.0).then(b)


def _double_remainder(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    size = a.abs() % pl.when(b != 0.0).then(b.abs())
    return pl.when(a < 0).then(-size).otherwise(size)
