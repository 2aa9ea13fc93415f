"""Writes JSON objects, whole columns at a time: bytes are base64, decimals, times and timestamps as in posted records."""

from __future__ import annotations

import json

import polars as pl

from engine.expressions.types.types import Schema
from engine.formats.json.json_schema import json_schema_of
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
    """Return the writer of a side."""
    if config.is_unwrapped:
        config.single  # noqa: B018 - it raises
    return RegisteredJsonWriter(config, store) if config.has_registry else JsonWriter(config.columns, is_bare=config.is_unwrapped)
