"""Avro's object container files: a schema, and blocks of consecutive values without lengths.

Only reading a value shows where it ends. So ``fastavro`` walks through a block, and the batch is then read like payloads of topics.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import fastavro
import polars as pl

from engine.formats.avro.payloads import check_growth
from engine.formats.avro.schema import AvroSchema, parse_schema
from engine.formats.bisecting import UndecodablePayload
from engine.formats.json.json_records import BodyMalformed
from engine.records.arrow_bounds import MAX_RECORDS

MAGIC: Final = b"Obj\x01"
CODECS: Final = ("null", "deflate")
MAX_EXPANDED_BYTES: Final = 256 << 20
"""Bound of all expanded blocks of one body. Deflate can expand one byte to a thousand."""

_SYNC_BYTES: Final = 16
_MAX_ENTRIES: Final = 1_000
_META: Final = "the file's header cannot be read"


def read_container(body: bytes) -> tuple[AvroSchema, pl.Series]:
    """Return a file's schema and its values as payloads.

    Raises:
        BodyMalformed: it is no such file, is truncated, holds too much, or has an unsupported codec.
        SchemaNotRead: see ``parse_schema``.
    """
    if not body.startswith(MAGIC):
        raise BodyMalformed(
            "the body is no Avro object container file, which begins with Obj and 1; of a single payload behind a registry's schema number name "
            "`registry`",
            0,
        )
    stream = io.BytesIO(body)
    stream.seek(len(MAGIC))
    meta = _meta(stream)
    codec = meta.get("avro.codec", b"null").decode("ascii", "replace")
    if codec not in CODECS:
        raise BodyMalformed(f"its codec {codec[:30]!r} is not read; write the file with {' or '.join(CODECS)}")
    try:
        text = meta["avro.schema"].decode()
    except (KeyError, UnicodeDecodeError) as error:
        raise BodyMalformed(f"{_META}: it has no schema in UTF-8") from error
    schema = parse_schema(text)
    sync = _taken(stream, _SYNC_BYTES)
    payloads: list[bytes] = []
    for count, block in _blocks(stream, sync, codec):
        if len(payloads) + count > MAX_RECORDS:
            raise BodyMalformed(f"the file has more than {MAX_RECORDS:,} records; send it in several parts")
        payloads += _values(schema, count, block)
    return schema, pl.Series(payloads, dtype=pl.Binary)


def _meta(stream: io.BytesIO) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    while count := _long(stream):
        if count < 0:
            count = -count
            _long(stream)
        if len(found) + count > _MAX_ENTRIES:
            raise BodyMalformed(f"{_META}: it has more than {_MAX_ENTRIES} entries")
        for _ in range(count):
            name = _taken(stream, _long(stream)).decode("utf-8", "replace")
            found[name] = _taken(stream, _long(stream))
    return found


def _blocks(stream: io.BytesIO, sync: bytes, codec: str) -> Iterator[tuple[int, bytes]]:
    left, size = MAX_EXPANDED_BYTES, stream.getbuffer().nbytes
    while stream.tell() < size:
        at = stream.tell()
        count = _long(stream)
        block = _taken(stream, _long(stream))
        if _taken(stream, _SYNC_BYTES) != sync:
            raise BodyMalformed(f"the block at byte {at} does not end with the file's mark: the file is damaged", at)
        if codec == "deflate":
            block = _inflated(block, left, at)
        left -= len(block)
        yield count, block


def _inflated(block: bytes, most: int, at: int) -> bytes:
    inflating = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        found = inflating.decompress(block, most)
    except zlib.error as error:
        raise BodyMalformed(f"the block at byte {at} cannot be decompressed: {error}", at) from error
    if inflating.unconsumed_tail or len(found) >= most:
        raise BodyMalformed(f"its blocks have more than {MAX_EXPANDED_BYTES:,} bytes decompressed; send it in several parts", at)
    if not inflating.eof:
        raise BodyMalformed(f"the block at byte {at} is cut: its deflate stream does not end", at)
    return found


def _values(schema: AvroSchema, count: int, block: bytes) -> Iterator[bytes]:
    """Cut a block. An unreadable value ends the body, because the start of the next one is unknown."""
    if count < 0:
        raise BodyMalformed(f"a block says that it has {count:,} records in {len(block):,} bytes")
    walked, stream, at = _walked(schema), io.BytesIO(block), 0
    try:
        check_growth(schema.shape, [block])
        for _ in range(count):
            fastavro.schemaless_reader(stream, walked, None)
            end = stream.tell()
            yield block[at:end]
            at = end
    except UndecodablePayload as misread:
        raise BodyMalformed(f"a block cannot be read: {misread}") from misread
    except (ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, UnicodeError, RecursionError) as error:
        raise BodyMalformed(
            f"a value at byte {at} of a block is not of the file's schema: {str(error)[:200] or type(error).__name__}"
        ) from error
    if at != len(block):
        raise BodyMalformed(f"a block has {len(block) - at:,} bytes behind its {count:,} records")


@lru_cache(maxsize=64)
def _walked(schema: AvroSchema) -> Any:
    return fastavro.parse_schema(json.loads(schema.wire)) if schema.is_quick else schema.plain


def _taken(stream: io.BytesIO, size: int) -> bytes:
    found = stream.read(size) if size >= 0 else b""
    if size < 0 or len(found) < size:
        raise BodyMalformed(f"the file is cut, or damaged, at byte {stream.tell()}", stream.tell())
    return found


def _long(stream: io.BytesIO) -> int:
    value = shift = 0
    while shift < 70:
        byte = _taken(stream, 1)[0]
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1)
        shift += 7
    raise BodyMalformed(f"a number at byte {stream.tell()} is too long", stream.tell())
