"""Functions of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial, reduce
from typing import Literal

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import numbers_of, of_double
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.types.types import BIGINT, INT, MAX_DECIMAL_PRECISION, STRING, ColumnType, decimal
from engine.expressions.values import arithmetic, texts
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand, coerce, digits_of, literal_decimal

MAX_ROUND_DIGITS = 30


def absolute(arguments: Arguments) -> Operand:
    ((operand, kind),) = numbers_of("abs", arguments)
    return arithmetic.absolute(operand, kind)


def absolute_of_type(arguments: Arguments) -> Operand:
    """Compile ``ksql_abs``: an int stays one."""
    ((operand, kind),) = numbers_of("ksql_abs", arguments)
    found = arithmetic.absolute(operand, kind)
    return found if kind != INT else Operand(found.expr.cast(INT.polars, strict=False), INT)


def sign(arguments: Arguments) -> Operand:
    ((operand, _),) = numbers_of("sign", arguments)

    def build(value: pl.Expr) -> pl.Expr:
        return pl.when(value > 0).then(1).when(value < 0).then(-1).when(value == 0).then(0).cast(pl.Int32)

    return Operand(once(build, operand.expr), INT)


def rounding(
    name: Literal["floor", "ceil", "round"], build: Callable[[pl.Expr], pl.Expr], digits: int = 0
) -> Callable[[Arguments], Operand]:
    """Compile floor and ceil: the argument's own type, a decimal one digit wider (9.9 gives 10.0)."""

    def compiled(arguments: Arguments) -> Operand:
        ((operand, kind),) = numbers_of(name, arguments)
        if kind.is_integer:
            return operand
        result = _wider(kind)
        fitting = once(lambda value: _roundable(name, value, kind, digits), operand.expr)
        return Operand(build(fitting).cast(result.polars, strict=False), result)

    return compiled


