"""The JSON Schema of columns, registered for results in JSON."""

from __future__ import annotations

import json
from typing import Any, Final

from engine.expressions.types.types import ColumnType, Schema

_LEAVES: Final[dict[str, dict[str, Any]]] = {
    "boolean": {"type": "boolean"},
    "int": {"type": "integer", "connect.type": "int32"},
    "bigint": {"type": "integer", "connect.type": "int64"},
    "double": {"type": "number", "connect.type": "float64"},
    "decimal": {"type": "string"},
    "string": {"type": "string"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "timestamp": {"type": "string", "format": "date-time"},
}


def json_schema_of(columns: Schema, title: str = "") -> str:
    """Return the schema of an object with these columns, any of which may be null."""
    return json.dumps(({"title": title} if title else {}) | _object(columns.items()), separators=(",", ":"))


def title_of(text: str) -> str:
    """Return the title of a schema, which may name subjects; empty: it has none."""
    try:
        title = json.loads(text).get("title")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return title if isinstance(title, str) else ""


def _object(fields: tuple[tuple[str, ColumnType], ...]) -> dict[str, Any]:
    properties = {name: {"oneOf": [{"type": "null"}, _of(declared)]} for name, declared in fields}
    return {"type": "object", "properties": properties}


def _of(declared: ColumnType) -> dict[str, Any]:
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            return {"type": "array", "items": {"oneOf": [{"type": "null"}, _of(element)]}}
        case ColumnType(kind="map", value=ColumnType() as value):
            return {"type": "object", "additionalProperties": {"oneOf": [{"type": "null"}, _of(value)]}}
        case ColumnType(kind="struct", fields=fields):
            return _object(fields)
    return _LEAVES[declared.kind]
