"""A format of keys and values: how records of it are read and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from engine.definition.record_formats import RecordFormat
from engine.formats.lenient.json_format import Decoded, Layout, Payload


@dataclass(frozen=True, slots=True)
class Codec:
    """How a format is read and written.

    Attributes:
        format: the types that it can hold.
        decode: payloads → columns.
        encode: a frame with the layout's columns → a payload for each row. A payload is None only if the format has no other way to write a
            single null; the caller decides whether a row is a tombstone.
    """

    format: RecordFormat
    decode: Callable[[Sequence[Payload], Layout], Decoded]
    encode: Callable[[pl.DataFrame, Layout], list[Payload]]
