"""Conversion of one column from the form it arrived in to its declared type, whole columns at a time.

What does not fit becomes null and is told apart from what was null before. Knows types only: not records, not reasons.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from engine.definition.types import ColumnType

_MAX_MS = 2**63 // 1000
"""Milliseconds beyond this overflow a 64-bit count of microseconds."""

_RFC3339 = "%+"
"""chrono's name for RFC 3339 with a zone; it also takes a space in place of the T."""

Rule = Callable[[pl.Series, ColumnType, bool], "pl.Series | None"]


def conform(raw: pl.Series, declared: ColumnType, *, is_text: bool = False) -> tuple[pl.Series, pl.Series | None]:
    """Convert a column to its declared type.

    Args:
        raw: the values as they arrived.
        declared: the type to reach.
        is_text: the source has no types of its own (CSV): text may stand for any scalar.

    Returns:
        The converted column, and a mask of the values that do not fit, or None where all do.
    """
    target = declared.polars
    if raw.dtype == target:
        return raw, None
    if is_text and raw.dtype == pl.String:
        raw = raw.str.strip_chars()
        raw = raw.set(raw == "", None)
    converted = None if raw.dtype == pl.Null else _RULES[declared.kind](raw, declared, is_text)
    if converted is None:
        converted = pl.Series(raw.name, [None], dtype=target).new_from_index(0, len(raw))
    converted = converted.alias(raw.name)
    if converted.null_count() == raw.null_count():
        return converted, None
    return converted, converted.is_null() & raw.is_not_null()


def conform_values(name: str, values: list[Any], declared: ColumnType) -> tuple[pl.Series, pl.Series | None]:
    """Convert JSON values of one column, as ``json.loads`` gives them, to their declared type.

    A column whose values are all of one allowed type takes the vectorised path; a mixed one is converted type by type.
    """
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pl.Series(name, [None], dtype=declared.polars).new_from_index(0, len(values)), None
    allowed = _JSON_TYPES.get(declared.kind)
    if allowed is None:
        return _nested_values(name, values, declared)
    result: pl.Series | None = None
    for kind in (kind for kind in allowed if kind in kinds):
        part = values if len(kinds) == 1 else [value if type(value) is kind else None for value in values]
        converted, _ = conform(_series(name, part, kind, is_double=declared.kind == "double"), declared, is_text=kind is Decimal)
        result = converted if result is None else result.zip_with(result.is_not_null(), converted)
    if result is None:
        result = pl.Series(name, [None], dtype=declared.polars).new_from_index(0, len(values))
    if result.null_count() == values.count(None):
        return result, None
    return result, result.is_null() & pl.Series(name, [value is not None for value in values])


def _series(name: str, values: list[Any], kind: type, *, is_double: bool) -> pl.Series:
    """Build a column of one Python type; what that column cannot hold (huge integers but in doubles, lone surrogates) becomes null."""
    if kind is Decimal:
        return pl.Series(name, [None if value is None else format(value, "f") for value in values], dtype=pl.String)
    dtype = _DTYPES[kind]
    if kind is int and is_double:
        return pl.Series(name, [None if value is None else _double_of(value) for value in values], dtype=pl.Float64)
    try:
        return pl.Series(name, values, dtype=dtype)
    except (OverflowError, UnicodeEncodeError, TypeError, PolarsError):
        return pl.Series(name, [value if value is None or _is_holdable(value) else None for value in values], dtype=dtype)


