"""What decoders and encoders of a record format are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from engine.definition.record_formats import DEFAULT_DELIMITER, RecordFormat
from engine.expressions.types.types import Schema

Payload = bytes | None
"""A key or a value as a topic holds it; None: a record without one."""


class Unreadable(ValueError):
    """A value that is not of its type, even with leniency. The text says what it is, and what it should be."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the keys, or the values, of a topic hold.

    Attributes:
        columns: in the order of the topic.
        is_wrapped: a single column stands in an object of its own; several always do.
        delimiter: what stands between columns, where the format has such a thing.
    """

    columns: Schema
    is_wrapped: bool = True
    delimiter: str = DEFAULT_DELIMITER

    @property
    def is_bare(self) -> bool:
        """Whether the one column stands without an object."""
        return len(self.columns) == 1 and not self.is_wrapped


@dataclass(frozen=True, slots=True)
class Decoded:
    """What payloads hold.

    Attributes:
        columns: by name, each with one value for each payload: null where there is none, or it cannot be read.
        is_absent: which payloads are None, or hold nothing: a key that is null, a tombstone.
        faults: place of a payload that cannot be read → why.
    """

    columns: dict[str, pl.Series]
    is_absent: list[bool]
    faults: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Codec:
    """How a format is read and written.

    Attributes:
        format: what it can hold.
        decode: payloads → columns.
        encode: a frame with the layout's columns → a payload for each row. It gives None only where the format has no other way to write a
            single null; whether a row is a tombstone is the caller's to know.
    """

    format: RecordFormat
    decode: Callable[[Sequence[Payload], Layout], Decoded]
    encode: Callable[[pl.DataFrame, Layout], list[Payload]]
