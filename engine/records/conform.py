"""Conversion of one column from its received form to its declared type, whole columns at a time and at every depth.

Values that do not fit become null and are marked, to distinguish them from nulls. Knows types only: not records, not reasons.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

import polars as pl

from engine.expressions.types.types import STRING, ColumnType
from engine.frames.nesting import KEY, VALUE, as_lists, either, elements_of, lists_from, rows_with, structs_from

_MAX_MS = 2**63 // 1000
"""Milliseconds beyond this overflow a 64-bit count of microseconds."""

_RFC3339 = "%+"
"""chrono's name for RFC 3339 with a zone; it also accepts a space in place of the T."""

_WITH_EXPONENT = re.compile(r"[+-]?(\d++\.?\d*+|\.\d++)[eE][+-]?\d{1,2}")
"""Possessive: plain repeats would try every split of a long number's digits, the square of their number."""

Rule = Callable[[pl.Series, ColumnType, bool], "pl.Series | None"]


def conform(raw: pl.Series, declared: ColumnType, *, is_text: bool = False) -> tuple[pl.Series, pl.Series | None]:
    """Convert a column to its declared type.

    Args:
        raw: the received values.
        declared: the target type.
        is_text: the source has no types of its own (CSV): text may stand for any scalar.

    Returns:
        The converted column, and a mask of the values that do not fit, or None if all do.
    """
    target = declared.polars
    if raw.dtype == target:
        return raw, None
    if is_text and raw.dtype == pl.String:
        raw = raw.str.strip_chars()
        raw = raw.set(raw == "", None)
    converted = None if raw.dtype == pl.Null else _RULES[declared.kind](raw, declared, is_text)
    if converted is None:
        converted = nulls(raw.name, declared, len(raw))
    converted = converted.alias(raw.name)
    if converted.null_count() == raw.null_count():
        return converted, None
    return converted, converted.is_null() & raw.is_not_null()


def nulls(name: str, declared: ColumnType, rows: int) -> pl.Series:
    """Return a column of nulls."""
    return pl.Series(name, [None], dtype=declared.polars).new_from_index(0, rows)


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
    # The cast rounds values with more digits than the scale; a rounded value is not the value that was sent.
    exact = raw.str.contains(rf"^[+-]?\d*(\.\d{{0,{declared.scale or 0}}}0*)?$")
    return raw.cast(declared.polars, strict=False).set(~exact, None)


def _without_exponent(text: str | None) -> str | None:
    """Write ``1.5e3`` as ``1500``; a text that is no number, or far beyond any decimal, is unchanged."""
    if text is None or not _WITH_EXPONENT.fullmatch(text):
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
        return aware.cast(declared.polars, strict=False)
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


def _array(raw: pl.Series, declared: ColumnType, _is_text: bool) -> pl.Series | None:
    lists = as_lists(raw)
    if not isinstance(lists.dtype, pl.List) or isinstance(raw.dtype, pl.Map) or declared.element is None:
        return None
    inside = elements_of(lists)
    values, bad = conform(inside.values, declared.element)
    is_null = inside.is_null if bad is None else inside.is_null | rows_with(bad, inside.sizes)
    return lists_from(values, inside.sizes, is_null)


def _map(raw: pl.Series, declared: ColumnType, _is_text: bool) -> pl.Series | None:
    lists = as_lists(raw)
    entry = lists.dtype.inner if isinstance(lists.dtype, pl.List) else None
    if not isinstance(entry, pl.Struct) or {field.name for field in entry.fields} != {KEY, VALUE} or declared.value is None:
        return None
    inside = elements_of(lists)
    keys, bad_keys = conform(inside.values.struct.field(KEY), STRING)
    values, bad_values = conform(inside.values.struct.field(VALUE), declared.value)
    bad = either(either(bad_keys, bad_values), keys.is_null() if keys.null_count() else None)
    is_null = inside.is_null if bad is None else inside.is_null | rows_with(bad, inside.sizes)
    return lists_from(structs_from([keys, values], inside.values.is_null()), inside.sizes, is_null)


def _struct(raw: pl.Series, declared: ColumnType, _is_text: bool) -> pl.Series | None:
    """Return a struct column: absent fields are null, and values with an undeclared field are refused, as in JSON."""
    if not isinstance(raw.dtype, pl.Struct):
        return None
    given = {field.name: raw.struct.field(field.name) for field in raw.dtype.fields}
    is_null = raw.is_null()
    fields = []
    for name, kind in declared.fields:
        values, bad = conform(given.pop(name), kind) if name in given else (nulls(name, kind, len(raw)), None)
        fields.append(values.alias(name))
        is_null = is_null if bad is None else is_null | bad
    for strange in given.values():
        is_null |= strange.is_not_null()
    return structs_from(fields, is_null)


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
    "array": _array,
    "map": _map,
    "struct": _struct,
}
