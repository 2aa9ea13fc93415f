"""JSON as ksqlDB's functions read and write it: exact numbers, the first value of a text, the last of equal names.

``read`` takes what stands behind the first value for nothing, as long as that value ends where it does; NaN and the like are refused.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NoReturn

from engine.expressions.library.by_value import Unfit
from engine.expressions.library.numbers.numerals import of_double
from engine.expressions.types.types import ColumnType

_BLANKS: Final = " \t\n\r"
_MAX_DIGITS: Final = 4_300
"""Digits of a number without an exponent, as many as Python reads of a whole one: 1e999999 is short only as it stands."""
_ESCAPES: Final = {
    **{code: f"\\u{code:04X}" for code in range(32)},
    **{ord(sign): f"\\{letter}" for sign, letter in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)},
}


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


def escapes() -> dict[str, str]:
    """Return the signs that cannot stand in a JSON text, and how each is written."""
    return {chr(code): made for code, made in _ESCAPES.items()}


def quoted(text: str) -> str:
    """Return a text as JSON."""
    return '"' + text.translate(_ESCAPES) + '"'


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
