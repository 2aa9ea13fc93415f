"""Values of JSON records, as ``json.loads`` returns them, converted to their declared types, whole columns at a time and at every depth.

A nested column is split into columns of its scalars, so that a value in an array is treated like one in its own column.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from engine.expressions.types.types import STRING, ColumnType
from engine.frames.nesting import KEY, VALUE, either, lists_from, rows_with, structs_from
from engine.records.conform import conform, nulls

MAX_ZEROS = 400
"""Digits before or zeros after the point beyond which a number is zero or infinity as a double, and too large for any other type."""

Conformed = tuple[pl.Series, pl.Series | None]


@dataclass(frozen=True, slots=True)
class TypeMismatch:
    """A value that cannot be converted to its type.

    Attributes:
        value: the scalar, or the nested value of a wrong shape.
        declared: its expected type.
        place: inside the column: ``[].at``; empty for the column's own value.
        is_key: it is a key of the map at ``place``.
        field: the value is a struct with an undeclared field of this name.
    """

    value: Any
    declared: ColumnType
    place: str = ""
    is_key: bool = False
    field: str | None = None


def conform_values(name: str, values: Sequence[Any], declared: ColumnType) -> Conformed:
    """Convert JSON values of one column to their declared type.

    A column whose values all have one allowed type is converted at once; a mixed one type by type.

    Returns:
        See ``conform``.
    """
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            return _arrays(name, values, element)
        case ColumnType(kind="map", value=ColumnType() as inner):
            return _maps(name, values, inner)
        case ColumnType(kind="struct", fields=fields):
            return _structs(name, values, fields)
        case _:
            return _scalars(name, values, declared)


def find_mismatches(values: Sequence[Any], declared: ColumnType, place: str = "") -> list[TypeMismatch]:
    """Return the first type mismatch in each of these values, all of which ``conform_values`` refused; depth first."""
    kind = {"array": list, "map": dict, "struct": dict}.get(declared.kind)
    found = [TypeMismatch(value, declared, place) for value in values]
    inside = [index for index, value in enumerate(values) if type(value) is kind]
    if not inside:
        return found
    taken = [values[index] for index in inside]
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            deeper = find_mismatches(_first_bad(taken, element), element, f"{place}[]")
        case ColumnType(kind="map", value=ColumnType() as inner):
            deeper = _mismatches_in_maps(taken, inner, place)
        case _:
            deeper = _mismatches_in_structs(taken, declared, place)
    for index, misfit in zip(inside, deeper, strict=True):
        found[index] = misfit
    return found


def _mismatches_in_maps(maps: Sequence[dict[str, Any]], inner: ColumnType, place: str) -> list[TypeMismatch]:
    torn = [next((key for key in each if not is_unicode(key)), None) for each in maps]
    whole = [list(each.values()) for each, key in zip(maps, torn, strict=True) if key is None]
    deeper = iter(find_mismatches(_first_bad(whole, inner), inner, f"{place}.*"))
    return [next(deeper) if key is None else TypeMismatch(key, STRING, place, is_key=True) for key in torn]


def _mismatches_in_structs(structs: Sequence[dict[str, Any]], declared: ColumnType, place: str) -> list[TypeMismatch]:
    fields = dict(declared.fields)
    found = [
        TypeMismatch(each, declared, place, field=next((name for name in each if name not in fields), None)) for each in structs
    ]
    left = list(range(len(structs)))
    for name, field in declared.fields:
        values = [structs[index].get(name) for index in left]
        bad = conform_values("", values, field)[1]
        if bad is None:
            continue
        is_bad = bad.to_list()
        deeper = iter(find_mismatches(list(itertools.compress(values, is_bad)), field, f"{place}.{name}"))
        for index in itertools.compress(left, is_bad):
            found[index] = next(deeper)
        left = [index for index, is_it in zip(left, is_bad, strict=True) if not is_it]
    return found


def _first_bad(lists: Sequence[Sequence[Any]], declared: ColumnType) -> list[Any]:
    """Return the first bad value of each list. All are validated together: one column is made, not one for each list."""
    bad = conform_values("", list(itertools.chain.from_iterable(lists)), declared)[1]
    marks: Iterator[bool] = iter(() if bad is None else bad.to_list())
    marked = [list(zip(each, itertools.islice(marks, len(each)), strict=False)) for each in lists]
    return [next((value for value, is_it in pairs if is_it), each[0]) for each, pairs in zip(lists, marked, strict=True)]


def is_unicode(value: str) -> bool:
    """Whether a text is valid Unicode: JSON can also have halves of surrogate pairs."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _arrays(name: str, values: Sequence[Any], element: ColumnType) -> Conformed:
    lists = [value if isinstance(value, list) else [] for value in values]
    inside, bad = conform_values("", list(itertools.chain.from_iterable(lists)), element)
    return _listed(name, values, list, inside, bad, lists)


