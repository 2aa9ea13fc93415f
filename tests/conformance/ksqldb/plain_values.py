"""Columns as plain values for display in records: JSON values, without the text.

Booleans, integers, doubles, texts and decimals are unchanged (NaN and infinity are texts, because JSON has no such numbers), bytes are
base64, a date counts days, a time the milliseconds of its day, a timestamp milliseconds since 1970; arrays are lists, maps and structs dicts.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

import polars as pl

from engine.expressions.types.types import ColumnType

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DAY: Final = date(1970, 1, 1)
_MS: Final = timedelta(milliseconds=1)
_NS_PER_MS: Final = 1_000_000
_US_PER_MS: Final = 1_000

Plain = Callable[[Any], Any]


def plain_column(column: pl.Series, declared: ColumnType) -> list[Any]:
    """Return the values of a column."""
    match declared.kind:
        case "date":
            return column.to_physical().to_list()
        case "time":
            return (column.to_physical() // _NS_PER_MS).to_list()
        case "timestamp":
            return (column.to_physical() // _US_PER_MS).to_list()
        case "bytes":
            return column.bin.encode("base64").to_list()
        case "double":
            values = column.to_list()
            return values if column.is_finite().all() else [_or_null(_double)(value) for value in values]
        case "boolean" | "int" | "bigint" | "string" | "decimal":
            return column.to_list()
    convert = plain_value(declared)
    return [convert(value) for value in column.to_list()]


def plain_value(declared: ColumnType) -> Plain:
    """Return a function that makes plain values of Polars' values."""
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            item = plain_value(element)
            return _or_null(lambda values: [item(value) for value in values])
        case ColumnType(kind="map", value=ColumnType() as inner):
            entry = plain_value(inner)
            return _or_null(lambda entries: {each["key"]: entry(each["value"]) for each in entries})
        case ColumnType(kind="struct", fields=fields):
            of_fields = [(name, plain_value(field)) for name, field in fields]
            return _or_null(lambda struct: {name: convert(struct[name]) for name, convert in of_fields})
        case _:
            return _or_null(_LEAVES.get(declared.kind, _same))


def _or_null(convert: Plain) -> Plain:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _milliseconds_of_day(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000 + value.microsecond // _US_PER_MS


_LEAVES: Final[dict[str, Plain]] = {
    "bytes": lambda value: base64.b64encode(value).decode(),
    "date": lambda value: (value - FIRST_DAY).days,
    "double": _double,
    "time": _milliseconds_of_day,
    "timestamp": lambda value: (value - EPOCH) // _MS,
}
