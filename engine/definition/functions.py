"""How calls of scalar functions are compiled. Which functions there are, with their documentation: ``function_list``.

Every one is deterministic and depends on its arguments alone: a replayed batch must give the same bytes, so there is no now()
and no random(). An argument that is NULL makes the result NULL, except for coalesce, greatest, least and concat, which pass over
NULLs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Literal

import polars as pl

from engine.definition import arithmetic, texts
from engine.definition.once import once
from engine.definition.operands import ExpressionInvalid, Operand, coerce, coerce_all, common_type, finite, null
from engine.definition.types import (
    BIGINT,
    DOUBLE,
    INT,
    MAX_DECIMAL_PRECISION,
    STRING,
    TIMESTAMP,
    ColumnType,
    decimal,
)

Arguments = Sequence[Operand]

FIRST_INSTANT_MS, LAST_EVENT_TIME_MS = -62_135_596_800_000, 253_402_300_799_999
"""The beginning of the year 1, and the end of the year 9999, the last instant an event time may have (T8)."""

MAX_ROUND_DIGITS = 30

_TRUNCATIONS = {
    "second": "1s", "minute": "1m", "hour": "1h", "day": "1d", "week": "1w", "month": "1mo", "quarter": "1q", "year": "1y",
}  # fmt: skip
_FIELDS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "year": lambda e: e.dt.year(),
    "quarter": lambda e: e.dt.quarter(),
    "month": lambda e: e.dt.month(),
    "week": lambda e: e.dt.week(),
    "day": lambda e: e.dt.day(),
    "doy": lambda e: e.dt.ordinal_day(),
    "isodow": lambda e: e.dt.weekday(),
    "dow": lambda e: e.dt.weekday().cast(pl.Int32) % 7,
    "hour": lambda e: e.dt.hour(),
    "minute": lambda e: e.dt.minute(),
    "second": lambda e: e.dt.second(),
}


def extract(field: str, moment: Operand) -> Operand:
    """Compile ``EXTRACT(field FROM moment)``, always an int; seconds are whole. Raises ExpressionInvalid."""
    build = _FIELDS.get(field.lower())
    if build is None:
        raise ExpressionInvalid("type_mismatch", f"extract knows {', '.join(_FIELDS)}, not {field[:40]!r}")
    return Operand(build(coerce(moment, TIMESTAMP, "extract")).cast(pl.Int32), INT)


def _numbers(name: str, arguments: Arguments) -> list[tuple[Operand, ColumnType]]:
    checked = []
    for argument in arguments:
        kind = argument.type or DOUBLE
        if not kind.is_numeric:
            raise ExpressionInvalid("type_mismatch", f"{name} works on numbers, not {kind}")
        checked.append((Operand(coerce(argument, kind, name), kind, argument.literal), kind))
    return checked


def _texts(name: str, arguments: Arguments) -> list[pl.Expr]:
    for argument in arguments:
        if argument.type not in (None, STRING):
            raise ExpressionInvalid("type_mismatch", f"{name} works on texts, not {argument.kind}; use CAST(… AS string)")
    return [coerce(argument, STRING, name) for argument in arguments]


def _literal_text(name: str, argument: Operand) -> str:
    if not isinstance(argument.literal, str):
        raise ExpressionInvalid("type_mismatch", f"{name} needs a text written out here, as in 'abc'")
    return argument.literal


def _whole(name: str, argument: Operand) -> pl.Expr:
    if argument.type is not None and not argument.type.is_integer:
        raise ExpressionInvalid("type_mismatch", f"{name} needs a whole number here, not {argument.kind}")
    return coerce(argument, BIGINT, name)


def of_double(name: str, build: Callable[..., pl.Expr]) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        values = [coerce(operand, DOUBLE, name) for operand, _ in _numbers(name, arguments)]
        return Operand(finite(build(*values)), DOUBLE)

    return compiled


def of_text(name: str, build: Callable[..., pl.Expr], result: ColumnType) -> Callable[[Arguments], Operand]:
    return lambda arguments: Operand(build(*_texts(name, arguments)), result)


def absolute(arguments: Arguments) -> Operand:
    ((operand, kind),) = _numbers("abs", arguments)
    return arithmetic.absolute(operand, kind)


def sign(arguments: Arguments) -> Operand:
    ((operand, _),) = _numbers("sign", arguments)

    def build(value: pl.Expr) -> pl.Expr:
        return pl.when(value > 0).then(1).when(value < 0).then(-1).when(value == 0).then(0).cast(pl.Int32)

    return Operand(once(build, operand.expr), INT)


def rounding(
    name: Literal["floor", "ceil", "round"], build: Callable[[pl.Expr], pl.Expr], digits: int = 0
) -> Callable[[Arguments], Operand]:
    """Compile floor and ceil: the argument's own type, a decimal one digit wider (9.9 gives 10.0)."""

    def compiled(arguments: Arguments) -> Operand:
        ((operand, kind),) = _numbers(name, arguments)
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
    ((operand, _),) = _numbers("round", arguments[:1])
    digits = arguments[1].literal if len(arguments) > 1 else 0
    if not isinstance(digits, int) or not 0 <= digits <= MAX_ROUND_DIGITS:
        raise ExpressionInvalid("type_mismatch", f"round takes its digits written out, 0 to {MAX_ROUND_DIGITS}")
    return rounding("round", lambda e: e.round(digits, mode="half_away_from_zero"), digits)([operand])


