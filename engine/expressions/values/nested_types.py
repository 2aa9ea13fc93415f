"""Types of values that an expression puts together, within the bounds of every type."""

from __future__ import annotations

from collections.abc import Iterable

from engine.expressions.types.types import MAX_TYPE_CHARS, MAX_TYPE_NESTING, STRING, ColumnType, check_field_name
from engine.expressions.values.operands import ExpressionInvalid


def array_of(element: ColumnType) -> ColumnType:
    """Return ``array<element>``. Raises ExpressionInvalid where it is too large a type."""
    return _bounded(ColumnType("array", element=element))


def map_of(value: ColumnType) -> ColumnType:
    """Return ``map<string,value>``. Raises ExpressionInvalid where it is too large a type."""
    return _bounded(ColumnType("map", key=STRING, value=value))


def struct_of(fields: Iterable[tuple[str, ColumnType]]) -> ColumnType:
    """Return ``struct<name:type,...>``. Raises ExpressionInvalid for a name that no field can have, or twice, and for too large a type."""
    listed = tuple(fields)
    for place, (name, _) in enumerate(listed):
        try:
            check_field_name(name)
        except ValueError as error:
            raise ExpressionInvalid("type_mismatch", str(error)) from error
        if any(name == taken for taken, _ in listed[:place]):
            raise ExpressionInvalid("type_mismatch", f"the struct has two fields {name!r}")
    return _bounded(ColumnType("struct", fields=listed))


def _bounded(made: ColumnType) -> ColumnType:
    if made.depth > MAX_TYPE_NESTING:
        raise ExpressionInvalid("type_mismatch", f"a type may be nested {MAX_TYPE_NESTING} deep")
    if len(str(made)) > MAX_TYPE_CHARS:
        raise ExpressionInvalid("type_mismatch", f"a type is longer than {MAX_TYPE_CHARS} characters")
    return made
