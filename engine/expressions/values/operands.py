"""Typed operands of expressions: how types meet, and what a cast does. Nothing here fails while a query runs.

A value that does not fit its target (a text that is no number, an int past its range) becomes NULL, and so does a float result
that is not finite: one odd record must never stop a query.
"""

from __future__ import annotations

import datetime as dt
import decimal as py_decimal
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from engine.expressions.types.types import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    MAX_DECIMAL_PRECISION,
    STRING,
    TIMESTAMP,
    ColumnType,
    decimal,
)
from engine.expressions.values.once import once
from engine.expressions.values.rebuilding import rebuilt

INT_DIGITS = 10
"""Decimal digits an int may need: 2147483647."""
BIGINT_DIGITS = 19
"""Decimal digits a bigint may need: 9223372036854775807."""

FIRST_DAY, LAST_DAY = (dt.date.min - dt.date(1970, 1, 1)).days, (dt.date.max - dt.date(1970, 1, 1)).days
"""Of dates and timestamps that every reader can hold: the years 1 to 9999."""

_NAIVE_TIMESTAMPS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_ZONED_TIMESTAMP = "%Y-%m-%dT%H:%M:%S%.f%#z"


CONSTRUCTORS = ("ARRAY", "MAP")
"""Where structs meet that need not have the same fields: one that a value has not is NULL in it."""


