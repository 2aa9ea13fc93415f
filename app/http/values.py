"""Values in URLs: parse them into the Python type of their column, or refuse them with the expected form; times for people. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import NoReturn

import polars as pl

from engine.expressions.types.types import ColumnType
from engine.formats.json.json_values import conform_values
from engine.formats.json.nested_json import json_texts
from engine.records.scalars import scalar_faults

MAX_INSTANT_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, as for event times (T8)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMERIC_DIGITS, _NUMERIC_SCALE = 131_072, 16_383
"""Digits that Postgres's numeric has before and after the point."""

_INTEGER_BITS = {"int": 31, "bigint": 63}


def parse_value(text: str, declared: ColumnType) -> object:
    """Parse one value.

    Raises:
        ValueError: with the form of a value of this type.
    """
    if declared.is_nested:
        return _json(text, declared)
    try:
        return _PARSERS[declared.kind](text, declared)
    except (ValueError, InvalidOperation, OverflowError, binascii.Error) as error:
        raise ValueError(f"{text[:40]!r} is not {_FORMS.get(declared.kind, f'a {declared}')}") from error


def parse_stored(text: str, declared: ColumnType) -> object:
    """Parse a value that a column of the type can store. ``parse_value`` also accepts values that can only be compared.

    Raises:
        ValueError: as ``parse_value``; or the value has more digits than the type, or is an instant outside of the years of UTC.
    """
    if declared.is_nested:
        return _nested(text, declared).to_list()[0]
    value = parse_value(text, declared)
    if isinstance(value, Decimal):
        return _rescaled(value, text, declared)
    if isinstance(value, datetime):
        try:
            return value.astimezone(UTC)
        except OverflowError as error:
            raise ValueError(f"{text[:40]!r} is not {_FORMS['timestamp']}, in the years 1 to 9999") from error
    return value


def _rescaled(value: Decimal, text: str, declared: ColumnType) -> Decimal:
    scale, precision = declared.scale or 0, declared.precision or 0
    rounded = Decimal(0).scaleb(-scale)
    if value:
        # Test the size first: an exponent is short, but its digits are not.
        if value.adjusted() >= precision - scale:
            raise ValueError(f"{text[:40]!r} is not a {declared}: it has more digits before the point")
        rounded = value.quantize(rounded, context=Context(prec=precision + 1))
    if rounded != value:
        raise ValueError(f"{text[:40]!r} is not a {declared}: it has more digits behind the point")
    return rounded


def parse_instant_ms(text: str) -> int:
    """Parse a time parameter: RFC 3339 with a zone, or whole milliseconds since 1970.

    Raises:
        ValueError: the text is neither, or outside 1970 to 9999.
    """
    form = (
        "a time is RFC 3339 with a zone (2013-01-01T12:00:00Z) or milliseconds since 1970 (1357041600000), between 1970 and 9999"
    )
    try:
        if text.isascii() and text.lstrip("-").isdigit():
            ms = int(text)
        else:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                raise ValueError(form)
            ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as error:
        hint = "; write + as %2B in a URL" if " " in text[19:] else ""
        raise ValueError(form + hint) from error
    if not 0 <= ms <= MAX_INSTANT_MS:
        raise ValueError(form)
    return ms


def parse_position(text: str) -> dict[str, dict[str, int]]:
    """Parse a position in the form of answers: a JSON object of feed to partition to next offset.

    Raises:
        ValueError: the text is not a position.
    """
    form = (
        'a position is the value of an answer\'s `position`, such as {"log:departures":{"0":9000}}: feed, partition, next offset'
    )
    try:
        position = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(form) from error
    if not isinstance(position, dict) or not all(isinstance(partitions, dict) for partitions in position.values()):
        raise ValueError(form)
    for partitions in position.values():
        for partition, offset in partitions.items():
            is_number = isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0
            if not is_number or not (partition.isascii() and partition.isdigit()):
                raise ValueError(form)
    return position


def is_text(text: str) -> bool:
    """Return whether the database can store a text: not U+0000, and not a half of a surrogate pair, though JSON can write both."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def instant(ms: int) -> datetime:
    """Return the moment ``ms`` milliseconds after 1970."""
    return _EPOCH + timedelta(milliseconds=ms)


def _boolean(text: str, _declared: ColumnType) -> bool:
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def _integer(text: str, declared: ColumnType) -> int:
    value = int(text) if text.isascii() and "_" not in text else _refuse()
    bits = _INTEGER_BITS[declared.kind]
    return value if -(2**bits) <= value < 2**bits else _refuse()


def _double(text: str, _declared: ColumnType) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse()


def _decimal(text: str, _declared: ColumnType) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        _refuse()
    exponent = value.as_tuple().exponent
    is_holdable = isinstance(exponent, int) and exponent >= -_NUMERIC_SCALE and value.adjusted() < _NUMERIC_DIGITS
    return value if is_holdable else _refuse()


def _string(text: str, _declared: ColumnType) -> str:
    return text if is_text(text) else _refuse()


def _bytes(text: str, _declared: ColumnType) -> bytes:
    return base64.b64decode(text, validate=True)


def _date(text: str, _declared: ColumnType) -> date:
    return date.fromisoformat(text)


def _time(text: str, _declared: ColumnType) -> time:
    value = time.fromisoformat(text)
    return value if value.tzinfo is None else _refuse()


def _timestamp(text: str, _declared: ColumnType) -> datetime:
    if text.isascii() and text.isdigit():
        return instant(parse_instant_ms(text))
    value = datetime.fromisoformat(text)
    return value if value.tzinfo is not None else _refuse()


def _refuse() -> NoReturn:
    raise ValueError


def _json(text: str, declared: ColumnType) -> str:
    """Return a nested value as JSON, the form of materialised tables."""
    return str(json_texts(_nested(text, declared), declared).item())


def _nested(text: str, declared: ColumnType) -> pl.Series:
    form = f"{text[:40]!r} is not {declared}: write it in JSON, as in records"
    try:
        value = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise ValueError(form) from error
    values, bad = conform_values("value", [value], declared)
    if bad is not None or value is None or scalar_faults(values, declared):
        raise ValueError(form)
    return values


_PARSERS: dict[str, Callable[[str, ColumnType], object]] = {
    "boolean": _boolean,
    "int": _integer,
    "bigint": _integer,
    "double": _double,
    "decimal": _decimal,
    "string": _string,
    "bytes": _bytes,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
}
_FORMS = {
    "boolean": "true or false",
    "int": "a whole number of 32 bits",
    "bigint": "a whole number of 64 bits",
    "double": "a finite number",
    "decimal": "a decimal number",
    "string": "text without the character U+0000 and without half of a surrogate pair",
    "bytes": "base64",
    "date": "a date such as 2013-01-31",
    "time": "a time of day such as 13:45:00",
    "timestamp": "a time such as 2013-01-01T12:00:00Z",
}


def shown(ms: int | None) -> str:
    """Return an event time as RFC 3339, with milliseconds only if they are not 0."""
    if ms is None:
        return "nothing yet"
    if not 0 <= ms <= MAX_INSTANT_MS:
        return f"{ms} ms"
    text = instant(ms).isoformat(timespec="milliseconds" if ms % 1000 else "seconds")
    return text.replace("+00:00", "Z")
