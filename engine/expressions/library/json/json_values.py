"""JSON as ksqlDB's functions read and write it: exact numbers, the first value of a text, the last of equal names.

``read`` takes what stands behind the first value for nothing, as long as that value ends where it does; NaN and the like are refused.
``of_column`` writes any value; ``written_as_json`` writes whole columns of the types whose texts Polars writes alike.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NoReturn

import polars as pl

from engine.errors import InvariantBroken
from engine.expressions.library.by_value import Unfit
from engine.expressions.types.types import STRING, ColumnType
from engine.expressions.values.rebuilding import KEY, VALUE

_BLANKS: Final = " \t\n\r"
_MAX_DIGITS: Final = 4_300
"""Digits of a number without an exponent, as many as Python reads of a whole one: 1e999999 is short only as it stands."""
_ESCAPES: Final = {
    **{chr(code): f"\\u{code:04X}" for code in range(32)},
    **{sign: f"\\{letter}" for sign, letter in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)},
}
"""The signs that cannot stand in a JSON text, and how each is written."""

_ESCAPED: Final = str.maketrans(_ESCAPES)


def _refuse(_word: str) -> NoReturn:
    raise ValueError


_WRITER: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))
_READER: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse)


def read(text: str) -> Any:
    """Return the value that a text begins with. Raises Unfit where there is none."""
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        value, end = _READER.raw_decode(text, start)
        if "\\u" in text:
            json.dumps(value, default=str, ensure_ascii=False).encode()  # which fails for half a character
    except (ValueError, RecursionError) as error:
        raise Unfit from error
    if not isinstance(value, str | list | dict) and end < len(text) and text[end] not in _BLANKS:
        raise Unfit
    return value


def written(value: Any, *, is_plain: bool) -> str:
    """Return a value that was read as JSON without blanks; ``is_plain``: no number has an exponent."""
    number = _plain if is_plain else str
    if not isinstance(value, dict | list):
        return _written(value, number)
    try:
        made = _WRITER.encode(value)
    except TypeError:  # of a Decimal
        return _written(value, number)
    return _written(value, str) if "\\u00" in made else made  # it writes \u001f, and we \u001F


def _plain(number: Decimal) -> str:
    if abs(number.adjusted()) > _MAX_DIGITS:
        raise Unfit
    return f"{number:f}"


def shown(value: Any) -> str:
    """Return a text itself, and anything else as JSON."""
    return value if isinstance(value, str) else written(value, is_plain=False)


def _written(value: Any, number: Callable[[Decimal], str]) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(name)}:{_written(each, number)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_written(each, number) for each in value) + "]"
    if isinstance(value, Decimal):
        return number(value)
    return {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)


def quoted(text: str) -> str:
    return '"' + text.translate(_ESCAPED) + '"'


def of_column(value: Any, kind: ColumnType) -> str:
    """Return a value of a column as JSON: structs and maps sorted by name, times as ksqlDB writes them."""
    if value is None:
        return "null"
    if kind.kind == "array" and kind.element is not None:
        return "[" + ",".join(of_column(each, kind.element) for each in value) + "]"
    if kind.kind == "struct":
        return (
            "{"
            + ",".join(f"{quoted(name)}:{of_column(value[name], field)}" for name, field in sorted(kind.fields, key=_first))
            + "}"
        )
    if kind.kind == "map" and kind.value is not None:
        items = sorted((str(entry["key"]), entry["value"]) for entry in value) if value else []
        return "{" + ",".join(f"{quoted(name)}:{of_column(each, kind.value)}" for name, each in items) + "}"
    return _scalar(value)


def _first(pair: tuple[str, ColumnType]) -> str:
    return pair[0]


def _scalar(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return of_double(value) if abs(value) < float("inf") else quoted(of_double(value))
        case Decimal():
            return f"{value:f}"
        case bytes():
            return quoted(base64.b64encode(value).decode())
        case dt.datetime():
            return quoted(value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}")
        case dt.time():
            return quoted(value.strftime("%H:%M:%S" if value.second else "%H:%M"))
    return str(value) if isinstance(value, int) else quoted(str(value))


_WRITTEN_ALIKE: Final = ("string", "boolean", "int", "bigint")


def is_written_by_polars(kind: ColumnType) -> bool:
    """Whether ``written_as_json`` takes values of a type: doubles, bytes, decimals and times, and what holds them, it does not."""
    return all(map(is_written_by_polars, kind.inner)) if kind.is_nested else kind.kind in _WRITTEN_ALIKE


def written_as_json(value: pl.Expr, kind: ColumnType) -> pl.Expr:
    """Return values as JSON, NULL as ``null``.

    Args:
        value: the values, used several times (``once``).
        kind: their type, of those that ``is_written_by_polars`` knows.
    """
    match kind:
        case ColumnType(kind="array", element=ColumnType() as element):
            made = _between("[", value.list.eval(written_as_json(pl.element(), element)).list.join(","), "]")
        case ColumnType(kind="map", value=ColumnType() as held):
            entry = pl.element().struct
            name, inside = written_as_json(entry.field(KEY), STRING), written_as_json(entry.field(VALUE), held)
            pairs = value.list.eval(pl.element().sort_by(entry.field(KEY))).list.eval(pl.concat_str(name, pl.lit(":"), inside))
            made = _between("{", pairs.list.join(","), "}")
        case ColumnType(kind="struct"):
            made = _struct(value, kind)
        case ColumnType(kind="string"):
            made = _between('"', value.str.replace_many(_ESCAPES), '"')
        case ColumnType(kind="boolean"):
            made = pl.when(value).then(pl.lit("true")).otherwise(pl.lit("false"))
        case ColumnType(kind="int" | "bigint"):
            made = value.cast(pl.String)
        case _:
            raise InvariantBroken(f"values of type {kind} are written one by one")
    return pl.when(value.is_not_null()).then(made).otherwise(pl.lit("null"))


def _struct(value: pl.Expr, kind: ColumnType) -> pl.Expr:
    parts: list[pl.Expr] = []
    for place, (name, field) in enumerate(sorted(kind.fields, key=lambda pair: pair[0])):
        parts += [pl.lit(("," if place else "{") + quoted(name) + ":"), written_as_json(value.struct.field(name), field)]
    return pl.concat_str(*parts, pl.lit("}"))


def _between(opening: str, text: pl.Expr, closing: str) -> pl.Expr:
    return pl.concat_str(pl.lit(opening), text, pl.lit(closing))


def of_double(value: float) -> str:
    """Return the shortest digits that read as the double, as Java writes them: ``1.0``, ``1.0E10``, ``NaN``, ``Infinity``.

    >>> of_double(0.001), of_double(1e7), of_double(1.5e-5), of_double(-math.inf)
    ('0.001', '1.0E7', '1.5E-5', '-Infinity')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = f"{Decimal(repr(value)):f}"
        return plain if "." in plain else f"{plain}.0"
    exact = Decimal(repr(value))
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    if len(digits) == 1:  # with two digits to choose Java takes the nearest number: 4.9E-324
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}E{int(exponent)}"
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:]}E{exact.adjusted()}"