def _maps(name: str, values: Sequence[Any], inner: ColumnType) -> Conformed:
    maps = [value if isinstance(value, dict) else {} for value in values]
    keys, bad_keys = _scalars(KEY, list(itertools.chain.from_iterable(maps)), STRING)
    items, bad_items = conform_values(VALUE, list(itertools.chain.from_iterable(each.values() for each in maps)), inner)
    entries = structs_from([keys, items], pl.repeat(value=False, n=len(keys), dtype=pl.Boolean, eager=True))
    return _listed(name, values, dict, entries, either(bad_keys, bad_items), maps)


def _listed(
    name: str, values: Sequence[Any], kind: type, inside: pl.Series, bad: pl.Series | None, lists: Sequence[Sized]
) -> Conformed:
    """Cut the inner values into lists; null and marked if a value has another kind or contains a bad one."""
    sizes = np.fromiter(map(len, lists), np.int64, len(lists))
    is_bad = _of_other_kind(values, kind)
    if bad is not None:
        is_bad = either(is_bad, rows_with(bad, sizes))
    is_null = pl.Series([value is None for value in values], dtype=pl.Boolean)
    series = lists_from(inside, sizes, is_null if is_bad is None else is_null | is_bad)
    return series.alias(name), is_bad


def _structs(name: str, values: Sequence[Any], fields: Sequence[tuple[str, ColumnType]]) -> Conformed:
    structs = [value if isinstance(value, dict) else {} for value in values]
    is_bad = _of_other_kind(values, dict)
    known = dict(fields).keys()
    if any(struct.keys() - known for struct in structs):
        is_bad = either(is_bad, pl.Series([not struct.keys() <= known for struct in structs]))
    columns = []
    for field, declared in fields:
        column, bad = conform_values(field, [struct.get(field) for struct in structs], declared)
        columns.append(column)
        is_bad = either(is_bad, bad)
    is_null = pl.Series([value is None for value in values], dtype=pl.Boolean)
    return structs_from(columns, is_null if is_bad is None else is_null | is_bad).alias(name), is_bad


def _of_other_kind(values: Sequence[Any], kind: type) -> pl.Series | None:
    if set(map(type, values)) <= {kind, type(None)}:
        return None
    return pl.Series([value is not None and type(value) is not kind for value in values], dtype=pl.Boolean)


def _scalars(name: str, values: Sequence[Any], declared: ColumnType) -> Conformed:
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return nulls(name, declared, len(values)), None
    result: pl.Series | None = None
    for kind in (kind for kind in _ALLOWED[declared.kind] if kind in kinds):
        part = values if len(kinds) == 1 else [value if type(value) is kind else None for value in values]
        converted, _ = conform(_series(name, part, kind, declared), declared, is_text=kind is Decimal)
        result = converted if result is None else result.zip_with(result.is_not_null(), converted)
    if result is None:
        result = nulls(name, declared, len(values))
    absent = sum(value is None for value in values)
    if result.null_count() == absent:
        return result, None
    return result, result.is_null() & pl.Series(name, [value is not None for value in values])


def _series(name: str, values: Sequence[Any], kind: type, declared: ColumnType) -> pl.Series:
    """Build a column of one Python type; values that it cannot hold (huge integers, lone surrogates) become null."""
    if declared.kind == "double" and kind is not float:
        return pl.Series(name, [None if value is None else double_of(value) for value in values], dtype=pl.Float64)
    if kind is Decimal:
        return pl.Series(name, [None if value is None else _digits_of(value) for value in values], dtype=pl.String)
    dtype = _DTYPES[kind]
    try:
        return pl.Series(name, values, dtype=dtype)
    except (OverflowError, UnicodeEncodeError, TypeError, PolarsError):
        if declared.kind == "decimal" and kind is int:
            return pl.Series(name, [None if value is None else _digits_of(value) for value in values], dtype=pl.String)
        return pl.Series(name, [value if value is None or _is_holdable(value) else None for value in values], dtype=dtype)


def double_of(value: float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _digits_of(value: int | Decimal) -> str | None:
    """Write a number without an exponent; None if it has more digits than any type, which would fill the memory."""
    if isinstance(value, int):
        return str(value) if abs(value) < 10**MAX_ZEROS else None
    if not value:
        return "0"
    return format(value, "f") if abs(value.adjusted()) <= MAX_ZEROS else None


def _is_holdable(value: int | str | float) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not isinstance(value, str) or is_unicode(value)


_DTYPES: dict[type, pl.DataType] = {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64(), str: pl.String()}
_ALLOWED: dict[str, tuple[type, ...]] = {
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
"""Python types, as ``json.loads`` returns them, that are allowed for a kind."""
