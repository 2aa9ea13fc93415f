"""Admission: how far each input advances in the next batch. Pure.

While a backlog is read, inputs and partitions go forward together in *event time*, not by equal counts, and a table is never behind a
stream: before a stream's chunk is taken, every table is taken up to that chunk's greatest event time, or to its end. Replaying a backlog is
then as right as living through it.

Chunks are taken in the order in which ``engine.core.order`` would merge them: by head event time, that is the running maximum of event time in
the partition; tables first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.connectors.feeds import Chunk


@dataclass(frozen=True, slots=True)
class Ahead:
    """What lies ahead in one partition.

    Attributes:
        feed: name of the feed.
        partition: its partition.
        position: where the last batch ended.
        chunks: what follows, in order.
        is_table: a table's input reads it. A feed that serves tables and streams counts as a stream: it cannot be behind itself.
        is_complete: ``chunks`` reach the end; else they were cut by the look-ahead limit.
    """

    feed: str
    partition: int
    position: int
    chunks: tuple[Chunk, ...]
    is_table: bool
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Budget:
    """What a batch may hold. A single chunk may exceed it: a batch always makes progress."""

    max_rows: int
    max_bytes: int


@dataclass(slots=True)
class _Lane:
    """One partition while chunks are taken from it."""

    index: int
    ahead: Ahead
    taken: int = 0
    clock: int | None = None

    @property
    def next_chunk(self) -> Chunk | None:
        chunks = self.ahead.chunks
        return chunks[self.taken] if self.taken < len(chunks) else None

    @property
    def is_blind(self) -> bool:
        """There is more, but not in sight: nothing may be assumed about it."""
        return self.next_chunk is None and not self.ahead.is_complete

    @property
    def rank(self) -> tuple[int, bool, int]:
        """Place of the next chunk in the merge. A chunk without a time is not held back."""
        chunk = self.next_chunk
        times = [time for time in (self.clock, chunk.start_ts if chunk is not None else None) if time is not None]
        return (max(times, default=-1), not self.ahead.is_table, self.index)


@dataclass(slots=True)
class _Batch:
    """What has been taken so far."""

    budget: Budget
    rows: int = 0
    bytes: int = 0
    chunks: int = field(default=0)

    def has_room(self, chunk: Chunk) -> bool:
        if self.chunks == 0:
            return True
        return self.rows + chunk.rows <= self.budget.max_rows and self.bytes + chunk.bytes <= self.budget.max_bytes

    def take(self, lane: _Lane) -> bool:
        """Take the lane's next chunk, if it fits."""
        chunk = lane.next_chunk
        if chunk is None or not self.has_room(chunk):
            return False
        self.rows += chunk.rows
        self.bytes += chunk.bytes
        self.chunks += 1
        lane.taken += 1
        if chunk.max_ts is not None:
            lane.clock = chunk.max_ts if lane.clock is None else max(lane.clock, chunk.max_ts)
        return True


def admit(aheads: Sequence[Ahead], budget: Budget) -> dict[tuple[str, int], int]:
    """Choose the end position of every partition for the next batch.

    Args:
        aheads: every partition of every feed; an empty one holds nobody back.
        budget: bounds of the batch.

    Returns:
        End positions by (feed, partition): for all partitions, unchanged where nothing is taken. If any chunk is ahead, at least one is taken.
    """
    lanes = [_Lane(index, ahead) for index, ahead in enumerate(aheads)]
    tables = [lane for lane in lanes if lane.ahead.is_table]
    batch = _Batch(budget)
    while True:
        ready = [lane for lane in lanes if lane.next_chunk is not None]
        if not ready:
            break
        lane = min(ready, key=lambda one: one.rank)
        if not lane.ahead.is_table and not _bring_tables_up(tables, lane, batch):
            break
        if not batch.take(lane):
            break
    return {(lane.ahead.feed, lane.ahead.partition): _end(lane) for lane in lanes}


def _bring_tables_up(tables: Sequence[_Lane], stream: _Lane, batch: _Batch) -> bool:
    """Take the tables' chunks that begin at or before the stream chunk's greatest event time; False when that is not possible now."""
    chunk = stream.next_chunk
    if chunk is None or chunk.max_ts is None:
        return not any(table.is_blind for table in tables)
    while behind := [table for table in tables if table.next_chunk is not None and table.rank[0] <= chunk.max_ts]:
        if not batch.take(min(behind, key=lambda one: one.rank)):
            return False
    return not any(table.is_blind and (table.clock is None or table.clock <= chunk.max_ts) for table in tables)


def _end(lane: _Lane) -> int:
    return lane.ahead.chunks[lane.taken - 1].end_offset if lane.taken else lane.ahead.position
