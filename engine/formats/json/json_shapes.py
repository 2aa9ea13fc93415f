"""The types that hold given JSON values: for proposing columns, never for reading values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, Final

from engine.expressions.types.types import BIGINT, BOOLEAN, DOUBLE, STRING, ColumnType, decimal
from engine.records.inferred import Fields

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_LONG: Final = decimal(38, 0)
_MOST_DIGITS: Final = 38


class Unlike(ValueError):
    """Values of one place have types that no single type holds.

    Args:
        one, other: the types.
        path: names of the fields to the place.
    """

    def __init__(self, one: ColumnType, other: ColumnType, path: tuple[str, ...] = ()) -> None:
        super().__init__(f"{'.'.join(path) or 'it'} is {one} in one place and {other} in another")
        self._types, self._path = (one, other), path

    def below(self, name: str) -> Unlike:
        """Return the error with its path inside a field."""
        return Unlike(*self._types, (name, *self._path))


def fields_of(objects: Iterable[Mapping[str, Any]]) -> Fields:
    """Return the fields of objects in the order of their first use; type None: the field has only nulls.

    Raises:
        Unlike: see there.
    """
    found: dict[str, ColumnType | None] = {}
    for each in objects:
        for name, value in each.items():
            try:
                found[name] = _both(found.get(name), type_of(value))
            except Unlike as error:
                raise error.below(name) from None
    return list(found.items())


def type_of(value: Any) -> ColumnType | None:
    """Return the type of a value; None: it shows no type (null, an empty array or object).

    Raises:
        Unlike: see there.
    """
    match value:
        case bool():
            return BOOLEAN
        case int():
            if _LEAST <= value <= _MOST:
                return BIGINT
            return _LONG if abs(value) < 10**_MOST_DIGITS else DOUBLE
        case float():
            return DOUBLE
        case str():
            return STRING
        case list():
            element = reduce(_both, map(type_of, value), None)
            return None if element is None else ColumnType("array", element=element)
        case dict():
            fields = tuple((name, declared) for name, declared in fields_of([value]) if declared is not None)
            return ColumnType("struct", fields=fields) if fields else None
    return None


def _both(one: ColumnType | None, other: ColumnType | None) -> ColumnType | None:
    """Return the type that holds the values of both."""
    if one is None or other is None or one == other:
        return one or other
    if one.is_numeric and other.is_numeric:
        return DOUBLE if DOUBLE in (one, other) else _LONG
    if one.kind == other.kind == "array":
        element = _both(one.element, other.element)
        return ColumnType("array", element=element)
    if one.kind == other.kind == "struct":
        found = dict(one.fields)
        for name, declared in other.fields:
            try:
                both = _both(found.get(name), declared)
            except Unlike as error:
                raise error.below(name) from None
            if both is not None:
                found[name] = both
        return ColumnType("struct", fields=tuple(found.items()))
    raise Unlike(one, other)
