"""Admission: how far each feed partition may advance in the next micro-batch. Pure.

Catching up with a backlog must be as right as living through it (design: a table not behind its stream), so partitions advance
together in *event time*, not by equal counts. A stream's chunk is taken only when every table with a backlog has reached the
greatest event time inside it; a table that is read to its end holds nobody back.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

UNKNOWN_TS = 1 << 62
"""Later than every event time."""

FeedPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a feed partition that is read whole or not at all.

    Attributes:
        end_offset: offset after its last record.
        rows: records inside; an estimate where the feed does not count them.
        size_bytes: its size as stored.
        start_ts: event time (ms) near its beginning, None where unknown.
        max_ts: greatest event time (ms) inside, None where unknown.
    """

    end_offset: int
    rows: int
    size_bytes: int
    start_ts: int | None
    max_ts: int | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What one feed partition has to offer.

    Attributes:
        feed: name of the feed.
        partition: partition of it.
        chunks: the next ones in offset order.
        is_table: some table of the query reads this feed and no stream does.
        is_whole: nothing comes after ``chunks``.
    """

    feed: str
    partition: int
    chunks: Sequence[Chunk]
    is_table: bool
    is_whole: bool


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """How much one batch may hold. At least one chunk is always admitted."""

    max_rows: int
    max_bytes: int


def admit(backlogs: Sequence[Backlog], limit: BatchLimit) -> dict[FeedPartition, int]:
    """Choose the end offset of every partition that advances.

    Args:
        backlogs: one per feed partition; those without chunks do not count.
        limit: bound of the batch.

    Returns:
        (feed, partition) → offset to read up to; partitions that do not advance are absent.
    """
    ends: dict[FeedPartition, int] = {}
    rows = size_bytes = 0
    queue = [_Cursor.at_start(index, backlog) for index, backlog in enumerate(backlogs) if backlog.chunks]
    heapq.heapify(queue)
    while queue:
        cursor = heapq.heappop(queue)
        backlog = backlogs[cursor.index]
        chunk = backlog.chunks[cursor.taken]
        is_over = rows + chunk.rows > limit.max_rows or size_bytes + chunk.size_bytes > limit.max_bytes
        if ends and is_over:
            break
        ends[backlog.feed, backlog.partition] = chunk.end_offset
        rows, size_bytes = rows + chunk.rows, size_bytes + chunk.size_bytes
        following = cursor.after(chunk, backlog)
        if following is not None:
            heapq.heappush(queue, following)
        elif not backlog.is_whole:
            break  # what comes next is not known, so neither is whether the others may pass it
    return ends


@dataclass(frozen=True, slots=True, order=True)
class _Cursor:
    """A partition's place in the queue: tables by the time reached, streams by the time the next chunk would reach."""

    due_ts: int
    is_stream: bool
    index: int
    taken: int
    reached_ts: int

    @classmethod
    def at_start(cls, index: int, backlog: Backlog) -> _Cursor:
        first = backlog.chunks[0]
        return cls._placed(index, backlog, 0, first.start_ts if first.start_ts is not None else -1)

    @classmethod
    def _placed(cls, index: int, backlog: Backlog, taken: int, reached_ts: int) -> _Cursor:
        chunk = backlog.chunks[taken]
        # Of an unknown event time the worst is assumed: the tables go first. A chunk without records (a CSV's header) waits for nobody.
        unknown = reached_ts if chunk.rows == 0 else UNKNOWN_TS
        would_reach = max(reached_ts, chunk.max_ts if chunk.max_ts is not None else unknown)
        return cls(reached_ts if backlog.is_table else would_reach, not backlog.is_table, index, taken, reached_ts)

    def after(self, chunk: Chunk, backlog: Backlog) -> _Cursor | None:
        """Return the place of the partition's next chunk, None where the known ones are used up."""
        if self.taken + 1 == len(backlog.chunks):
            return None
        reached = max(self.reached_ts, chunk.max_ts if chunk.max_ts is not None else -1)
        return self._placed(self.index, backlog, self.taken + 1, reached)
