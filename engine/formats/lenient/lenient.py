"""JSON values converted to the types of columns as in ksqlDB: more lenient than strict reading, but without guesses.

- Numbers become whole by dropping the digits after the point, and may be texts; a decimal must fit without rounding.
- A text accepts any value: numbers and booleans as written, objects and arrays as their text.
- Fields of structs are found by their name, else by their name in upper case; unknown ones are ignored, missing ones are null.
- Entries of maps are sorted by key: maps with equal entries are equal values.
- Bytes are base64; dates, times and timestamps are numbers (days, milliseconds of the day, milliseconds since 1970), or texts of them.

Unlike in ksqlDB, a number too large for its type cannot be read; it does not become another number.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, DecimalException
from typing import Any, Final

from engine.expressions.library.json.json_values import of_double
from engine.expressions.types.types import ColumnType
from engine.formats.json.json_values import MAX_ZEROS, double_of

Reader = Callable[[Any], Any]
"""Takes a JSON value, not null; returns a value for Polars. Raises Unreadable."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = date(1970, 1, 1)
_DAY_MS: Final = 86_400_000
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_DOUBLE: Final = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[dDfF]?")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_EXACT: Final = Context(prec=80)
"""Enough digits for any decimal during its conversion to its scale."""

_MOST: Final = 10**40
"""No type of whole numbers holds this value."""


_quoted = json.JSONEncoder(ensure_ascii=False).encode


class Unreadable(ValueError):
    """A value does not fit its type, even with leniency. The text shows the value and the type."""


def reader(declared: ColumnType) -> Reader:
    """Return the reader of a type's values; nulls are read as null at every depth."""
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            item = or_null(reader(element))
            return lambda value: [item(each) for each in _of(list, value, declared)]
        case ColumnType(kind="map", value=ColumnType() as inner):
            entry = or_null(reader(inner))
            return lambda value: [
                {"key": key, "value": entry(each)} for key, each in sorted(_of(dict, value, declared).items(), key=_key)
            ]
        case ColumnType(kind="struct", fields=fields):
            readers = [(name, or_null(reader(field))) for name, field in fields]
            return lambda value: _struct(_of(dict, value, declared), readers)
        case ColumnType(kind="decimal", precision=int() as precision, scale=int() as scale):
            return lambda value: fitting(_digits(value, declared), precision, scale)
        case _:
            return LEAVES[declared.kind]


def json_text(value: Any) -> str:
    """Write a plain value as JSON, without spaces: decimals keep their digits, which the standard encoder cannot write.

    A decimal with very many zeros is written with an exponent: a few bytes of JSON can stand for a number whose digits fill the memory.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case int():
            return str(value)
        case Decimal():
            return format(value, "f") if abs(value.adjusted()) <= MAX_ZEROS else str(value)
        case float():
            return of_double(value) if math.isfinite(value) else _quoted(of_double(value))
        case dict():
            return "{" + ",".join(f"{_quoted(name)}:{json_text(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def _key(entry: tuple[str, Any]) -> str:
    return entry[0]


def or_null(read: Reader) -> Reader:
    """Return a reader that reads null as null."""
    return lambda value: None if value is None else read(value)


def field_of(record: dict[str, Any], name: str) -> Any:
    """Return a record's value under a name, else under this name in upper case; None if it has neither."""
    if name in record:
        return record[name]
    return next((value for key, value in reversed(record.items()) if key.upper() == name), None)


def fitting(value: Decimal, precision: int, scale: int) -> Decimal:
    """Convert a decimal to a scale. Raises Unreadable if this would drop digits, or there are too many."""
    if value and value.adjusted() >= precision - scale:
        raise Unreadable(f"{value} has too many digits for decimal({precision},{scale})")
    try:
        fitted = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except DecimalException:
        fitted = None
    if fitted is None or fitted != value:
        raise Unreadable(f"{value} does not fit into decimal({precision},{scale}) without rounding")
    return fitted


def _struct(record: dict[str, Any], readers: list[tuple[str, Reader]]) -> dict[str, Any]:
    return {name: read(field_of(record, name)) for name, read in readers}


def _of(kind: type, value: Any, declared: ColumnType) -> Any:
    if type(value) is not kind:
        raise _not(value, declared)
    return value


def _not(value: Any, declared: ColumnType | str) -> Unreadable:
    return Unreadable(f"{json_text(value)[:100]} is no {declared}")


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _not(value, "boolean")
    return value


def _integer(kind: str, least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = _whole(value, kind)
        if not least <= number <= most:
            raise Unreadable(f"{number} does not fit into {kind}")
        return number

    return read


def _whole(value: Any, kind: str) -> int:
    if isinstance(value, bool):
        raise _not(value, kind)
    if isinstance(value, int):
        return value
    if isinstance(value, (Decimal, float)) and -_MOST < value < _MOST:
        return int(value)
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    raise _not(value, kind)


def _double(value: Any) -> float:
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return double_of(value)
    if isinstance(value, str) and _DOUBLE.fullmatch(value.strip()):
        return float(value.strip().rstrip("dDfF"))
    raise _not(value, "double")


def _digits(value: Any, declared: ColumnType) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return Decimal(value)
    raise _not(value, declared)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join("null" if each is None else _text(each) for each in value) + "]"
    text = json_text(value) if isinstance(value, (dict, bool)) else str(value)
    if not text.isascii() and not _is_unicode(text):
        raise Unreadable("half of a surrogate pair is no text")
    return text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _not(value, "base64") from None


def _date(value: Any) -> date:
    try:
        return _FIRST_DAY + timedelta(days=_whole(value, "date"))
    except OverflowError:
        raise Unreadable(f"the day {value} is not in the years 1 to 9999") from None


def _time(value: Any) -> time:
    ms = _whole(value, "time")
    if not 0 <= ms < _DAY_MS:
        raise Unreadable(f"a time is 0 to {_DAY_MS - 1} ms of the day, not {ms}")
    return (_EPOCH + timedelta(milliseconds=ms)).time()


def _timestamp(value: Any) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=_whole(value, "timestamp"))
    except OverflowError:
        raise Unreadable(f"{value} ms is not in the years 1 to 9999") from None


LEAVES: Final[dict[str, Reader]] = {
    "boolean": _boolean,
    "int": _integer("int", -(2**31), 2**31 - 1),
    "bigint": _integer("bigint", -(2**63), 2**63 - 1),
    "double": _double,
    "string": _text,
    "bytes": _bytes,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
}
