"""The decoded size of an Arrow IPC stream, from its metadata: before anything is decoded.

A few kilobytes can stand for gigabytes: compressed buffers of zeros, columns of nulls without buffers, one long text
to which every record refers. Messages are tables of FlatBuffers (``Message.fbs`` of Arrow); only the few fields with sizes are read here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from engine.records.arrow_types import TypeNotRead, check_types, kinds_of

MAX_RECORDS: Final = 1_000_000
"""Bound of one body, in every format: 64 bytes each in the largest allowed body."""

MAX_DECODED_BYTES: Final = 128 << 20
"""Twice the largest body. A record's columns are copied about three times on their way into the log."""

MAX_VALUES: Final = MAX_DECODED_BYTES // 8
"""Values of all columns, with nested ones. A null takes as many bytes as any number once it has its declared type, and
none in a body: it has neither a buffer in an Arrow stream nor a place in a JSON record."""

MAX_BATCHES: Final = 10_000
MAX_FIELDS: Final = 10_000
"""Batches, and columns, cost time even if they are empty."""

_HEADER = 2
_LENGTH, _NODES, _BUFFERS, _COMPRESSION = 0, 1, 2, 3
_DICTIONARY_DATA = 1


class TooLarge(ValueError):
    """A stream would exceed its bounds when decoded."""


def check_stream(body: bytes) -> int:
    """Refuse a stream that would become too large.

    Returns:
        The number of its records.

    Raises:
        TooLarge: the text says what is too much, and the bound.
        ValueError: the stream is damaged.
        pyarrow.ArrowException: likewise.
    """
    records = size = batches = values = 0
    for message in pa.ipc.MessageReader.open_stream(body):
        if message.type not in ("record batch", "dictionary"):
            continue
        found = _sizes(message)
        batches += 1
        records += found.length if message.type == "record batch" else 0
        values += found.values
        size += found.decoded
        _check("record batches", batches, MAX_BATCHES)
        _check("records", records, MAX_RECORDS)
        _check("values of a dictionary", found.length, MAX_RECORDS)
        _check("values", values, MAX_VALUES)
        _check("bytes when it is decoded", size, MAX_DECODED_BYTES)
    return records


def check_schema(schema: pa.Schema) -> None:
    """Refuse unsupported types, types whose size needs a look at every value, and unusually many columns.

    Raises:
        TypeNotRead: a column's type.
        TooLarge: the number of columns.
    """
    _check("columns", len(schema), MAX_FIELDS)
    check_types(schema)
    for field in schema:
        if any(pa.types.is_dictionary(kind) and kind is not field.type for kind in kinds_of(field.type)):
            raise TypeNotRead(f"column '{field.name}' holds a dictionary inside of other values; send plain values")


def check_values(batches: Iterable[pa.RecordBatch]) -> None:
    """Refuse batches whose records refer to the same values too often: each record gets its own copy.

    Raises:
        TooLarge: all batches together exceed the bound of a body.
    """
    size = 0
    for batch in batches:
        size += sum(referred_bytes(column) for column in batch.columns)
        _check("bytes when each record has its own texts", size, MAX_DECODED_BYTES)


def referred_bytes(column: pa.Array) -> int:
    """Return the size of a column's values once each record has its own copy."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return referred_bytes(column.storage)
    if pa.types.is_dictionary(kind):
        return _of_dictionary(column)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        series = pl.Series(column.view(pa.binary_view()))
        return int(series.bin.size().sum() or 0)
    if pa.types.is_struct(kind):
        return sum(referred_bytes(column.field(number)) for number in range(kind.num_fields))
    if pa.types.is_map(kind):
        return referred_bytes(column.keys) + referred_bytes(column.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return referred_bytes(column.values)
    return 0


def _of_dictionary(column: pa.DictionaryArray) -> int:
    values = column.dictionary
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return int(pc.sum(pc.take(pc.binary_length(values), column.indices)).as_py() or 0)
    if pa.types.is_primitive(values.type) or pa.types.is_decimal(values.type):
        return len(column) * max(1, int(values.type.bit_width) // 8)
    return int(values.nbytes) * len(column)


def _check(what: str, count: int, most: int) -> None:
    if not 0 <= count <= most:
        raise TooLarge(f"the stream has {count:,} {what}, and may have {most:,}; send it in several parts")


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The sizes in a batch's metadata.

    Attributes:
        length: its rows.
        values: of all columns at every depth, with nulls.
        decoded: the size of its buffers after decoding.
    """

    length: int
    values: int
    decoded: int


def _sizes(message: pa.ipc.Message) -> _Sizes:
    metadata, body = message.metadata.to_pybytes(), message.body
    try:
        root = _Table(metadata, struct.unpack_from("<I", metadata)[0])
        batch = root.table(_HEADER)
        if message.type == "dictionary":
            batch = batch.table(_DICTIONARY_DATA)
        lengths = [length for length, _ in batch.structs(_NODES, "<qq")]
        if min(lengths, default=0) < 0:
            raise ValueError("a column has a negative length")
        is_compressed = batch.has(_COMPRESSION)
        content = memoryview(body) if body is not None else memoryview(b"")
        decoded = sum(_decoded(content, *place, is_compressed=is_compressed) for place in batch.structs(_BUFFERS, "<qq"))
        return _Sizes(batch.long(_LENGTH), sum(lengths), decoded)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"its metadata is damaged: {error}") from error


def _decoded(content: memoryview, offset: int, length: int, *, is_compressed: bool) -> int:
    """Return the decoded size of a buffer. A compressed one begins with that number; -1: it is not compressed."""
    if offset < 0 or length < 0 or offset + length > len(content):
        raise ValueError("a buffer lies outside of its message")
    if not is_compressed or length == 0:
        return length
    (size,) = struct.unpack_from("<q", content, offset)
    if size < -1:
        raise ValueError("a buffer has a negative size")
    return length if size == -1 else int(size)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of FlatBuffers: at ``at`` is the offset back to the list of its fields' places."""

    data: bytes
    at: int

    def _place(self, field: int) -> int | None:
        listed = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        if listed < 0:
            raise ValueError("a table lies outside of its message")
        size = struct.unpack_from("<H", self.data, listed)[0]
        entry = 4 + 2 * field
        found = struct.unpack_from("<H", self.data, listed + entry)[0] if entry + 2 <= size else 0
        return self.at + found if found else None

    def has(self, field: int) -> bool:
        return self._place(field) is not None

    def long(self, field: int) -> int:
        place = self._place(field)
        return 0 if place is None else int(struct.unpack_from("<q", self.data, place)[0])

    def table(self, field: int) -> _Table:
        place = self._place(field)
        if place is None:
            raise ValueError("a message without a header")
        return _Table(self.data, place + struct.unpack_from("<I", self.data, place)[0])

    def structs(self, field: int, form: str) -> list[tuple[int, int]]:
        place = self._place(field)
        if place is None:
            return []
        start = place + struct.unpack_from("<I", self.data, place)[0]
        count, size = struct.unpack_from("<I", self.data, start)[0], struct.calcsize(form)
        found = self.data[start + 4 : start + 4 + count * size]
        if len(found) < count * size:
            raise ValueError("a list lies outside of its message")
        return list(struct.iter_unpack(form, found))
