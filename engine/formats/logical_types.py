"""Values of an Avro or Protocol Buffers schema, prepared for ``conform``: logical types applied, undeclared fields left out.

A number keeps its value if the column is a number too, for any logical type: ``timestamp-micros`` in a bigint counts microseconds.
Whole columns at a time, at every depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import polars as pl

from engine.expressions.types.types import ColumnType
from engine.formats.big_decimals import decimals_of
from engine.formats.shapes import Shape
from engine.frames.nesting import KEY, VALUE, Elements, as_lists, either, elements_of, lists_from, rows_with, structs_from

Lifted = tuple[pl.Series, "pl.Series | None"]
"""The values, and a mask of those that their meaning does not allow (or None)."""

_US_PER_MS: Final = 1_000
_NS_PER_US: Final = 1_000
_US_PER_S: Final = 1_000_000
_MOST_US: Final = 2**63 - 1
_DAY_NS: Final = 86_400_000_000_000
_MOST_DAYS: Final = 2**31 - 1


def converted(values: pl.Series, shape: Shape, declared: ColumnType) -> Lifted:
    """Convert a column's values to the form that ``conform`` validates.

    Args:
        values: as read, of type ``arrow_type(shape)``.
        shape: from the schema.
        declared: the column's type.
    """
    if values.dtype == pl.Null:
        return values, None
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element) if shape.kind == "array" and shape.element is not None:
            inside = elements_of(as_lists(values))
            inner, bad = converted(inside.values, shape.element, element)
            return lists_from(inner, inside.sizes, inside.is_null).alias(values.name), None if bad is None else rows_with(
                bad, inside.sizes
            )
        case ColumnType(kind="map", value=ColumnType() as value) if shape.kind == "map" and shape.element is not None:
            return _map(values, shape.element, value)
        case ColumnType(kind="struct", fields=fields) if shape.kind in ("struct", "union"):
            return _struct(values, shape, fields)
    if shape.kind == "enum" and declared.kind == "string":
        return _symbols(values, shape), None
    if declared.is_integer and shape.meaning not in ("decimal", "duration") and shape.kind != "struct":
        return values, None
    rule = _RULES.get(shape.meaning)
    return (values, None) if rule is None else rule(values, shape, declared)


def convert_struct(
    frame: pl.DataFrame, shape: Shape, columns: Sequence[tuple[str, ColumnType]]
) -> tuple[list[pl.Series], list[tuple[str, pl.Series]]]:
    """Convert the fields of a record that are columns.

    Returns:
        The columns of the record, and the name and mask of each column with bad values.
    """
    shapes = dict(shape.fields)
    found, bad = [], []
    for name, declared in columns:
        if name not in shapes:
            continue
        values, mask = converted(frame.get_column(name), shapes[name], declared)
        found.append(values.alias(name))
        if mask is not None and mask.any():
            bad.append((name, mask))
    return found, bad


def _symbols(values: pl.Series, shape: Shape) -> pl.Series:
    """Return the names of an enumeration's values; one without a name is its number, as in Protocol Buffers' JSON (Avro has none such)."""
    numbers = shape.numbers or tuple(range(len(shape.symbols)))
    names = dict(zip(reversed(numbers), reversed(shape.symbols), strict=True))  # of two names for one number the first counts
    return values.replace_strict(names, default=values.cast(pl.String), return_dtype=pl.String)


def _map(values: pl.Series, element: Shape, declared: ColumnType) -> Lifted:
    inside = _last_of_keys(elements_of(as_lists(values)))
    keys = inside.values.struct.field(KEY)
    items, bad = converted(inside.values.struct.field(VALUE), element, declared)
    entries = structs_from([keys.alias(KEY), items.alias(VALUE)], inside.values.is_null())
    return lists_from(entries, inside.sizes, inside.is_null).alias(values.name), None if bad is None else rows_with(
        bad, inside.sizes
    )


def _last_of_keys(inside: Elements) -> Elements:
    """Keep the last of several entries with one key, as every reader of these formats does."""
    rows = np.repeat(np.arange(len(inside.sizes)), inside.sizes)
    entries = pl.DataFrame([pl.Series("row", rows), inside.values.struct.field(KEY)])
    is_last = entries.select(pl.struct("row", KEY).is_last_distinct()).to_series()
    if is_last.all():
        return inside
    sizes = np.bincount(rows[is_last.to_numpy()], minlength=len(inside.sizes))
    return Elements(inside.values.filter(is_last), sizes, inside.is_null)


def _struct(values: pl.Series, shape: Shape, fields: Sequence[tuple[str, ColumnType]]) -> Lifted:
    shapes, bad = dict(shape.fields), None
    columns = []
    for name, declared in fields:
        if name in shapes:
            inner, wrong = converted(values.struct.field(name), shapes[name], declared)
            columns.append(inner.alias(name))
            bad = either(bad, wrong)
    if not columns:  # no declared field exists: all of them are null
        columns = [pl.Series(fields[0][0], [None], dtype=pl.Null).new_from_index(0, len(values))]
    return structs_from(columns, values.is_null()).alias(values.name), bad


def _date(values: pl.Series, _shape: Shape, declared: ColumnType) -> Lifted:
    if declared.kind != "date":
        return values, None
    return _bounded(values, -_MOST_DAYS, _MOST_DAYS, lambda held: held.cast(pl.Int32).cast(pl.Date))


def _time(ns_each: int) -> Callable[[pl.Series, Shape, ColumnType], Lifted]:
    def rule(values: pl.Series, _shape: Shape, declared: ColumnType) -> Lifted:
        if declared.kind != "time":
            return values, None
        return _bounded(values, 0, _DAY_NS // ns_each - 1, lambda held: (held.cast(pl.Int64) * ns_each).cast(pl.Time))

    return rule


def _instant(us_each: int) -> Callable[[pl.Series, Shape, ColumnType], Lifted]:
    def rule(values: pl.Series, _shape: Shape, declared: ColumnType) -> Lifted:
        if declared.kind != "timestamp":
            return values, None
        most = _MOST_US // us_each
        return _bounded(values, -most, most, lambda held: _of_us(held.cast(pl.Int64) * us_each))

    return rule


def _instant_ns(values: pl.Series, shape: Shape, declared: ColumnType) -> Lifted:
    """Round nanoseconds down to microseconds; Protocol Buffers have seconds and nanoseconds in separate fields."""
    if declared.kind != "timestamp":
        return (values, None) if shape.kind != "struct" else _seconds(values, declared)
    if shape.kind != "struct":
        return _of_us(values // _NS_PER_US), None
    seconds, nanos = values.struct.field("seconds"), values.struct.field("nanos")
    most = _MOST_US // _US_PER_S - 1
    held, bad = _bounded(seconds, -most, most, lambda whole: whole * _US_PER_S)
    wrong_nanos = ~nanos.is_between(0, 999_999_999) & values.is_not_null()
    bad = either(bad, wrong_nanos if wrong_nanos.any() else None)
    return _of_us(held + nanos // _NS_PER_US).set(values.is_null(), None).alias(values.name), bad


def _seconds(values: pl.Series, declared: ColumnType) -> Lifted:
    """Convert a Protocol Buffers timestamp for a column of numbers to milliseconds, as in JSON."""
    if not declared.is_integer:
        return values, None
    seconds, nanos = values.struct.field("seconds"), values.struct.field("nanos")
    most = _MOST_US // _US_PER_MS - 1
    held, bad = _bounded(seconds, -most, most, lambda whole: whole * _US_PER_MS)
    return (held + nanos // _US_PER_S).set(values.is_null(), None).alias(values.name), bad


def _duration(values: pl.Series, shape: Shape, declared: ColumnType) -> Lifted:
    return _seconds(values, declared) if shape.kind == "struct" else (values, None)


def _decimal(values: pl.Series, shape: Shape, declared: ColumnType) -> Lifted:
    return (values, None) if declared.kind == "bytes" else decimals_of(values, shape.scale, declared)


def _uuid(values: pl.Series, _shape: Shape, declared: ColumnType) -> Lifted:
    if declared.kind != "string":
        return values, None
    digits = values.bin.encode("hex")
    parts = [digits.str.slice(start, length) for start, length in ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))]
    named = [part.alias(str(place)) for place, part in enumerate(parts)]
    return pl.DataFrame(named).select(pl.concat_str(pl.all(), separator="-")).to_series().alias(values.name), None


def _of_us(us: pl.Series) -> pl.Series:
    return us.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def _bounded(values: pl.Series, least: int, most: int, convert: Callable[[pl.Series], pl.Series]) -> Lifted:
    """Convert the values within bounds; the others are null, and marked."""
    if not values.dtype.is_integer():
        return values, None
    outside = ~values.is_between(least, most)
    if not outside.any():
        return convert(values), None
    return convert(values.set(outside.fill_null(value=False), None)), outside.fill_null(value=False)


_RULES: Final[dict[str, Callable[[pl.Series, Shape, ColumnType], Lifted]]] = {
    "date": _date,
    "time_ms": _time(1_000_000),
    "time_us": _time(1_000),
    "time_ns": _time(1),
    "timestamp_ms": _instant(_US_PER_MS),
    "timestamp_us": _instant(1),
    "timestamp_ns": _instant_ns,
    "duration": _duration,
    "decimal": _decimal,
    "uuid": _uuid,
}
