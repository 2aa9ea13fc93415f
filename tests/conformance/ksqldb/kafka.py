"""Keys and values as Kafka's own serialisers write them: one column, numbers in network order, texts in UTF-8."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import polars as pl

from engine.definition.record_formats import KAFKA
from engine.expressions.types.types import Schema
from engine.formats.lenient.json_format import Decoded, Layout, Payload, column_read
from engine.formats.lenient.lenient import Unreadable
from tests.conformance.ksqldb.codec import Codec

_NUMBERS: Final = {"int": struct.Struct(">i"), "bigint": struct.Struct(">q"), "double": struct.Struct(">d")}


def decode(payloads: Sequence[Payload], layout: Layout) -> Decoded:
    """Read payloads; see ``Codec``."""
    faults: dict[int, str] = {}
    columns = {
        name: column_read(name, payloads, declared, _reader(declared.kind), faults) for name, declared in layout.columns.items()
    }
    return Decoded(columns, [payload is None for payload in payloads], faults)


def encode(frame: pl.DataFrame, layout: Layout) -> list[Payload]:
    """Write rows; see ``Codec``. A null is no payload."""
    name, kind = _single(layout.columns)
    number = _NUMBERS.get(kind)
    values = frame.get_column(name).to_list()
    if number is not None:
        return [None if value is None else number.pack(value) for value in values]
    return values if kind == "bytes" else [None if value is None else value.encode() for value in values]


def _single(columns: Schema) -> tuple[str, str]:
    ((name, declared),) = columns.items()
    return name, declared.kind


def _reader(kind: str) -> Callable[[Any], Any]:
    number = _NUMBERS.get(kind)
    if number is not None:
        return lambda payload: _number(payload, kind, number)
    return bytes if kind == "bytes" else _text


def _number(payload: bytes, kind: str, number: struct.Struct) -> Any:
    if len(payload) != number.size:
        raise Unreadable(f"{kind} has {number.size} bytes, not {len(payload)}")
    return number.unpack(payload)[0]


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"no text in UTF-8: {error}") from None


KAFKA_CODEC = Codec(KAFKA, decode, encode)
