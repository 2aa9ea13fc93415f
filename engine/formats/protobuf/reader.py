"""Reads Protocol Buffers: messages of one given type, or of the type that each payload names."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, cast

import numpy as np
import polars as pl

from engine.expressions.types.types import Schema
from engine.formats.avro.reader import convert_rows
from engine.formats.bisecting import UndecodablePayload, read_bisecting
from engine.formats.port import FormatInvalid, Read, Reader, RegisteredSchema, SchemaStore, SideConfig
from engine.formats.protobuf.compiling import compile_proto
from engine.formats.protobuf.payloads import MessageReader
from engine.formats.protobuf.schema import MessageSchema, message_of, parse_message
from engine.formats.registry.wire import PayloadsOfSchema, at_places, read_by_schema, rejoined, text_of
from engine.formats.shapes import SchemaNotRead
from engine.records.canonical import empty_rejects, reject_rows
from engine.records.excerpts import excerpt_of_bytes

REASON: Final = "malformed_protobuf"
_MAX_PATH: Final = 32
_FIRST: Final = b"\x00"
_SHOWN_HEAD: Final = 64


class ProtobufReader:
    """Reads messages of one type."""

    def __init__(self, columns: Schema, schema: MessageSchema) -> None:
        self._columns = columns
        self._schema = schema
        self._messages = MessageReader(schema)

    def read(self, payloads: pl.Series) -> Read:
        table, places, rejects = read_bisecting(self._messages.read, payloads, self._messages.empty(), REASON)
        frame = cast("pl.DataFrame", pl.from_arrow(table)) if table.num_columns else pl.DataFrame()
        return convert_rows(frame, places, rejects, self._schema.shape, self._columns)


class RegisteredProtobufReader:
    """Reads payloads that name their schema and one of its messages."""

    def __init__(self, columns: Schema, store: SchemaStore) -> None:
        self._columns = columns
        self._store = store

    def read(self, payloads: pl.Series) -> Read:
        return read_by_schema(payloads, self._read, self._columns)

    def _read(self, group: PayloadsOfSchema) -> Read:
        registered = self._store.by_number(group.number)
        is_first = group.values.bin.starts_with(_FIRST).to_numpy()
        if is_first.all():
            return self._of(registered, (0,)).read(group.values.bin.slice(1))
        return self._by_path(group, registered)

    def _by_path(self, group: PayloadsOfSchema, registered: RegisteredSchema) -> Read:
        """Separate messages of several types; the bytes that name the type are decoded once for each type."""
        heads = group.values.bin.slice(0, _SHOWN_HEAD).to_list()
        known: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        bad = []
        for place, head in enumerate(heads):
            try:
                path, size = message_path(head)
            except UndecodablePayload as misread:
                bad.append((place, REASON, str(misread), excerpt_of_bytes(group.values[place])))
                continue
            known.setdefault(path, []).append((place, size))
        parts = []
        for path, found in known.items():
            places = np.array([place for place, _ in found], np.int64)
            sizes = pl.Series([size for _, size in found])
            values = group.values.gather(places).to_frame("v").select(pl.col("v").bin.slice(sizes.cast(pl.Int64))).to_series()
            try:
                part = self._of(registered, path).read(values)
            except SchemaNotRead as error:  # there is no such message: this is the record's fault, not the schema's
                bad += [(place, "schema_not_read", str(error), excerpt_of_bytes(group.values[place])) for place, _ in found]
                continue
            parts.append(at_places(part, places))
        return rejoined(parts, reject_rows(sorted(bad)) if bad else empty_rejects(), self._columns)

    def _of(self, registered: RegisteredSchema, path: tuple[int, ...]) -> ProtobufReader:
        return ProtobufReader(self._columns, schema_of(registered, path, frozenset(self._columns.names)))


def protobuf_reader(config: SideConfig, store: SchemaStore) -> Reader:
    """Return the reader of a side.

    Raises:
        FormatInvalid: there is no schema, or it cannot be read.
    """
    if config.has_registry:
        return RegisteredProtobufReader(config.columns, store)
    if config.schema is None:
        raise FormatInvalid("protobuf needs a schema: give `schema` with the text of its .proto file, or `registry`")
    try:
        message = message_of(compile_proto(config.schema, config.references), config.message)
        return ProtobufReader(config.columns, parse_message(message, frozenset(config.columns.names)))
    except SchemaNotRead as error:
        raise FormatInvalid(f"schema: {error}") from error


@lru_cache(maxsize=256)
def schema_of(registered: RegisteredSchema, path: tuple[int, ...], wanted: frozenset[str] | None) -> MessageSchema:
    """Return the schema of a registered message.

    Raises:
        SchemaNotRead: the schema is of another language, or not supported.
    """
    return parse_message(message_of(compile_proto(text_of(registered, "PROTOBUF"), registered.references), path=path), wanted)


def message_path(head: bytes) -> tuple[tuple[int, ...], int]:
    """Return the path of a payload's message in its file, and the size of the path's bytes.

    Raises:
        UndecodablePayload: there is no such path.
    """
    count, at = _number(head, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MAX_PATH:
        raise UndecodablePayload(f"the message's place has {count} numbers")
    path = []
    for _ in range(count):
        place, at = _number(head, at)
        if place < 0:
            raise UndecodablePayload("the message's place is negative")
        path.append(place)
    return tuple(path), at


def path_bytes(path: tuple[int, ...]) -> bytes:
    """Encode the path of a payload's message in its file."""
    return _FIRST if path == (0,) else b"".join(map(_zigzag, (len(path), *path)))


def _number(head: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(at, min(at + 5, len(head))):
        value |= (head[place] & 127) << shift
        shift += 7
        if head[place] < 128:
            return (value >> 1) ^ -(value & 1), place + 1
    raise UndecodablePayload("the message's place is not written to its end")


def _zigzag(number: int) -> bytes:
    number <<= 1
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    return bytes([*written, number])
