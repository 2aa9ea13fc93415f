"""Types as the language writes them, and ours."""

from __future__ import annotations

from typing import Final

from engine.expressions.syntax import render
from engine.expressions.types.types import STRING, ColumnType, parse_type
from engine.expressions.values.nested_types import array_of, map_of, struct_of
from engine.expressions.values.operands import ExpressionInvalid
from engine.sql.tree import FieldType, Identifier, TypeName

_NAMES: Final = {
    "text": "string", "varchar": "string", "char": "string", "integer": "int", "long": "bigint", "float": "double",
    "real": "double", "double precision": "double", "bool": "boolean", "numeric": "decimal", "timestamptz": "timestamp",
    "datetime": "timestamp", "varbinary": "bytes", "binary": "bytes",
}  # fmt: skip
"""SQL's own names of our types, as the language prints them."""


def type_of(written: TypeName) -> ColumnType:
    """Return the type that is written; letter case counts in the names of a struct's fields alone.

    Raises:
        ExpressionInvalid: ``type_mismatch``: there is none of that name, or it is too large.
    """
    match written:
        case TypeName(name="ARRAY", types=(element,)):
            return array_of(type_of(element))
        case TypeName(name="MAP", types=(key, value)):
            if type_of(key) != STRING:
                raise ExpressionInvalid(
                    "type_mismatch", f"a map's keys are strings: write map<string,...>, not {render(written)[:60]}"
                )
            return map_of(type_of(value))
        case TypeName(name="STRUCT", fields=fields) if fields:
            return struct_of((field.name.text, type_of(field.type)) for field in fields)
        case _:
            return _plain(written)


def type_name(kind: ColumnType) -> TypeName:
    """Return how the language writes a type; ``type_of`` reads it."""
    if kind.kind == "decimal":
        return TypeName("DECIMAL", (str(kind.precision), str(kind.scale or 0)))
    if kind.kind == "struct":
        fields = (FieldType(Identifier(name, is_quoted=True), type_name(field)) for name, field in kind.fields)
        return TypeName("STRUCT", fields=tuple(fields))
    return TypeName(kind.kind.upper(), types=tuple(map(type_name, kind.inner)))


def _plain(written: TypeName) -> ColumnType:
    head, bracket, rest = render(written).lower().partition("(")
    known = _NAMES.get(head.strip(), head.strip())
    try:
        return parse_type(known if known == "string" else known + bracket + rest)
    except ValueError as error:
        raise ExpressionInvalid("type_mismatch", f"CAST: {error}") from error
