"""Writes JSON objects, whole columns at a time: bytes are base64, decimals, times and timestamps as in posted records."""

from __future__ import annotations

import json
from typing import Any, Final

import polars as pl

from engine.expressions.types.types import ColumnType, Schema
from engine.formats.json.nested_json import json_texts
from engine.formats.port import RegisteredSchema, SchemaStore, SideConfig, Writer
from engine.formats.registry.wire import header_of, with_header


class JsonWriter:
    """Writes a row as an object, or its one column as a bare value."""

    def __init__(self, columns: Schema, *, is_bare: bool) -> None:
        self._columns = columns
        self._is_bare = is_bare

    def write(self, frame: pl.DataFrame) -> pl.Series:
        texts = [self._texts(frame, name) for name in self._columns.names]
        if self._is_bare:
            return texts[0].cast(pl.Binary)
        members = [
            (json.dumps(name, ensure_ascii=False) + ":" + text).alias(str(place))
            for place, (name, text) in enumerate(zip(self._columns, texts, strict=True))
        ]
        joined = pl.DataFrame(members).select(pl.concat_str(pl.all(), separator=",")).to_series()
        return ("{" + joined + "}").cast(pl.Binary).alias("")

    def _texts(self, frame: pl.DataFrame, name: str) -> pl.Series:
        return json_texts(frame.get_column(name), self._columns[name]).fill_null("null")


class RegisteredJsonWriter:
    """Writes JSON after the number of its registered schema."""

    def __init__(self, config: SideConfig, store: SchemaStore) -> None:
        self._inner = JsonWriter(config.columns, is_bare=config.is_unwrapped)
        self._schema = RegisteredSchema(
            0, "JSON", config.schema or json_schema_of(config.columns, config.record), config.references
        )
        self._subject = config.subject
        self._store = store

    def write(self, frame: pl.DataFrame) -> pl.Series:
        return with_header(self._inner.write(frame), header_of(self._store.register(self._subject, self._schema)))


def json_writer(config: SideConfig, store: SchemaStore) -> Writer:
    if config.is_unwrapped:
        config.single  # noqa: B018 - it raises
    return RegisteredJsonWriter(config, store) if config.has_registry else JsonWriter(config.columns, is_bare=config.is_unwrapped)


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