def _roundable(name: Literal["floor", "ceil", "round"], value: pl.Expr, kind: ColumnType, digits: int) -> pl.Expr:
    """Return decimals of the most digits with NULL where rounding makes one more of them: Polars fails there."""
    scale = kind.scale or 0
    if kind.kind != "decimal" or kind.precision != MAX_DECIMAL_PRECISION or digits >= scale:
        return value
    beyond, step = 10**MAX_DECIMAL_PRECISION, 10 ** (scale - digits)  # counted in units of the last digit

    def number(units: int) -> pl.Expr:
        return pl.lit(Decimal(f"{units}e-{scale}"), dtype=kind.polars)

    match name:
        case "ceil":
            fits = value <= number(beyond - step)
        case "floor":
            fits = value >= number(step - beyond)
        case "round":
            fits = value.abs() < number(beyond - step // 2)
    return pl.when(fits).then(value)


def _wider(kind: ColumnType) -> ColumnType:
    if kind.kind != "decimal" or kind.precision is None or kind.precision == MAX_DECIMAL_PRECISION:
        return kind
    return decimal(kind.precision + 1, kind.scale or 0)


def round_to(arguments: Arguments) -> Operand:
    ((operand, _),) = numbers_of("round", arguments[:1])
    digits = arguments[1].literal if len(arguments) > 1 else 0
    if not isinstance(digits, int) or not 0 <= digits <= MAX_ROUND_DIGITS:
        raise ExpressionInvalid("type_mismatch", f"round takes its digits written out, 0 to {MAX_ROUND_DIGITS}")
    return rounding("round", lambda e: e.round(digits, mode="half_away_from_zero"), digits)([operand])


def _of_ints(build: Callable[[Arguments], Operand]) -> Callable[[Arguments], Operand]:
    """Let ints give an int, NULL where the result fits none; other numbers give what they give."""

    def compiled(arguments: Arguments) -> Operand:
        found = build(arguments)
        is_int = found.type == BIGINT and all(argument.type == INT for argument in arguments)
        return Operand(found.expr.cast(INT.polars, strict=False), INT) if is_int else found

    return compiled


def plus(arguments: Arguments) -> Operand:
    """Compile ``plus(x, y, ...)``: the sum from left to right, or the texts one after the other."""
    if all(argument.type in (None, STRING) for argument in arguments):
        values = [coerce(argument, STRING, "plus") for argument in arguments]
        return Operand(texts.joined(values, passes_nulls=False), STRING)
    return reduce(partial(arithmetic.binary, "+"), arguments)


def divide(arguments: Arguments) -> Operand:
    """Compile ``divide(x, y)``: as ``x / y``, but the quotient of decimals is a decimal, rounded half away from zero in its last digit."""
    left, right = arguments
    types = _decimals(left, right)
    if types is None:
        return arithmetic.binary("/", left, right)
    (left_whole, left_scale), (right_whole, right_scale) = map(digits_of, types)
    scale = max(6, left_scale + right_whole + right_scale + 1)
    if left_whole + right_scale + scale > MAX_DECIMAL_PRECISION:
        return arithmetic.binary("/", left, right)
    result = decimal(left_whole + right_scale + scale, scale)
    wide = decimal(MAX_DECIMAL_PRECISION, scale)

    def build(x: pl.Expr, y: pl.Expr) -> pl.Expr:
        return (x / pl.when(y != 0).then(y)).cast(result.polars, strict=False)

    return Operand(once(build, coerce(left, wide, "divide"), coerce(right, wide, "divide")), result)


def remainder(arguments: Arguments) -> Operand:
    """Compile ``remainder(x, y)``: as ``x % y``, but of decimals a decimal."""
    left, right = arguments
    types = _decimals(left, right)
    if types is None:
        return arithmetic.binary("%", left, right)
    (left_whole, left_scale), (right_whole, right_scale) = map(digits_of, types)
    scale = max(left_scale, right_scale)
    result = decimal(min(left_whole, right_whole) + scale or 1, scale)
    wide = decimal(MAX_DECIMAL_PRECISION, scale)

    def build(x: pl.Expr, y: pl.Expr) -> pl.Expr:
        size = x.abs() % pl.when(y != 0).then(y.abs())
        return pl.when(x < 0).then(-size).otherwise(size).cast(result.polars, strict=False)

    return Operand(once(build, coerce(left, wide, "remainder"), coerce(right, wide, "remainder")), result)


def _decimals(left: Operand, right: Operand) -> tuple[ColumnType, ColumnType] | None:
    """Return the types of a decimal and of a number beside it that is none of doubles; None where they are something else."""
    found = []
    for operand in (left, right):
        kind = operand.type
        if kind is not None and kind.kind == "double" and isinstance(operand.literal, Decimal):
            kind = literal_decimal(operand.literal)
        if kind is None or kind.kind not in ("int", "bigint", "decimal"):
            return None
        found.append(kind)
    one, other = found
    has_decimal = any(operand.type is not None and operand.type.kind == "decimal" for operand in (left, right))
    return (one, other) if has_decimal else None


_OF_ROUNDING = gaps.without_result("number_overflow", "int", "bigint", "double")

NUMBERS: Sequence[Function] = (
    Function(
        "abs", "x: number", "type of x; of an int bigint", "The number without its sign.",
        (Example("abs(-2)", 2), Example("abs(1.5)", 1.5)), absolute,
        gaps=gaps.without_result("number_overflow", "int", "double", "decimal"),
    ),
    Function(
        "ksql_abs", "x: number", "type of x", "The number without its sign; NULL where it fits an int no more.",
        (Example("ksql_abs(-2)", 2),), absolute_of_type, gaps=gaps.without_result("number_overflow", "double", "decimal"), ksqldb=("ABS",),
    ),
    Function(
        "round", "x: number, digits?: whole number", "type of x; a decimal is one digit wider",
        "The nearest number with this many digits behind the point (written out, 0 to 30; without them none); halves go away from zero.",
        (Example("round(2.5)", 3.0), Example("round(-1.25, 1)", -1.3)), round_to, gaps=_OF_ROUNDING,
    ),
    Function(
        "floor", "x: number", "type of x; a decimal is one digit wider", "The next whole number below.", (Example("floor(-1.5)", -2.0),),
        rounding("floor", lambda e: e.floor()), gaps=_OF_ROUNDING, ksqldb=("FLOOR",),
    ),
    Function(
        "ceil", "x: number", "type of x; a decimal is one digit wider", "The next whole number above.", (Example("ceil(1.2)", 2.0),),
        rounding("ceil", lambda e: e.ceil()), gaps=_OF_ROUNDING, elsewhere=("ceiling",), ksqldb=("CEIL",),
    ),
    Function(
        "divide", "x: number, divisor: number", "as of x / divisor; of ints int; of decimals decimal",
        "The quotient; NULL where the divisor is zero.",
        (Example("divide(7, 2)", 3), Example("divide(CAST('7' AS decimal(3,1)), 2)", 3.5), Example("divide(1, 0)", None)),
        _of_ints(divide), gaps=lambda failures, arguments, result: failures.after_arithmetic("/", arguments[0], arguments[1], result),
    ),
    Function(
        "remainder", "x: number, divisor: number", "as of x % divisor; of ints int; of decimals decimal",
        "What division leaves, with the sign of x; NULL where the divisor is zero.",
        (Example("remainder(-7, 2)", -1), Example("remainder(CAST('-7.5' AS decimal(3,1)), 2)", -1.5)), _of_ints(remainder),
        gaps=gaps.of_remainder,
    ),
    Function(
        "plus", "x...: number or string", "as of x + y; of ints int; string",
        "The sum of numbers; texts one after the other, NULL where one is.",
        (Example("plus(1, 2, 3)", 6), Example("plus('tea', 'pot')", "teapot"), Example("plus('tea', NULL)", None)), _of_ints(plus),
        gaps=gaps.without_result("number_overflow"),
    ),
    Function(
        "minus", "x: number, y: number", "as of x - y; of ints int", "The difference; NULL where it is no number of its type.",
        (Example("minus(5, 7)", -2), Example("minus(1.5, 1)", 0.5)), _of_ints(lambda both: arithmetic.binary("-", *both)),
        gaps=gaps.without_result("number_overflow", "decimal"),
    ),
    Function(
        "times", "x: number, y: number", "as of x * y; of ints int", "The product; NULL where it is no number of its type.",
        (Example("times(5, 7)", 35), Example("times(1.5, 2)", 3.0), Example("times(65536, 65536)", None)),
        _of_ints(lambda both: arithmetic.binary("*", *both)), gaps=gaps.without_result("number_overflow", "decimal"),
    ),
    Function(
        "negated", "x: number", "type of x", "The number with the other sign; NULL where it is none of its type.",
        (Example("negated(2)", -2),), _of_ints(lambda one: arithmetic.negate(*one)),
        gaps=gaps.without_result("number_overflow", "double", "decimal"),
    ),
    Function("sign", "x: number", "int", "-1, 0 or 1.", (Example("sign(-3)", -1),), sign, ksqldb=("SIGN",)),
    Function(
        "sqrt", "x: number", "double", "The square root; NULL below zero.", (Example("sqrt(9)", 3.0), Example("sqrt(-1)", None)),
        of_double("sqrt", lambda e: e.sqrt()), gaps=gaps.without_result("outside_domain"),
    ),
    Function(
        "power", "base: number, exponent: number", "double", "The base to the power of the exponent; NULL where that is no number.",
        (Example("power(2, 10)", 1024.0),), of_double("power", lambda a, b: a.pow(b)),
        gaps=gaps.without_result("number_overflow"), elsewhere=("pow",),
    ),
    Function(
        "ln", "x: number", "double", "The natural logarithm; NULL for zero and below.", (Example("ln(1)", 0.0), Example("ln(0)", None)),
        of_double("ln", lambda e: e.log()), gaps=gaps.without_result("outside_domain"),
    ),
    Function(
        "exp", "x: number", "double", "e to the power of x.", (Example("exp(0)", 1.0),), of_double("exp", lambda e: e.exp()),
        gaps=gaps.without_result("number_overflow"),
    ),
    Function(
        "mod", "x: number, divisor: number", "as of x % divisor", "The remainder, with the sign of x; NULL where the divisor is zero.",
        (Example("mod(7, 3)", 1), Example("mod(-7, 3)", -1), Example("mod(7, 0)", None)),
        lambda arguments: arithmetic.binary("%", arguments[0], arguments[1]), gaps=gaps.of_remainder,
    ),
)  # fmt: skip
