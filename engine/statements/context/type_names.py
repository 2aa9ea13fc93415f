"""Types of statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from engine.expressions.suggestions import meant
from engine.expressions.types.types import ColumnType, ScalarKind, decimal, parse_type
from engine.sql.tree import FieldType, Identifier, Node, TypeName
from engine.statements.context.faults import Faults, StatementRefused, StatementUnsupported
from engine.statements.context.naming import folded
from engine.statements.context.properties import is_whole

_SCALARS: Final[Mapping[str, ScalarKind]] = {
    "BOOLEAN": "boolean", "INT": "int", "INTEGER": "int", "BIGINT": "bigint", "DOUBLE": "double", "TEXT": "string", "STRING": "string",
    "VARCHAR": "string", "BYTES": "bytes", "DATE": "date", "TIME": "time", "TIMESTAMP": "timestamp",
}  # fmt: skip
_WRITTEN: Final[Mapping[str, str]] = {
    "boolean": "BOOLEAN", "int": "INT", "bigint": "BIGINT", "double": "DOUBLE", "string": "STRING", "bytes": "BYTES", "date": "DATE",
    "time": "TIME", "timestamp": "TIMESTAMP",
}  # fmt: skip


def type_of(name: TypeName, types: Mapping[str, ColumnType]) -> ColumnType:
    """Return the type that a name of a type means.

    Raises:
        StatementRefused: there is no such type.
        StatementUnsupported: a type that cannot be had here.
    """
    found = named_type(name, types)
    check_supported(found, name)
    return found


def check_supported(kind: ColumnType, at: Node) -> None:
    """Refuse a type that cannot be had here."""
    try:
        parse_type(str(kind))
    except ValueError as error:
        raise StatementUnsupported("type_not_supported", f"{shown(kind)}: {error}", at) from error


def named_type(name: TypeName, types: Mapping[str, ColumnType]) -> ColumnType:
    """Return the type of a name, whether or not it can be had here."""
    word = name.name.upper()
    if word == "DECIMAL":
        return _decimal(name)
    if word == "ARRAY" and len(name.types) == 1:
        return ColumnType("array", element=named_type(name.types[0], types))
    if word == "MAP" and len(name.types) == 2:
        key, value = _each(name.types, types)
        return ColumnType("map", key=key, value=value)
    if word == "STRUCT":
        kinds = _each([part.type for part in name.fields], types)
        return ColumnType("struct", fields=tuple(zip((folded(part.name) for part in name.fields), kinds, strict=True)))
    kind = _SCALARS.get(word)
    if kind is not None:
        return ColumnType(kind)
    known = types.get(name.name.upper()) or types.get(name.name)
    if known is None:
        near = meant(word, [*_SCALARS, "DECIMAL", "ARRAY", "MAP", "STRUCT", *types])
        ending = "" if near is None else f"; did you mean {near}?"
        raise StatementRefused("unknown_type", f"there is no type {name.name}{ending}", name)
    return known


def _each(names: Sequence[TypeName], types: Mapping[str, ColumnType]) -> list[ColumnType]:
    """Return the types of several names; the faults of all of them are raised together."""
    faults = Faults()
    found: list[ColumnType] = []
    for name in names:
        with faults.part():
            found.append(named_type(name, types))
    faults.raise_all()
    return found


def _decimal(name: TypeName) -> ColumnType:
    if not name.numbers:
        raise StatementRefused("type_malformed", "DECIMAL needs precision and scale, as in DECIMAL(12, 2)", name)
    numbers = [int(number) if is_whole(number) else -1 for number in name.numbers]
    try:
        return decimal(numbers[0], numbers[1] if len(numbers) > 1 else 0)
    except ValueError as error:
        raise StatementRefused("type_malformed", f"{error}", name) from error


def shown(kind: ColumnType | None) -> str:
    """Return a type as statements write it: ``MAP<STRING, ARRAY<INT>>``."""
    if kind is None:
        return "NULL"
    match kind.kind:
        case "decimal":
            return f"DECIMAL({kind.precision}, {kind.scale})"
        case "array":
            return f"ARRAY<{shown(kind.element)}>"
        case "map":
            return f"MAP<{shown(kind.key)}, {shown(kind.value)}>"
        case "struct":
            return f"STRUCT<{', '.join(f'`{name}` {shown(field)}' for name, field in kind.fields)}>"
    return _WRITTEN[kind.kind]


def type_name(kind: ColumnType, at: Node | None = None) -> TypeName:
    span = None if at is None else at.span
    match kind.kind:
        case "decimal":
            return TypeName("DECIMAL", (str(kind.precision), str(kind.scale)), span=span)
        case "array" if kind.element is not None:
            return TypeName("ARRAY", types=(type_name(kind.element, at),), span=span)
        case "map" if kind.key is not None and kind.value is not None:
            return TypeName("MAP", types=(type_name(kind.key, at), type_name(kind.value, at)), span=span)
        case "struct":
            fields = tuple(FieldType(Identifier(name, is_quoted=True), type_name(field, at)) for name, field in kind.fields)
            return TypeName("STRUCT", fields=fields, span=span)
    return TypeName(_WRITTEN[kind.kind], span=span)
