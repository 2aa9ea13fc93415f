"""A feed in memory, as a query of a test reads it: partitions with offsets, or the numbered rows of a result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from engine.frames.clocks import BEFORE_ALL_TIME, I64
from engine.frames.frames import OFFSET, TS
from engine.log.marks import Marks
from engine.log.sequence import Numbered
from engine.log.sequences import LANE_PARTITION
from engine.log.storage import route
from engine.sources.feeds import Chunk

CHUNK_ROWS = 16
"""The grain in which a backlog is looked at, as small as tests are."""


class MemoryFeed:
    """Records of one feed, for all relations that read it.

    Args:
        partitions: how many; 1 for a result's, which is read by the numbers of its rows.
    """

    def __init__(self, partitions: int) -> None:
        self._frames: dict[tuple[int, str], list[pl.DataFrame]] = {}
        self._times: list[list[I64]] = [[] for _ in range(partitions)]
        self._ends = [0] * partitions
        self.reached_ms: int | None = None
        self._marks: list[Marks] = []

    @property
    def last_mark_ms(self) -> int | None:
        """The time of the last mark; None: there is none."""
        return max((marks.last_ms for marks in self._marks if marks.last_ms is not None), default=None)

    @property
    def ends(self) -> dict[int, int]:
        return dict(enumerate(self._ends))

    def append(self, relation: str, frame: pl.DataFrame, key: Sequence[str]) -> None:
        """Append a relation's records, each to the partition of its key."""
        for partition, part in route(frame.drop(OFFSET, strict=False), key, len(self._ends)):
            first = self._ends[partition]
            self._note(partition, part.get_column(TS).to_numpy())
            offsets = pl.Series(OFFSET, np.arange(first, first + part.height))
            self._frames.setdefault((partition, relation), []).append(part.with_columns(offsets))

    def append_placed(self, relation: str, frame: pl.DataFrame, partition: int) -> None:
        """Append records that several relations find at the same offsets of a partition."""
        self._frames.setdefault((partition, relation), []).append(frame)
        end = self._ends[partition]
        behind = frame.filter(pl.col(OFFSET) >= end)
        missing = int(behind.item(-1, OFFSET)) + 1 - end if behind.height else 0
        if missing:
            times = np.full(missing, BEFORE_ALL_TIME)
            times[behind.get_column(OFFSET).to_numpy() - end] = behind.get_column(TS).to_numpy()
            self._note(partition, times)

    def append_rows(self, relation: str, tasks: Sequence[pl.DataFrame], numbers: Numbered, marks: Marks) -> None:
        """Append what the tasks of a query emitted, in the order of the numbers, and the marks between its rows."""
        self.reached_ms = numbers.reached_ms
        self._marks.append(marks)
        if not tasks:
            return
        rows = numbers.in_order(tasks)
        heads = np.sort(np.concatenate(numbers.heads))  # they never fall along the numbers
        first = self._ends[LANE_PARTITION]
        self._note(LANE_PARTITION, heads)
        placed = rows.with_columns(pl.Series(OFFSET, np.arange(first, first + len(heads))))
        self._frames.setdefault((LANE_PARTITION, relation), []).append(placed)

    def chunks(self, partition: int, start: int) -> list[Chunk]:
        """Return what lies behind an offset."""
        times = self._all_times(partition)
        edges = [*range(start, self._ends[partition], CHUNK_ROWS), self._ends[partition]]
        spans = pairwise(edges)
        return [Chunk(last, last - first, last - first, int(times[first:last].max())) for first, last in spans]

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:
        found = np.flatnonzero(self._all_times(partition)[start:end] >= bound_ms)
        return start + int(found[0]) if len(found) else end

    def heads(self, partition: int, start: int, end: int) -> tuple[I64, I64]:
        """Return the offsets ``[start, end)`` and what moves the partition's head there."""
        return np.arange(start, end), self._all_times(partition)[start:end]

    def read(self, relation: str, partition: int, start: int, end: int) -> Iterator[pl.DataFrame]:
        """Yield a relation's records in ``[start, end)``; nothing where there are none."""
        frames = self._frames.get((partition, relation), [])
        if len(frames) > 1:
            self._frames[partition, relation] = frames = [pl.concat(frames)]
        found = [frame.filter(pl.col(OFFSET).is_between(start, end, closed="left")) for frame in frames]
        if not found or not found[0].height:
            return
        yield found[0]

    def marks(self, start: int, end: int, cut_ms: int | None) -> Marks:
        """Return the marks before the records ``[start, end)``, and those before the next one that a batch reads which is cut there."""
        names = ("numbers", "heads", "times")
        numbers, heads, times = (
            np.concatenate([np.empty(0, np.int64), *(getattr(each, name) for each in self._marks)]) for name in names
        )
        own = (numbers >= start) & ((numbers < end) | ((numbers == end) & (True if cut_ms is None else heads < cut_ms)))
        return Marks(numbers[own], heads[own], times[own], max((each.wait_ms for each in self._marks), default=0))

    def newest(self, partition: int, start: int, end: int) -> int | None:
        """Return the greatest event time in ``[start, end)``."""
        times = self._all_times(partition)[start:end]
        return int(times.max()) if len(times) else None

    def _note(self, partition: int, times: I64) -> None:
        self._times[partition].append(times)
        self._ends[partition] += len(times)

    def _all_times(self, partition: int) -> I64:
        parts = self._times[partition]
        if len(parts) > 1:
            self._times[partition] = parts = [np.concatenate(parts)]
        return parts[0] if parts else np.empty(0, np.int64)
