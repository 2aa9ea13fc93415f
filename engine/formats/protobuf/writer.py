"""Writes Protocol Buffers with a message derived from the columns.

Decimals, dates and times are texts as in JSON, timestamps ``google.protobuf.Timestamp``. A list or map that is null becomes empty, because
messages cannot distinguish the two; a null inside of one cannot be written.
"""

from __future__ import annotations

import re
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from ptars import HandlerPool, PtarsConfig

from engine.expressions.types.types import ColumnType, Schema
from engine.formats.json.nested_json import json_texts
from engine.formats.port import FormatInvalid, RegisteredSchema, SchemaStore, SideConfig, ValueNotWritable, Writer
from engine.formats.protobuf.compiling import compile_proto
from engine.formats.protobuf.reader import path_bytes
from engine.formats.protobuf.schema import Member, MessageSchema, message_of, parse_message
from engine.formats.registry.wire import header_of, with_header
from engine.frames.nesting import KEY, VALUE, as_lists, elements_of

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_LETTER: Final = re.compile(r"[^A-Za-z0-9_]")
_LEAVES: Final = {
    "boolean": "bool",
    "int": "int32",
    "bigint": "int64",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "decimal": "string",
    "date": "string",
    "time": "string",
    "timestamp": "google.protobuf.Timestamp",
}
_AS_TEXT: Final = ("decimal", "date", "time")
_US_PER_S: Final = 1_000_000


class ProtobufWriter:
    """Writes rows as messages."""

    def __init__(self, columns: Schema, schema: MessageSchema) -> None:
        self._columns = columns
        self._schema = schema
        config = PtarsConfig(list_value_nullable=True, map_value_nullable=True)
        self._handler = HandlerPool([schema.descriptor.file], config).get_for_message(schema.descriptor)

    def write(self, frame: pl.DataFrame) -> pl.Series:
        if frame.height == 0:
            return pl.Series([], dtype=pl.Binary)
        arrays = []
        for (name, declared), member in zip(self._columns.items(), self._schema.members, strict=True):
            try:
                arrays.append(_to_wire(frame.get_column(name), declared, member))
            except ValueError as error:
                raise ValueNotWritable(f"column {name!r}: {error}") from error
        names = [field.name for field in self._schema.descriptor.fields]
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
        return pl.Series("", self._handler.record_batch_to_array(batch).cast(pa.large_binary()))


class RegisteredProtobufWriter:
    """Writes messages with the header of their registered schema."""

    def __init__(self, inner: Writer, text: str, subject: str, store: SchemaStore) -> None:
        self._inner = inner
        self._schema = RegisteredSchema(0, "PROTOBUF", text)
        self._subject = subject
        self._store = store

    def write(self, frame: pl.DataFrame) -> pl.Series:
        header = header_of(self._store.register(self._subject, self._schema)) + path_bytes((0,))
        return with_header(self._inner.write(frame), header)


def protobuf_writer(config: SideConfig, store: SchemaStore) -> Writer:
    """Return the writer of a side.

    Raises:
        FormatInvalid: a schema is given (results have their own), or a column's name is not allowed in it.
    """
    if config.schema is not None:
        raise FormatInvalid("schema: results are written as protobuf with a message derived from their columns; leave it out")
    space, _, own = config.record.rpartition(".")
    text = derived_proto(config.columns, own or _NO_LETTER.sub("_", config.subject) or f"{config.side}_record", space)
    inner = ProtobufWriter(config.columns, parse_message(message_of(compile_proto(text))))
    return RegisteredProtobufWriter(inner, text, config.subject, store) if config.has_registry else inner


def derived_proto(columns: Schema, name: str, package: str = "") -> str:
    """Return a file with a message of these columns; each may be absent."""
    lines = ['syntax = "proto3";', *([f"package {package};"] if package else []), 'import "google/protobuf/timestamp.proto";']
    return "\n".join([*lines, *_message(columns.items(), name if _NAME.fullmatch(name) else f"_{name}")]) + "\n"


def _message(fields: tuple[tuple[str, ColumnType], ...], name: str) -> list[str]:
    lines = [f"message {name} {{"]
    for number, (each, declared) in enumerate(fields, 1):
        if not _NAME.fullmatch(each):
            raise FormatInvalid(
                f"the column {each!r} has no name that Protocol Buffers allow (letters, digits and _); rename it in `select`"
            )
        kind, inner = _type(declared, f"T{number}")
        lines += [f"  {line}" for line in inner]
        label = "" if declared.kind in ("array", "map") else "optional "
        lines.append(f"  {label}{kind} {each} = {number};")
    return [*lines, "}"]


def _type(declared: ColumnType, name: str) -> tuple[str, list[str]]:
    """Return a type and the messages that it needs."""
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            kind, inner = _inside(element, name)
            return f"repeated {kind}", inner
        case ColumnType(kind="map", value=ColumnType() as value):
            kind, inner = _inside(value, name)
            return f"map<string, {kind}>", inner
        case ColumnType(kind="struct", fields=fields):
            return name, _message(fields, name)
    return _LEAVES[declared.kind], []


def _inside(declared: ColumnType, name: str) -> tuple[str, list[str]]:
    if declared.kind in ("array", "map"):
        raise FormatInvalid(
            f"Protocol Buffers hold no {declared} inside a list or map; write json or avro, or put it into a struct"
        )
    return _type(declared, name)


def _to_wire(values: pl.Series, declared: ColumnType, member: Member) -> pa.Array:
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            inside = elements_of(as_lists(values))
            return pa.ListArray.from_arrays(_offsets(inside.sizes.tolist()), _elements(inside.values, element, member))
        case ColumnType(kind="map", value=ColumnType() as value):
            inside = elements_of(as_lists(values))
            keys = inside.values.struct.field(KEY).to_arrow().cast(pa.string())
            return pa.MapArray.from_arrays(
                _offsets(inside.sizes.tolist()), keys, _elements(inside.values.struct.field(VALUE), value, member)
            )
        case ColumnType(kind="struct", fields=fields):
            inner = [
                _to_wire(values.struct.field(name), kind, each) for (name, kind), each in zip(fields, member.inner, strict=True)
            ]
            names = [f"f{number}" for number in range(1, len(inner) + 1)]
            return pa.StructArray.from_arrays(inner, names=names, mask=values.is_null().to_arrow())
    if declared.kind == "timestamp":
        us = values.to_physical()
        parts = [(us // _US_PER_S).to_arrow(), (us % _US_PER_S * 1_000).cast(pl.Int32).to_arrow()]
        return pa.StructArray.from_arrays(parts, names=["f1", "f2"], mask=values.is_null().to_arrow())
    if declared.kind in _AS_TEXT:
        return json_texts(values, declared).str.strip_chars('"').to_arrow().cast(pa.string())
    array = values.to_arrow()
    return (
        array.cast(pa.string() if declared.kind == "string" else pa.binary()) if declared.kind in ("string", "bytes") else array
    )


def _elements(values: pl.Series, declared: ColumnType, member: Member) -> pa.Array:
    if values.null_count():
        raise ValueError("a null stands inside a list or map, and Protocol Buffers cannot say that")
    return _to_wire(values, declared, member.inner[0])


def _offsets(sizes: list[int]) -> pa.Array:
    return pc.cumulative_sum(pa.array([0, *sizes], pa.int32()))
