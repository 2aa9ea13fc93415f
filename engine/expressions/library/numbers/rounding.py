"""Rounding as ksqlDB does it: towards the nearest, halves upwards, also of so many digits before the point, and for each record its own.

A double is taken for the shortest decimal number that reads as it: 2.675 to two digits is 2.68, though the double is a little less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_DOWN, ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import numbers_of, whole
from engine.expressions.library.by_value import Unfit, by_value
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.types.types import BIGINT, DOUBLE, MAX_DECIMAL_PRECISION, ColumnType, decimal
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import Operand, coerce, finite

_CONTEXT: Final = Context(prec=2 * MAX_DECIMAL_PRECISION)
_STEPS: Final = tuple(float(f"1e{digits}") for digits in range(309))
"""Powers of ten, each the nearest double."""
_WHOLE_FROM: Final = 2.0**52
"""Doubles from here on have no digits behind the point."""
_LAST_BIGINT: Final = 2**63 - 1
_BEYOND_BIGINT: Final = 2.0**63


@dataclass(frozen=True)
class _Scale:
    """Digits behind the point, or before it.

    Attributes:
        count: how many steps a number is, perhaps a little wrong.
        number: the double nearest to so many steps.
    """

    count: Callable[[pl.Expr, pl.Expr], pl.Expr]
    number: Callable[[pl.Expr, pl.Expr], pl.Expr]


_BEHIND: Final = _Scale(lambda value, step: value * step, lambda count, step: count / step)
_BEFORE: Final = _Scale(lambda value, step: value / step, lambda count, step: count * step)


def of_decimal(name: str, number: Operand, kind: ColumnType, digits: Operand | None, *, to_nearest: bool) -> Operand:
    """Compile the rounding of exact numbers; the result has a place more before the point."""
    precision, scale = kind.precision or MAX_DECIMAL_PRECISION, kind.scale or 0
    result = decimal(min(precision - (scale if digits is None else 0) + 1, MAX_DECIMAL_PRECISION), 0 if digits is None else scale)
    places = pl.lit(0, dtype=pl.Int64) if digits is None else whole(name, digits)
    return by_value(partial(_quantized, to_nearest=to_nearest, result=result), [number.expr, places], result)


def _quantized(value: Decimal, digits: int, *, to_nearest: bool, result: ColumnType) -> Decimal:
    step = Decimal(1).scaleb(-min(max(digits, -MAX_DECIMAL_PRECISION), result.scale or 0))
    half = ROUND_HALF_UP if value > 0 else ROUND_HALF_DOWN
    found = value.quantize(step, half if to_nearest else ROUND_DOWN, _CONTEXT)
    if abs(found) >= Decimal(1).scaleb((result.precision or 0) - (result.scale or 0)):
        raise Unfit
    return found


def _to_whole(value: pl.Expr, *, to_nearest: bool) -> pl.Expr:
    """Return doubles as bigint; what is beyond is the last bigint, NaN zero, as Java does."""

    def build(number: pl.Expr) -> pl.Expr:
        low = number.floor()
        found = pl.when(number - low >= 0.5).then(low + 1.0).otherwise(low) if to_nearest else number.truncate()
        bounded = pl.when(number.is_nan()).then(0).when(number >= _BEYOND_BIGINT).then(_LAST_BIGINT)
        return bounded.when(number < -_BEYOND_BIGINT).then(-_LAST_BIGINT - 1).otherwise(found.cast(pl.Int64, strict=False))

    return once(build, value)


def _to_digits(value: pl.Expr, digits: pl.Expr, *, to_nearest: bool) -> pl.Expr:
    """Return doubles with this many digits behind the point; of a negative count, with so many zeros before it."""
    stepped = _nearest if to_nearest else _towards_zero

    def build(given: pl.Expr, places: pl.Expr) -> pl.Expr:
        number = pl.when(places.is_not_null()).then(given)
        size = places.abs().clip(0, len(_STEPS) - 1)
        step = size.replace_strict(range(len(_STEPS)), _STEPS, return_dtype=pl.Float64)
        return (
            pl.when(places >= 0)
            .then(once(partial(stepped, _BEHIND), number, step))
            .otherwise(once(partial(stepped, _BEFORE), number, step))
        )

    return once(build, finite(value), digits)


def _nearest(scale: _Scale, value: pl.Expr, step: pl.Expr) -> pl.Expr:
    def build(v: pl.Expr, s: pl.Expr, low: pl.Expr) -> pl.Expr:
        found = scale.number(low + (v >= scale.number(low + 0.5, s)).cast(pl.Float64), s)
        return pl.when(low.abs() < _WHOLE_FROM).then(found + 0.0).otherwise(v)  # + 0.0: a decimal has no -0

    return once(build, value, step, _steps_below(scale, value, step))


def _towards_zero(scale: _Scale, value: pl.Expr, step: pl.Expr) -> pl.Expr:
    def build(v: pl.Expr, s: pl.Expr, low: pl.Expr) -> pl.Expr:
        return pl.when(low < _WHOLE_FROM).then(scale.number(low, s) * v.sign() + 0.0).otherwise(v)

    return once(build, value, step, _steps_below(scale, value.abs(), step))


def _steps_below(scale: _Scale, value: pl.Expr, step: pl.Expr) -> pl.Expr:
    """Return the largest whole number of steps that is no more than the value, both as the doubles that they are nearest to."""

    def build(v: pl.Expr, s: pl.Expr, count: pl.Expr) -> pl.Expr:
        return count + (v >= scale.number(count + 1.0, s)).cast(pl.Float64) - (v < scale.number(count, s)).cast(pl.Float64)

    return once(build, value, step, scale.count(value, step).floor())


def _rounding(name: str, *, to_nearest: bool) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        ((number, kind),) = numbers_of(name, arguments[:1])
        digits = arguments[1] if len(arguments) > 1 else None
        if kind.kind == "decimal":
            return of_decimal(name, number, kind, digits, to_nearest=to_nearest)
        if digits is not None:
            value = coerce(number, DOUBLE, name)
            return Operand(_to_digits(value, whole(name, digits), to_nearest=to_nearest), DOUBLE)
        if kind.is_integer:
            return Operand(coerce(number, BIGINT, name), BIGINT)
        return Operand(_to_whole(number.expr, to_nearest=to_nearest), BIGINT)

    return compiled


ROUNDING: Sequence[Function] = (
    Function(
        "ksql_round", "x: number, digits?: whole number", "bigint; with digits the type of x, of a whole number double",
        "The nearest number with this many digits behind the point, as ksqlDB gives it: halves go up; below zero digits before the point.",
        (
            Example("ksql_round(2.5)", 3), Example("ksql_round(-2.5)", -2), Example("ksql_round(2.675, 2)", 2.68),
            Example("ksql_round(12345.6, -2)", 12300.0),
        ),
        _rounding("ksql_round", to_nearest=True), gaps=gaps.where_failed("number_overflow"), ksqldb=("ROUND",),
    ),
    Function(
        "trunc", "x: number, digits?: whole number", "bigint; with digits the type of x, of a whole number double",
        "The number without the digits behind the point, or behind so many; below zero of digits before the point.",
        (Example("trunc(-2.7)", -2), Example("trunc(0.29, 2)", 0.29), Example("trunc(1299.9, -2)", 1200.0)),
        _rounding("trunc", to_nearest=False), gaps=gaps.where_failed("number_overflow"), ksqldb=("TRUNC",),
    ),
)  # fmt: skip