class ExpressionInvalid(ValueError):
    """An expression was refused.

    Attributes:
        code: expression_malformed, unknown_column, ambiguous_column, unknown_function, type_mismatch, not_a_scalar or
            not_supported_yet.
        detail: what is wrong and what to write instead.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


@dataclass(frozen=True)
class Operand:
    """A compiled sub-expression.

    Attributes:
        type: None for a bare NULL, which takes any type.
        literal: the value of a literal, else None. Literals adapt to what they meet: '2013-01-01' beside a timestamp is one.
        failed: of a call, in which rows it has no value; None: what computes it does not say.
        is_strict: of a call: it is NULL wherever one of its arguments is, and where it has no value.
    """

    expr: pl.Expr
    type: ColumnType | None
    literal: str | int | py_decimal.Decimal | None = None
    failed: pl.Expr | None = None
    is_strict: bool = False

    @property
    def is_null(self) -> bool:
        return self.type is None

    @property
    def kind(self) -> str:
        """The type as a message names it."""
        return "null" if self.type is None else str(self.type)


def null() -> Operand:
    return Operand(pl.lit(None), None)


def text_literal(value: str) -> Operand:
    return Operand(pl.lit(value, dtype=pl.String), STRING, value)


def number_literal(text: str) -> Operand:
    """Return a number literal: int, bigint or decimal by size where it is whole, else a double (decimal beside decimals)."""
    try:
        value = py_decimal.Decimal(text)
    except py_decimal.InvalidOperation as error:
        raise ExpressionInvalid("expression_malformed", f"{text[:40]!r} is not a number") from error
    if text.isascii() and text.isdigit():
        return _whole_literal(text.lstrip("0") or "0")
    if not math.isfinite(float(value)):
        raise ExpressionInvalid("expression_malformed", f"the number {text[:40]} does not fit a double")
    return Operand(pl.lit(float(value), dtype=pl.Float64), DOUBLE, value)


def _whole_literal(digits: str) -> Operand:
    """Return a whole number as int, bigint or decimal. Looks at the length first: Python converts no more than 4,300 digits."""
    if len(digits) > MAX_DECIMAL_PRECISION:
        raise ExpressionInvalid("expression_malformed", f"the number {digits[:20]}… has more than {MAX_DECIMAL_PRECISION} digits")
    whole = int(digits)
    if whole < 2**63:
        found = INT if whole < 2**31 else BIGINT
        return Operand(pl.lit(whole, dtype=found.polars), found, whole)
    found, value = decimal(len(digits), 0), py_decimal.Decimal(digits)
    return Operand(pl.lit(value, dtype=found.polars), found, value)


def finite(expr: pl.Expr) -> pl.Expr:
    """Return a float expression with NULL where it is NaN or infinite."""
    return once(lambda value: pl.when(value.is_finite()).then(value), expr)


def within_calendar(expr: pl.Expr, kind: ColumnType) -> pl.Expr:
    """Return dates or timestamps with NULL outside the years 1 to 9999: what Python, the text of Postgres and RFC 3339 can hold.

    Looks at numbers: years far off have no calendar.
    """
    unit = 1 if kind == DATE else 86_400_000_000
    first, last = FIRST_DAY * unit, (LAST_DAY + 1) * unit - 1
    return once(lambda value: pl.when(value.to_physical().is_between(first, last)).then(value), expr)


def digits_of(kind: ColumnType) -> tuple[int, int]:
    """Return (digits before the point, digits behind it) that values of an exact numeric type may need."""
    if kind.kind == "decimal":
        scale = kind.scale or 0
        return (kind.precision or MAX_DECIMAL_PRECISION) - scale, scale
    return (INT_DIGITS if kind.kind == "int" else BIGINT_DIGITS), 0


def common_type(operands: Sequence[Operand], where: str) -> ColumnType | None:
    """Return the type all operands can take, None if every one is NULL.

    Raises:
        ExpressionInvalid: ``type_mismatch``; ``where`` names the place in the message.
    """
    typed = [o for o in operands if o.type is not None]
    kinds = [o.type for o in typed if o.type is not None]
    if not kinds:
        return None
    if all(k == kinds[0] for k in kinds):
        return kinds[0]
    if all(k.is_numeric for k in kinds):
        return _common_number(typed)
    if (nested := _common_nested(kinds, where)) is not None:
        return nested
    fixed = [o.type for o in typed if o.type is not None and not (o.type == STRING and o.literal is not None)]
    if fixed and all(k.kind in ("date", "timestamp") for k in fixed):
        return TIMESTAMP if TIMESTAMP in fixed else DATE
    if fixed and all(k.kind == "time" for k in fixed):
        return fixed[0]
    names = sorted({str(k) for k in kinds})
    raise ExpressionInvalid("type_mismatch", f"{where} cannot mix {' and '.join(names)}; convert one side with CAST")


def _common_nested(kinds: Sequence[ColumnType], where: str) -> ColumnType | None:
    """Return the nested type whose parts are what the parts of these have in common; None where they are not built alike."""
    first = kinds[0]
    if where in CONSTRUCTORS and all(kind.kind == "struct" for kind in kinds):
        return _common_struct(kinds, where)
    if not first.is_nested or any(kind.shape != first.shape for kind in kinds):
        return None
    parts = [
        common_type([Operand(pl.lit(None), part) for part in parts], where)
        for parts in zip(*(k.inner for k in kinds), strict=True)
    ]
    return first.with_inner([part for part in parts if part is not None])


def _common_struct(kinds: Sequence[ColumnType], where: str) -> ColumnType:
    """Return the struct that has every field of these: what an array of structs holds that differ in their fields."""
    names = dict.fromkeys(name for kind in kinds for name, _ in kind.fields)
    held = {
        name: [Operand(pl.lit(None), dict(kind.fields)[name]) for kind in kinds if name in dict(kind.fields)] for name in names
    }
    found = [(name, common_type(parts, where)) for name, parts in held.items()]
    return ColumnType("struct", fields=tuple((name, part) for name, part in found if part is not None))


def _common_number(operands: Sequence[Operand]) -> ColumnType:
    fixed = [o.type for o in operands if o.type is not None and not isinstance(o.literal, py_decimal.Decimal)]
    has_decimal = any(k.kind == "decimal" for k in fixed)
    if any(k.kind == "double" for k in fixed):
        return DOUBLE
    types = list(fixed)
    for operand in operands:
        if isinstance(operand.literal, py_decimal.Decimal) and operand.type is not None:
            if operand.type.kind == "double" and not has_decimal:
                return DOUBLE
            types.append(literal_decimal(operand.literal) or DOUBLE)
    if any(k.kind == "double" for k in types):
        return DOUBLE
    if any(k.kind == "decimal" for k in types):
        whole = max(digits_of(k)[0] for k in types)
        scale = max(digits_of(k)[1] for k in types)
        return decimal(whole + scale, scale) if 0 < whole + scale <= MAX_DECIMAL_PRECISION else DOUBLE
    return BIGINT if BIGINT in types else INT


def literal_decimal(value: py_decimal.Decimal) -> ColumnType | None:
    """Return the narrowest decimal type of a literal, None if it has none (1e300)."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return None
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    return decimal(precision, scale) if precision <= MAX_DECIMAL_PRECISION else None


def coerce(operand: Operand, target: ColumnType, where: str) -> pl.Expr:
    """Return the operand as ``target``, without any conversion a reader would not expect.

    Raises:
        ExpressionInvalid: ``type_mismatch``, also for a literal that cannot be read as a time or date.
    """
    if operand.type is None:
        return pl.lit(None, dtype=target.polars)
    if operand.type == target:
        return operand.expr
    if operand.type == STRING and isinstance(operand.literal, str) and target.kind in ("timestamp", "date", "time"):
        return pl.lit(temporal_literal(operand.literal, target), dtype=target.polars)
    if operand.type.is_numeric and target.is_numeric:
        if isinstance(operand.literal, (int, py_decimal.Decimal)) and target.kind == "decimal":
            return pl.lit(py_decimal.Decimal(operand.literal), dtype=target.polars)
        return operand.expr.cast(target.polars, strict=False)
    if operand.type.kind == "date" and target.kind == "timestamp":
        return operand.expr.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    is_wider = where in CONSTRUCTORS and operand.type.kind == target.kind == "struct"
    if operand.type.is_nested and (operand.type.shape == target.shape or is_wider):
        inside = rebuilt(operand.expr, operand.type, target, lambda part, own, wanted: coerce(Operand(part, own), wanted, where))
        if inside is not None:
            return inside
    raise ExpressionInvalid("type_mismatch", f"{where} needs {target}, not {operand.kind}")