def _double_of(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_holdable(value: int | str | float) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not isinstance(value, str) or value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _nested_values(name: str, values: list[Any], declared: ColumnType) -> tuple[pl.Series, pl.Series | None]:
    converted: list[Any] = []
    bad: list[bool] = []
    for value in values:
        try:
            converted.append(_convert(value, declared))
            bad.append(False)
        except ValueError:
            converted.append(None)
            bad.append(True)
    return pl.Series(name, converted, dtype=declared.polars), pl.Series(name, bad) if any(bad) else None


def _convert(value: Any, declared: ColumnType) -> Any:
    """Convert one JSON value; raises ValueError where it does not fit."""
    if value is None:
        return None
    if declared.kind == "array" and declared.element is not None and isinstance(value, list):
        return [_convert(item, declared.element) for item in value]
    if declared.kind == "map" and declared.value is not None and isinstance(value, dict):
        return [{"key": key, "value": _convert(item, declared.value)} for key, item in value.items()]
    if declared.kind == "struct" and isinstance(value, dict):
        types = dict(declared.fields)
        if not value.keys() <= types.keys():
            raise ValueError("unknown field")
        return {field: _convert(value.get(field), kind) for field, kind in declared.fields}
    if declared.is_nested:
        raise ValueError("not of this shape")
    series, bad = conform_values("", [value], declared)
    if bad is not None:
        raise ValueError("not of this type")
    return series.item(0)


def _boolean(raw: pl.Series, declared: ColumnType, is_text: bool) -> pl.Series | None:
    if not is_text or raw.dtype != pl.String:
        return None
    return raw.str.to_lowercase().replace_strict({"true": True, "false": False}, default=None, return_dtype=declared.polars)


def _integer(raw: pl.Series, declared: ColumnType, is_text: bool) -> pl.Series | None:
    if raw.dtype.is_integer():
        return raw.cast(declared.polars, strict=False)
    if raw.dtype.is_numeric():
        whole = raw.cast(declared.polars, strict=False)
        return whole.set(whole.cast(raw.dtype, strict=False) != raw, None)
    if raw.dtype != pl.String or not (declared.kind == "bigint" or is_text):
        return None
    return (raw.str.replace(r"\.0*$", "") if is_text else raw).cast(declared.polars, strict=False)


def _double(raw: pl.Series, declared: ColumnType, is_text: bool) -> pl.Series | None:
    if raw.dtype.is_numeric() or (is_text and raw.dtype == pl.String):
        return raw.cast(declared.polars, strict=False)
    return None


def _decimal(raw: pl.Series, declared: ColumnType, _is_text: bool) -> pl.Series | None:
    if raw.dtype.is_integer():
        return raw.cast(declared.polars, strict=False)
    if raw.dtype.is_numeric():
        raw = raw.cast(pl.String)
    if raw.dtype != pl.String:
        return None
    if raw.str.contains("[eE]").any():
        raw = pl.Series(raw.name, [_without_exponent(text) for text in raw], dtype=pl.String)
    # The cast rounds what has more digits than the scale; a rounded value is not the value that was sent.
    exact = raw.str.contains(rf"^[+-]?\d*(\.\d{{0,{declared.scale or 0}}}0*)?$")
    return raw.cast(declared.polars, strict=False).set(~exact, None)


def _without_exponent(text: str | None) -> str | None:
    """Write ``1.5e3`` as ``1500``; what is no number, or one far beyond any decimal, stays as it is."""
    if text is None or not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d{1,2}", text):
        return text
    return format(Decimal(text), "f")


def _string(raw: pl.Series, declared: ColumnType, _is_text: bool) -> pl.Series | None:
    return raw.cast(declared.polars) if raw.dtype in (pl.Categorical, pl.Enum) else None


def _bytes(raw: pl.Series, _declared: ColumnType, _is_text: bool) -> pl.Series | None:
    return raw.str.decode("base64", strict=False) if raw.dtype == pl.String else None


def _date(raw: pl.Series, _declared: ColumnType, _is_text: bool) -> pl.Series | None:
    return raw.str.to_date("%Y-%m-%d", strict=False) if raw.dtype == pl.String else None


def _time(raw: pl.Series, _declared: ColumnType, _is_text: bool) -> pl.Series | None:
    return raw.str.to_time("%H:%M:%S%.f", strict=False) if raw.dtype == pl.String else None


def _timestamp(raw: pl.Series, declared: ColumnType, is_text: bool) -> pl.Series | None:
    if isinstance(raw.dtype, pl.Datetime):  # Arrow and Parquet without a zone mean UTC
        aware = raw.dt.replace_time_zone("UTC") if raw.dtype.time_zone is None else raw.dt.convert_time_zone("UTC")
        return aware.cast(declared.polars)
    if raw.dtype.is_integer():
        return _from_ms(raw.cast(pl.Int64, strict=False), declared)
    if raw.dtype != pl.String:
        return None
    parsed = raw.str.to_datetime(_RFC3339, time_unit="us", time_zone="UTC", strict=False)
    if is_text and parsed.null_count() > raw.null_count():
        parsed = parsed.zip_with(parsed.is_not_null(), _from_ms(raw.cast(pl.Int64, strict=False), declared))
    return parsed


def _from_ms(ms: pl.Series, declared: ColumnType) -> pl.Series:
    held = ms.set(ms.is_between(-_MAX_MS, _MAX_MS, closed="none").not_(), None)
    return (held * 1000).cast(pl.Datetime("us")).dt.replace_time_zone("UTC").cast(declared.polars)


def _nested(raw: pl.Series, declared: ColumnType, _is_text: bool) -> pl.Series | None:
    try:
        return raw.cast(declared.polars) if raw.dtype.is_nested() else None
    except PolarsError:
        return None


_RULES: dict[str, Rule] = {
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
    "array": _nested,
    "map": _nested,
    "struct": _nested,
}
_DTYPES: dict[type, pl.DataType] = {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64(), str: pl.String()}
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int, float, Decimal),
    "bigint": (int, float, Decimal, str),
    "double": (float, int, Decimal),
    "decimal": (Decimal, int, str, float),
    "string": (str,),
    "bytes": (str,),
    "date": (str,),
    "time": (str,),
    "timestamp": (str, int),
}
