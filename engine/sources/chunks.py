"""Chunks of partitions: a source's description of records that it has not read yet."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN_TS = 1 << 62
"""Later than every event time."""


NO_TS = -1
"""Earlier than every event time: the head before any record has moved it."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a feed partition.

    Attributes:
        end_offset: offset after its last record.
        rows: records inside; an estimate if the feed does not count them.
        size_bytes: its size as stored.
        max_ts: greatest event time (ms) inside, None if unknown; ``NO_TS`` if no record inside can move the head.
    """

    end_offset: int
    rows: int
    size_bytes: int
    max_ts: int | None
