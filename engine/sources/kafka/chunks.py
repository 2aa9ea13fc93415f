"""Chunks of a partition, and their event times: the steps in which admission lets event times advance together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.records.canonical import MAX_EVENT_TIME_MS
from engine.sources.dating import Dated
from engine.sources.kafka.brokers.fetching.port import Fetched
from engine.sources.kafka.ranges import RangePart

CHUNK_RECORDS: Final = 8_192
"""Records of a chunk: chunks end at multiples of it, independent of where reading begins."""


@dataclass(frozen=True, slots=True)
class DatedChunk:
    """A chunk whose event times are known.

    Attributes:
        end: the offset after it.
        dated: its event times.
        rows: how many records are inside.
        size_bytes: of their keys, values and headers.
    """

    end: int
    dated: Dated
    rows: int
    size_bytes: int


def chunk_end(start: int, end: int) -> int:
    """Return the end of the chunk that contains a position, at most ``end``."""
    return min((start // CHUNK_RECORDS + 1) * CHUNK_RECORDS, end)


def chunk_of(parts: Sequence[tuple[RangePart, Dated]], start: int, end: int) -> DatedChunk:
    """Cut a chunk out of dated records."""
    records = [part.records.within(start, end) for part, _ in parts if part.start < end and part.stop > start]
    times = []
    for part, dated in parts:
        if part.start < end and part.stop > start:
            first, last = np.searchsorted(dated.offsets, [start, end])
            times.append(Dated(dated.offsets[first:last], dated.times[first:last]))
    return DatedChunk(end, Dated.joined(times), sum(map(len, records)), sum(each.size_bytes for each in records))


def own_times(records: Fetched, bound_ms: int | None) -> Dated:
    """Return the records' own times, without those that are refused as out of range or too far ahead."""
    last = MAX_EVENT_TIME_MS if bound_ms is None else min(MAX_EVENT_TIME_MS, bound_ms)
    good = (records.timestamps >= 0) & (records.timestamps <= last)
    return Dated(records.offsets[good], records.timestamps[good])
