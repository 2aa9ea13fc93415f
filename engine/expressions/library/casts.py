"""CAST as ksqlDB does it, which is what it does in Java: numbers wrap or stop at their bounds, and every value has a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import written_text
from engine.expressions.library.by_value import by_value
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.library.json.json_values import of_double
from engine.expressions.library.times.time_parsing import date_of, time_of, timestamp_of
from engine.expressions.types.types import BOOLEAN, STRING, ColumnType, Kind, parse_type
from engine.expressions.values.evaluation_errors import Gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand, cast
from engine.expressions.values.rebuilding import rebuilt

_BITS: Final = {"int": 32, "bigint": 64}
_NUMBERS: Final[frozenset[Kind]] = frozenset({"int", "bigint", "decimal", "double"})
_TARGETS: Final[Mapping[Kind, frozenset[Kind]]] = {
    **dict.fromkeys(_NUMBERS, _NUMBERS | {"string"}),
    "boolean": frozenset({"string"}), "string": _NUMBERS | {"boolean", "timestamp", "time", "date", "bytes"},
    "timestamp": frozenset({"string", "time", "date"}), "date": frozenset({"string", "timestamp"}), "time": frozenset({"string"}),
    "bytes": frozenset(), "array": frozenset({"string"}), "map": frozenset({"string"}), "struct": frozenset({"string"}),
}  # fmt: skip
"""What a value of a type can become, its own kind aside."""


def ksql_cast(arguments: Arguments) -> Operand:
    try:
        target = parse_type(written_text("ksql_cast", arguments[1]))
    except ValueError as error:
        raise ExpressionInvalid("type_mismatch", f"CAST: {error}") from error
    value = arguments[0]
    if value.type is None or value.type == target:
        return cast(value, target)
    return Operand(_converted(value.expr, value.type, target), target)


def _converted(value: pl.Expr, source: ColumnType, target: ColumnType) -> pl.Expr:
    if target.kind != source.kind and target.kind not in _TARGETS[source.kind]:
        hint = "; use from_bytes(…)" if source.kind == "bytes" else ""
        raise ExpressionInvalid("type_mismatch", f"{source} cannot be cast to {target}{hint}")
    if source.is_nested and target == STRING:
        return by_value(lambda given: _text(given, source), [value], STRING).expr
    inside = rebuilt(value, source, target, _converted) if target.is_nested else None
    if inside is not None:
        return inside
    if target == STRING:
        return _as_text(value, source)
    if source.is_numeric and target.is_integer:
        return _whole(value, source, target)
    if source == STRING and target.kind in _OF_TEXTS:
        return _OF_TEXTS[target.kind](value.str.strip_chars())
    if source == STRING and not target.is_nested and target.kind != "bytes":
        return cast(Operand(value.str.strip_chars(), source), target).expr
    if source == STRING and target.kind == "bytes":
        return value.str.strip_chars().str.decode("base64", strict=False)
    return cast(Operand(value, source), target).expr


def _boolean(text: pl.Expr) -> pl.Expr:
    """Whatever does not begin true or yes, or is one of both, is false."""
    return text.str.to_lowercase().is_in(("t", "tr", "tru", "true", "y", "ye", "yes"))


_OF_TEXTS: Final[dict[str, Callable[[pl.Expr], pl.Expr]]] = {
    "boolean": _boolean, "date": date_of, "time": time_of, "timestamp": timestamp_of,
}  # fmt: skip


def _whole(value: pl.Expr, source: ColumnType, target: ColumnType) -> pl.Expr:
    """Return numbers as whole ones: doubles stop at the bounds of the type, others lose the bits that have no place."""
    bits = _BITS[target.kind]
    if source.kind == "double":
        most = 2 ** (bits - 1)

        def build(number: pl.Expr) -> pl.Expr:
            low = (
                pl.when(number.is_nan())
                .then(0)
                .when(number >= float(most))
                .then(most - 1)
                .when(number <= float(-most))
                .then(-most)
            )
            return low.otherwise(number.truncate().cast(pl.Int64, strict=False)).cast(target.polars)

        return once(build, value)
    wide = value.cast(pl.Int128)
    half = 1 << (bits - 1)
    return ((wide + half) % (1 << bits) - half).cast(target.polars)


def _as_text(value: pl.Expr, source: ColumnType) -> pl.Expr:
    match source.kind:
        case "double":
            return by_value(of_double, [value], STRING).expr
        case "timestamp":
            return value.dt.strftime("%Y-%m-%dT%H:%M:%S%.3f")
        case "time":
            return once(_time, value)
        case _:
            return cast(Operand(value, source), STRING).expr


def _time(value: pl.Expr) -> pl.Expr:
    return pl.when(value.dt.second() == 0).then(value.dt.strftime("%H:%M")).otherwise(value.dt.strftime("%H:%M:%S"))


def _text(value: Any, kind: ColumnType) -> str:
    """Return a value inside a nested one as Java prints it."""
    match kind:
        case _ if value is None:
            return "null"
        case ColumnType(kind="array", element=ColumnType() as element):
            return f"[{', '.join(_text(each, element) for each in value)}]"
        case ColumnType(kind="map", value=ColumnType() as inner):
            return "{" + ", ".join(f"{each['key']}={_text(each['value'], inner)}" for each in value) + "}"
        case ColumnType(kind="struct", fields=fields):
            shown = (f"{name}={_text(value[name], field)}" for name, field in fields if value[name] is not None)
            return "Struct{" + ",".join(shown) + "}"
        case ColumnType(kind="double"):
            return of_double(value)
        case _ if kind == BOOLEAN:
            return "true" if value else "false"
        case _:
            return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _note(gaps: Gaps, arguments: Arguments, result: Operand) -> None:
    """Note where a text is none of the type; what fails inside a nested value looks like a NULL there."""
    if arguments[0].type is not None and not arguments[0].type.is_nested:
        gaps.after_cast(arguments[0], result)


CASTS: Final = (
    Function(
        "ksql_cast", "x: any, type: string", "the type",
        "x as ksqlDB's CAST makes it: whole numbers wrap, every value has a text, texts of dates and times may lack their ends, and texts "
        "other than true and yes are false.",
        (
            Example("ksql_cast(2147483648, 'int')", -2147483648), Example("ksql_cast(1e10, 'string')", "1.0E10"),
            Example("ksql_cast(ARRAY[1, 2], 'string')", "[1, 2]"), Example("ksql_cast('2013-01', 'timestamp')", "2013-01-01T00:00:00Z"),
        ),
        ksql_cast, gaps=_note,
    ),
)  # fmt: skip
