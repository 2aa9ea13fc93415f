"""The interfaces of a record format's decoders and encoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from engine.definition.record_formats import DEFAULT_DELIMITER, RecordFormat
from engine.expressions.types.types import Schema

Payload = bytes | None
"""A key or a value in a topic; None: the record has none."""


class Unreadable(ValueError):
    """A value does not fit its type, even with leniency. The text shows the value and the type."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a topic's keys, or of its values.

    Attributes:
        columns: in the order of the topic.
        is_wrapped: a single column is inside an object; several always are.
        delimiter: between columns, for formats that have one.
    """

    columns: Schema
    is_wrapped: bool = True
    delimiter: str = DEFAULT_DELIMITER

    @property
    def is_bare(self) -> bool:
        """Whether the one column has no object around it."""
        return len(self.columns) == 1 and not self.is_wrapped


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded payloads.

    Attributes:
        columns: by name, each with one value for each payload: null if there is none, or it cannot be read.
        is_absent: which payloads are None, or empty: a key that is null, a tombstone.
        faults: place of an unreadable payload → why.
    """

    columns: dict[str, pl.Series]
    is_absent: list[bool]
    faults: Mapping[int, str]


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
