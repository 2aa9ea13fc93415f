"""Types in the form of ksqlDB's protocol: texts, and objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from engine.expressions.types.types import ColumnType, Schema

_NAMES: Final = {"int": "INTEGER"}


def type_text(kind: ColumnType) -> str:
    """Return a type as text: ``DECIMAL(4, 2)``, ``STRUCT<`A` STRING>``."""
    match kind:
        case ColumnType(kind="decimal", precision=precision, scale=scale):
            return f"DECIMAL({precision}, {scale})"
        case ColumnType(kind="array", element=ColumnType() as element):
            return f"ARRAY<{type_text(element)}>"
        case ColumnType(kind="map", key=ColumnType() as key, value=ColumnType() as value):
            return f"MAP<{type_text(key)}, {type_text(value)}>"
        case ColumnType(kind="struct", fields=fields):
            return f"STRUCT<{', '.join(f'{quoted(name)} {type_text(field)}' for name, field in fields)}>"
    return _NAMES.get(kind.kind, kind.kind.upper())


def quoted(name: str) -> str:
    """Return a name in back quotes."""
    return "`" + name.replace("`", "``") + "`"


def schema_text(columns: Schema, key: Iterable[str] = ()) -> str:
    """Return columns as one text; those of the key have KEY after their type."""
    of_key = set(key)
    return ", ".join(f"{quoted(name)} {type_text(kind)}{' KEY' if name in of_key else ''}" for name, kind in columns.items())


def type_object(kind: ColumnType) -> dict[str, Any]:
    """Return a type in the form of descriptions."""
    match kind:
        case ColumnType(kind="decimal", precision=precision, scale=scale):
            return _object("DECIMAL", parameters={"precision": precision, "scale": scale})
        case ColumnType(kind="array", element=ColumnType() as element):
            return _object("ARRAY", member=type_object(element))
        case ColumnType(kind="map", value=ColumnType() as value):
            return _object("MAP", member=type_object(value))
        case ColumnType(kind="struct", fields=fields):
            return _object("STRUCT", fields=[{"name": name, "schema": type_object(field)} for name, field in fields])
    return _object(_NAMES.get(kind.kind, kind.kind.upper()))


def _object(
    name: str,
    *,
    fields: list[dict[str, Any]] | None = None,
    member: dict[str, Any] | None = None,
    parameters: dict[str, Any] | None = None,
) -> dict[str, Any]:
    type_parameters = {} if parameters is None else {"parameters": parameters}
    return {"type": name, "fields": fields, "memberSchema": member, **type_parameters}


def field_objects(columns: Schema, key: Iterable[str]) -> list[dict[str, Any]]:
    """Return columns in the form of descriptions."""
    of_key = set(key)
    return [
        {"name": name, "schema": type_object(kind), **({"type": "KEY"} if name in of_key else {})}
        for name, kind in columns.items()
    ]
