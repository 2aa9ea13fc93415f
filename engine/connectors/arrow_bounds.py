"""How large an Arrow IPC stream becomes when it is decoded, told from its metadata: before anything is decoded.

A few kilobytes can stand for gigabytes: buffers of zeros that are compressed, columns of nulls that have no buffers at all, one long text
that every record refers to. Messages are tables of FlatBuffers (``Message.fbs`` of Arrow); only the few fields that tell sizes are read here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

MAX_RECORDS: Final = 1_000_000
"""Of one body, as of every format. 64 bytes each where the body is as large as one may be."""

MAX_DECODED_BYTES: Final = 128 << 20
"""Twice the largest body. A record's columns are copied some three times until it is in the log."""

MAX_BATCHES: Final = 10_000
MAX_FIELDS: Final = 10_000
"""Batches, and columns, cost time of their own even where they are empty."""

_HEADER = 2
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3
_DICTIONARY_DATA = 1


class TooLarge(ValueError):
    """A stream that would become larger than its bounds."""


def check_stream(body: bytes) -> None:
    """Refuse a stream that would become too large.

    Raises:
        TooLarge: it says what is too much, and the bound.
        ValueError: the stream is damaged.
        pyarrow.ArrowException: likewise.
    """
    records = size = batches = 0
    for message in pa.ipc.MessageReader.open_stream(body):
        if message.type not in ("record batch", "dictionary"):
            continue
        length, decoded = _sizes(message)
        batches += 1
        records += length if message.type == "record batch" else 0
        size += decoded
        _check("record batches", batches, MAX_BATCHES)
        _check("records", records, MAX_RECORDS)
        _check("values of a dictionary", length, MAX_RECORDS)
        _check("bytes when it is decoded", size, MAX_DECODED_BYTES)


def check_schema(schema: pa.Schema) -> None:
    """Refuse types whose size only a look at every value could tell, and more columns than anybody has. Raises ``TooLarge``."""
    _check("columns", len(schema), MAX_FIELDS)
    for field in schema:
        for kind in _kinds(field.type):
            if pa.types.is_run_end_encoded(kind) or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
                raise TooLarge(f"column '{field.name}' is of type {kind}, which is not read; send plain values")
            if pa.types.is_dictionary(kind) and kind is not field.type:
                raise TooLarge(f"column '{field.name}' holds a dictionary inside of other values; send plain values")


def check_values(batch: pa.RecordBatch) -> int:
    """Return how many bytes texts take that records refer to, once each has its own.

    Raises:
        TooLarge: more than a body may become.
    """
    size = sum(_referred(column) for column in batch.columns)
    _check("bytes when each record has its own texts", size, MAX_DECODED_BYTES)
    return size


def _referred(column: pa.Array) -> int:
    if pa.types.is_dictionary(column.type):
        values = column.dictionary
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            return 0 if _is_fixed(values.type) else int(values.nbytes) * len(column)
        return pc.sum(pc.take(pc.binary_length(values), column.indices)).as_py() or 0
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        series = pl.Series(column.view(pa.binary_view()))
        return int(series.bin.size().sum() or 0)
    return 0


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _kinds(kind: pa.DataType) -> Iterator[pa.DataType]:
    yield kind
    for number in range(kind.num_fields):
        yield from _kinds(kind.field(number).type)


def _check(what: str, count: int, most: int) -> None:
    if not 0 <= count <= most:
        raise TooLarge(f"the stream has {count:,} {what}, and may have {most:,}; send it in several parts")


def _sizes(message: pa.ipc.Message) -> tuple[int, int]:
    """Return how many rows a batch says it has, and how many bytes its buffers become."""
    metadata, body = message.metadata.to_pybytes(), message.body
    try:
        root = _Table(metadata, struct.unpack_from("<I", metadata)[0])
        batch = root.table(_HEADER)
        if message.type == "dictionary":
            batch = batch.table(_DICTIONARY_DATA)
        places = batch.structs(_BUFFERS, "<qq")
        is_compressed = batch.has(_COMPRESSION)
        content = memoryview(body) if body is not None else memoryview(b"")
        return batch.long(_LENGTH), sum(_decoded(content, *place, is_compressed=is_compressed) for place in places)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"its metadata is damaged: {error}") from error


def _decoded(content: memoryview, offset: int, length: int, *, is_compressed: bool) -> int:
    """Return how many bytes a buffer becomes. A compressed one begins with that number; -1: it is kept as it is."""
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
    """A table of FlatBuffers: at ``at`` the way back to the list of where its fields are."""

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
