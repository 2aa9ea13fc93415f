"""Which types hold every value of another one exactly: what a column may become while there are records of it."""

from __future__ import annotations

from engine.expressions.types.types import ColumnType

_DIGITS = {"int": 10, "bigint": 19}
"""Digits of whole numbers of each type."""


def is_wider(narrow: ColumnType, wide: ColumnType) -> bool:
    """Whether each value of ``narrow`` is a value of ``wide``, unrounded; false for equal types.

    A bigint beyond 2^53 is rounded as a double, so only an int becomes one.

    >>> from engine.expressions.types.types import parse_type
    >>> is_wider(parse_type("int"), parse_type("bigint")), is_wider(parse_type("bigint"), parse_type("double"))
    (True, False)
    """
    return narrow != wide and _holds(wide, narrow)


def _holds(wide: ColumnType, narrow: ColumnType) -> bool:
    if narrow == wide:
        return True
    if narrow.is_integer:
        if wide.kind == "decimal":
            return (wide.precision or 0) - (wide.scale or 0) >= _DIGITS[narrow.kind]
        return narrow.kind == "int" and wide.kind in ("bigint", "double")
    if narrow.kind != wide.kind:
        return False
    if narrow.kind == "decimal":
        before = (wide.precision or 0) - (wide.scale or 0) >= (narrow.precision or 0) - (narrow.scale or 0)
        return before and (wide.scale or 0) >= (narrow.scale or 0)
    if narrow.kind == "array" and narrow.element is not None and wide.element is not None:
        return _holds(wide.element, narrow.element)
    if narrow.kind == "map" and narrow.value is not None and wide.value is not None:
        return narrow.key == wide.key and _holds(wide.value, narrow.value)
    if narrow.kind == "struct":
        fields = dict(wide.fields)
        return all(name in fields and _holds(fields[name], field) for name, field in narrow.fields)
    return False
