"""Reads Avro: with a given schema, or with the schema that each payload names."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

import polars as pl

from engine.expressions.types.types import Schema
from engine.formats.avro.payloads import empty_batch, read_payloads
from engine.formats.avro.schema import AvroSchema, parse_schema
from engine.formats.bisecting import read_bisecting
from engine.formats.logical_types import convert_struct
from engine.formats.port import FormatInvalid, Read, Reader, RegisteredSchema, SchemaStore, SideConfig
from engine.formats.registry.wire import PayloadsOfSchema, read_by_schema, text_of
from engine.formats.shapes import SchemaNotRead, Shape
from engine.records.canonical import reject_rows
from engine.records.excerpts import excerpts_of

REASON = "malformed_avro"


class AvroReader:
    """Reads payloads of one schema."""

    def __init__(self, columns: Schema, schema: AvroSchema) -> None:
        self._columns = columns
        self._schema = schema
        # A value that is no record is the side's one column.
        self._names = {} if schema.is_record or not len(columns) else {"f0": columns.names[0]}
        shape = schema.shape if schema.is_record else Shape("struct", fields=(("f0", schema.shape),))
        self._shape = Shape("struct", fields=tuple((self._names.get(name, name), inner) for name, inner in shape.fields))

    def read(self, payloads: pl.Series) -> Read:
        table, places, rejects = read_bisecting(
            lambda part: read_payloads(self._schema, part), payloads, empty_batch(self._schema), REASON
        )
        table = table.rename_columns([self._names.get(name, name) for name in table.column_names])
        wanted = [name for name in table.column_names if name in self._columns]
        frame = cast("pl.DataFrame", pl.from_arrow(table.select(wanted)))
        return convert_rows(frame, places, rejects, self._shape, self._columns)


class RegisteredAvroReader:
    """Reads payloads that name their schemas.

    The declared columns decide: fields that a schema lacks are null, undeclared fields are left out.
    """

    def __init__(self, columns: Schema, store: SchemaStore) -> None:
        self._columns = columns
        self._store = store

    def read(self, payloads: pl.Series) -> Read:
        return read_by_schema(payloads, self._read, self._columns)

    def _read(self, group: PayloadsOfSchema) -> Read:
        registered = self._store.by_number(group.number)
        return AvroReader(self._columns, schema_of(registered)).read(group.values)


def avro_reader(config: SideConfig, store: SchemaStore) -> Reader:
    """Return the reader of a side.

    Raises:
        FormatInvalid: there is no schema, or it cannot be read.
    """
    if config.has_registry:
        return RegisteredAvroReader(config.columns, store)
    if config.schema is None:
        raise FormatInvalid("avro needs a schema: give `schema` with its text, or `registry`")
    try:
        return AvroReader(config.columns, parse_schema(config.schema, [text for _, text in config.references]))
    except SchemaNotRead as error:
        raise FormatInvalid(f"schema: {error}") from error


@lru_cache(maxsize=256)
def schema_of(registered: RegisteredSchema) -> AvroSchema:
    """Parse a registered schema.

    Raises:
        SchemaNotRead: it is of another language, or not supported.
    """
    return parse_schema(text_of(registered, "AVRO"), [text for _, text in registered.references])


def convert_rows(frame: pl.DataFrame, places: pl.Series, rejects: pl.DataFrame, shape: Shape, columns: Schema) -> Read:
    """Convert a frame's columns; rows with values that their meaning does not allow are rejects."""
    found, faults = convert_struct(frame, shape, columns.items())
    raw = pl.DataFrame([*found, places.alias("_offset")])
    if not faults:
        return Read(raw, rejects)
    good = pl.repeat(value=True, n=len(places), dtype=pl.Boolean, eager=True)
    rows: list[tuple[int, str, str, str]] = []
    for name, mask in faults:
        new = mask.fill_null(value=False) & good
        texts = excerpts_of(frame.filter(new))
        detail = f"column {name!r} has a value that its schema's type does not allow"
        rows += [(place, "wrong_type", detail, text) for place, text in zip(places.filter(new).to_list(), texts, strict=True)]
        good &= ~new
    return Read(raw.filter(good), pl.concat([rejects, reject_rows(rows)]).sort("offset"))