def coerce_all(operands: Iterable[Operand], where: str) -> tuple[list[pl.Expr], ColumnType | None]:
    """Return the operands in their common type, and that type."""
    listed = list(operands)
    found = common_type(listed, where)
    if found is None:
        return [o.expr for o in listed], None
    return [coerce(o, found, where) for o in listed], found


def temporal_literal(text: str, target: ColumnType) -> dt.datetime | dt.date | dt.time:
    """Read an ISO 8601 literal; a timestamp without an offset is UTC. Raises ExpressionInvalid."""
    try:
        if target.kind == "time":
            return dt.time.fromisoformat(text)
        moment = dt.datetime.fromisoformat(text)
        if target.kind == "date":
            return moment.date()
        return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)
    except (ValueError, OverflowError) as error:
        example = {"time": "12:30:00", "date": "2013-01-01"}.get(target.kind, "2013-01-01T12:30:00Z")
        raise ExpressionInvalid("type_mismatch", f"{text[:40]!r} is not a {target}; write it like {example!r}") from error


def cast(operand: Operand, target: ColumnType) -> Operand:
    """Compile ``CAST(operand AS target)``. What does not fit becomes NULL; a double cast to an integer is truncated.

    Raises:
        ExpressionInvalid: ``type_mismatch`` where no such cast exists.
    """
    source = operand.type
    if source is None or source == target:
        return Operand(coerce(operand, target, "CAST"), target)
    expr = operand.expr
    if source.kind == "double" and target.kind == "decimal":
        return Operand(once(lambda value: _exact(value, target), expr), target)
    if source.is_numeric and target.is_numeric:
        return Operand(expr.cast(target.polars, strict=False), target)
    if source.kind == "string":
        return Operand(_from_string(expr, target), target)
    if target.kind == "string" and not source.is_nested and source.kind != "bytes":
        return Operand(_to_string(expr, source), target)
    if source.kind == "boolean" and target.is_integer:
        return Operand(expr.cast(target.polars), target)
    if source.kind == "date" and target.kind == "timestamp":
        return Operand(coerce(operand, target, "CAST"), target)
    if source.kind == "timestamp" and target.kind == "date":
        return Operand(expr.dt.date(), target)
    if source.kind == "timestamp" and target.kind == "time":
        return Operand(expr.dt.time(), target)
    inside = rebuilt(expr, source, target, lambda part, own, wanted: cast(Operand(part, own), wanted).expr)
    if inside is not None:
        return Operand(inside, target)
    hint = "; use epoch_ms(…)" if source.kind == "timestamp" else "; use to_timestamp(…)" if target.kind == "timestamp" else ""
    raise ExpressionInvalid("type_mismatch", f"{source} cannot be cast to {target}{hint}")


def _exact(value: pl.Expr, target: ColumnType) -> pl.Expr:
    """Return doubles as decimals, NULL where the rounded value has too many digits: for some of these Polars raises, also if not strict."""
    precision, scale = target.precision or MAX_DECIMAL_PRECISION, target.scale or 0
    fits = (value * 10.0**scale).round().abs() < 10.0**precision
    return pl.when(fits).then(value).cast(target.polars, strict=False)


def _to_string(expr: pl.Expr, source: ColumnType) -> pl.Expr:
    if source.kind == "timestamp":
        return expr.dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ")
    if source.kind == "time":
        return expr.dt.strftime("%H:%M:%S%.f")
    if source.kind == "date":
        return expr.dt.strftime("%Y-%m-%d")
    return expr.cast(pl.String)


def _instant(text: pl.Expr) -> pl.Expr:
    zoned = text.str.to_datetime(_ZONED_TIMESTAMP, time_unit="us", time_zone="UTC", strict=False)
    naive = [text.str.to_datetime(f, time_unit="us", strict=False).dt.replace_time_zone("UTC") for f in _NAIVE_TIMESTAMPS]
    return pl.coalesce(zoned, *naive)


def _from_string(expr: pl.Expr, target: ColumnType) -> pl.Expr:
    if target.kind == "double":
        return finite(expr.cast(pl.Float64, strict=False))
    if target.is_numeric:
        return expr.cast(target.polars, strict=False)
    if target.kind == "boolean":
        lowered = expr.str.to_lowercase()
        return once(lambda text: pl.when(text.is_in(["true", "false"])).then(text == "true"), lowered)
    if target.kind == "date":
        return within_calendar(expr.str.to_date("%Y-%m-%d", strict=False), target)
    if target.kind == "time":
        return expr.str.to_time("%H:%M:%S%.f", strict=False)
    if target.kind == "timestamp":
        return within_calendar(once(_instant, expr.str.replace(" ", "T", literal=True)), target)
    raise ExpressionInvalid("type_mismatch", f"string cannot be cast to {target}")
