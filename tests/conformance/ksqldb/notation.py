"""Keys and values of topics as tests write them, and as bytes: what each format looks like in JSON."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from engine.expressions.types.types import ColumnType
from engine.formats.lenient.json_format import Decoded, Layout, Payload
from engine.formats.lenient.lenient import json_text
from tests.conformance.ksqldb.codec import Codec
from tests.conformance.ksqldb.codecs import CODECS
from tests.conformance.ksqldb.plain_values import plain_column


@dataclass(frozen=True, slots=True)
class Notation:
    """How one format stands in a test.

    Attributes:
        read: what a test gives → payload; it is of the format's own shape, and need not fit the columns.
        shown: payloads, with their layout and what they hold → what a test shows.
    """

    read: Callable[[Any, Layout], bytes]
    shown: Callable[[Sequence[Payload], Layout, Decoded], list[Any]]


@dataclass(frozen=True, slots=True)
class Side:
    """The keys, or the values, of a topic as one relation reads and writes them.

    Attributes:
        format: its name; one without a codec holds nothing.
        layout: its columns; where there are none it holds nothing.
    """

    format: str
    layout: Layout

    @property
    def _codec(self) -> Codec | None:
        return CODECS.get(self.format) if len(self.layout.columns) else None

    def decode(self, payloads: Sequence[Payload]) -> Decoded:
        """Read payloads."""
        codec = self._codec
        return Decoded({}, [each is None for each in payloads], {}) if codec is None else codec.decode(payloads, self.layout)

    def encode(self, frame: pl.DataFrame) -> list[Payload]:
        """Write the rows of a frame."""
        codec = self._codec
        return [None] * frame.height if codec is None else codec.encode(frame, self.layout)

    def payload(self, given: Any) -> Payload:
        """Return what a test gives as bytes."""
        if given is None or self.format not in NOTATIONS:
            return None
        return NOTATIONS[self.format].read(given, self.layout)

    def shown(self, payloads: Sequence[Payload]) -> list[Any]:
        """Return payloads as a test shows them; None for those that are none, or cannot be read."""
        if self._codec is None:
            return [None] * len(payloads)
        return NOTATIONS[self.format].shown(payloads, self.layout, self.decode(payloads))


def _json_bytes(given: Any, layout: Layout) -> bytes:
    del layout
    return json_text(given).encode()


def _shown_json(payloads: Sequence[Payload], layout: Layout, found: Decoded) -> list[Any]:
    del payloads
    columns = _plain(layout, found)
    rows: Sequence[Any] = (
        columns[0]
        if layout.is_bare
        else [dict(zip(layout.columns.names, row, strict=True)) for row in zip(*columns, strict=True)]
    )
    unread = {place for place, is_absent in enumerate(found.is_absent) if is_absent} | found.faults.keys()
    return [None if place in unread else value for place, value in enumerate(rows)]


def _plain(layout: Layout, found: Decoded) -> list[list[Any]]:
    return [plain_column(found.columns[name], declared) for name, declared in layout.columns.items()]


def _text_bytes(given: Any, layout: Layout) -> bytes:
    del layout
    return given.encode() if isinstance(given, str) else json_text(given).encode()


def _shown_text(payloads: Sequence[Payload], layout: Layout, found: Decoded) -> list[Any]:
    del layout, found
    return [None if payload is None else payload.decode() for payload in payloads]


_NUMBERS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "int": (">i", int),
    "bigint": (">q", int),
    "double": (">d", float),
}


def _kafka_bytes(given: Any, layout: Layout) -> bytes:
    """Write a value by the type of its column; bytes are the text itself."""
    if len(layout.columns) == 1:
        number = _NUMBERS.get(_single(layout).kind)
        if number is not None:
            form, convert = number
            return struct.pack(form, convert(given))
    return _text_bytes(given, layout)


def _shown_kafka(payloads: Sequence[Payload], layout: Layout, found: Decoded) -> list[Any]:
    if _single(layout).kind == "bytes":
        return _shown_text(payloads, layout, found)
    return _plain(layout, found)[0]


def _single(layout: Layout) -> ColumnType:
    return layout.columns.types[0]


_JSON: Final = Notation(_json_bytes, _shown_json)

NOTATIONS: Final[dict[str, Notation]] = {
    "JSON": _JSON,
    "DELIMITED": Notation(_text_bytes, _shown_text),
    "KAFKA": Notation(_kafka_bytes, _shown_kafka),
}