def trim(name: str, build: Callable[[pl.Expr, str], pl.Expr]) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        characters = _literal_text(name, arguments[1]) if len(arguments) > 1 else " "
        (value,) = _texts(name, arguments[:1])
        return Operand(build(value, characters) if characters else value, STRING)

    return compiled


def substring(arguments: Arguments) -> Operand:
    """Compile ``substring(text, start [, length])``: positions count from 1; what lies before 1 counts but is not there."""
    (value,) = _texts("substring", arguments[:1])
    start = _whole("substring", arguments[1])
    if len(arguments) == 2:
        return Operand(value.str.slice(start.clip(1, None) - 1), STRING)

    def build(text: pl.Expr, first: pl.Expr, length: pl.Expr) -> pl.Expr:
        # Clipped before they are added: a start near 2^63 must not wrap around.
        end = first.clip(-(2**40), 2**40) + length.clip(0, 2**40) - 1
        skip = first.clip(1, 2**40) - 1
        return text.str.slice(skip, (end - skip).clip(0, None))

    return Operand(once(build, value, start, _whole("substring", arguments[2])), STRING)


def side(name: str, build: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        (value,) = _texts(name, arguments[:1])
        return Operand(build(value, _whole(name, arguments[1]).clip(-(2**40), 2**40)), STRING)

    return compiled


def replaced(arguments: Arguments) -> Operand:
    old = _literal_text("replace", arguments[1])
    value, new = _texts("replace", [arguments[0], arguments[2]])
    return Operand(texts.replaced(value, old, new), STRING)


def null_if(arguments: Arguments) -> Operand:
    left, right = arguments
    kind = common_type(arguments, "nullif")
    if kind is None or left.type is None:
        return null()

    def build(value: pl.Expr, other: pl.Expr) -> pl.Expr:
        pair = coerce(replace(left, expr=value), kind, "nullif"), coerce(replace(right, expr=other), kind, "nullif")
        return pl.when((pair[0] != pair[1]) | pair[1].is_null()).then(value)

    return Operand(once(build, left.expr, right.expr), left.type)


def merged(name: str, build: Callable[[list[pl.Expr]], pl.Expr], *, is_compared: bool) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        values, kind = coerce_all(arguments, name)
        if kind is None:
            return null()
        if is_compared and kind.is_nested:
            raise ExpressionInvalid("type_mismatch", f"{name} cannot compare {kind}")
        return Operand(build(values), kind)

    return compiled


def date_trunc(arguments: Arguments) -> Operand:
    unit = _literal_text("date_trunc", arguments[0]).lower()
    if unit not in _TRUNCATIONS:
        raise ExpressionInvalid("type_mismatch", f"date_trunc knows {', '.join(_TRUNCATIONS)}, not {unit[:40]!r}")
    return Operand(coerce(arguments[1], TIMESTAMP, "date_trunc").dt.truncate(_TRUNCATIONS[unit]), TIMESTAMP)


def to_timestamp(arguments: Arguments) -> Operand:
    ms = _whole("to_timestamp", arguments[0])
    bounded = once(lambda value: pl.when(value.is_between(FIRST_INSTANT_MS, LAST_EVENT_TIME_MS)).then(value), ms)
    return Operand((bounded * 1_000).cast(TIMESTAMP.polars), TIMESTAMP)


def epoch_ms(arguments: Arguments) -> Operand:
    return Operand(coerce(arguments[0], TIMESTAMP, "epoch_ms").dt.epoch("ms"), BIGINT)
