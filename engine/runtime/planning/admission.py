"""Admission (P2): how far each feed partition may advance in the next micro-batch. Pure.

A query that catches up must give the results that it would have given in time. So a backlog is cut at one event time. Of each partition the
batch takes the longest prefix whose head (the running maximum of event time) is before the cut. The sequence of batches is then the k-way
merge of the whole backlog (T2), whatever their size. Chunks show roughly where the cut is; ``first_at`` finds the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from engine.runtime.limits.batch_size import BatchLimit
from engine.sources.feeds import NO_TS, UNKNOWN_TS, Chunk, Limit

TOO_MANY: Final = 2
"""If whole chunks make a batch this many times its bound, the cut is inside of them: each such cut reads times of records."""

FeedPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Backlog:
    """The unread records of one feed partition.

    Attributes:
        start: offset of the next record.
        chunks: the next ones in offset order.
        is_table: some table of the query reads this feed and no stream does.
        is_whole: nothing comes after ``chunks``.
        head: the head at ``start`` if the batch before was cut inside one event time; None: the head of the next record counts.
    """

    feed: str
    partition: int
    start: int
    chunks: Sequence[Chunk]
    is_table: bool
    is_whole: bool
    head: int | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """The records of the next batch.

    Attributes:
        ends: (feed, partition) → offset to read up to; partitions that do not advance are absent.
        heads: the head at the end of each partition that was cut inside one event time (``cut_inside_time``).
        cut_ms: everything is admitted whose head is before this event time; None: everything that was seen.
        unknown: a partition with more records of the last head than its backlog shows; the rest of the group waits for it (P8).
    """

    ends: dict[FeedPartition, int] = field(default_factory=dict)
    heads: dict[FeedPartition, int] = field(default_factory=dict)
    unknown: FeedPartition | None = None
    cut_ms: int | None = None


FirstAt = Callable[[Backlog, int, int, int], int]
"""Backlog, start, end, bound → offset of the first record in ``[start, end)`` that moves the head to the bound or later; else the end."""


def admit(backlogs: Sequence[Backlog], limit: BatchLimit, first_at: FirstAt | None, horizon_ms: int | None = None) -> Admitted:
    """Choose the end offset of every partition that advances.

    Args:
        backlogs: one per feed partition, in the order of ties (T2); those without chunks do not count.
        limit: bound of the batch.
        first_at: finds records; None if the query reads only one partition: its own order is the order, and any cut is right.
        horizon_ms: records with this head or later are not read, because a feed that is behind will have earlier ones; None: no such feed.
    """
    lanes = [_Lane.of(backlog) for backlog in backlogs if backlog.chunks]
    if first_at is None:
        return Admitted({lane.name: lane.within(limit) for lane in lanes})
    known = [lane.heads[-1] for lane in lanes if not lane.backlog.is_whole]
    hard = min([*known, *([] if horizon_ms is None else [horizon_ms])], default=None)
    cut = _cut(lanes, limit, hard)
    ends = _ends_before(lanes, cut, first_at)
    if _rows(lanes, ends) > TOO_MANY * limit.max_rows and all(lane.counts_records for lane in lanes):
        return _fewer(lanes, limit, cut, first_at)
    if ends or not lanes:
        return Admitted(ends, cut_ms=cut)
    return Admitted(cut_ms=cut) if cut is None or cut == horizon_ms else _inside(lanes, limit, cut, first_at)


@dataclass(frozen=True, slots=True)
class _Lane:
    """A backlog with the head at the end of each chunk."""

    backlog: Backlog
    heads: Sequence[int]

    @classmethod
    def of(cls, backlog: Backlog) -> _Lane:
        heads = []
        head = NO_TS if backlog.head is None else backlog.head
        for chunk in backlog.chunks:
            # Of records without a known time those of tables come first. A chunk without records (a CSV's header) waits for none.
            unknown = head if chunk.rows == 0 or backlog.is_table else UNKNOWN_TS
            head = max(head, unknown if chunk.max_ts is None else chunk.max_ts)
            heads.append(head)
        return cls(backlog, heads)

    @property
    def name(self) -> FeedPartition:
        return self.backlog.feed, self.backlog.partition

    @property
    def counts_records(self) -> bool:
        """Whether its offsets count records, as those of a log do; offsets of files leap from record to record."""
        chunks = self.backlog.chunks
        return sum(chunk.rows for chunk in chunks) == chunks[-1].end_offset - self.backlog.start

    def within(self, limit: BatchLimit) -> int:
        """Return the end of the chunks that fit, at least of one; an end inside the first if it is too long and offsets count records."""
        rows = size_bytes = 0
        end = self.backlog.start
        first = self.backlog.chunks[0]
        if limit.max_rows < first.rows and self.counts_records:
            return end + limit.max_rows
        for chunk in self.backlog.chunks:
            rows, size_bytes = rows + chunk.rows, size_bytes + chunk.size_bytes
            if end > self.backlog.start and (rows > limit.max_rows or size_bytes > limit.max_bytes):
                break
            end = chunk.end_offset
        return end

    def before(self, cut: int | None, first_at: FirstAt) -> int:
        """Return the end of the longest prefix whose heads are before the cut."""
        start = self.backlog.start
        if self.backlog.head is not None and cut is not None and self.backlog.head >= cut:
            return start
        for chunk, head in zip(self.backlog.chunks, self.heads, strict=True):
            if cut is not None and head >= cut:
                found = first_at(self.backlog, start, chunk.end_offset, cut)
                if found < chunk.end_offset:
                    return found
            start = chunk.end_offset
        return start


def _cut(lanes: Sequence[_Lane], limit: BatchLimit, hard: int | None) -> int | None:
    """Return the event time at which the batch ends; None: it takes everything."""
    steps = sorted(
        (head, index, chunk)
        for index, lane in enumerate(lanes)
        for chunk, head in enumerate(lane.heads)
        if hard is None or head < hard
    )
    rows = size_bytes = 0
    for place, (_, index, number) in enumerate(steps):
        chunk = lanes[index].backlog.chunks[number]
        rows, size_bytes = rows + chunk.rows, size_bytes + chunk.size_bytes
        if place and (rows > limit.max_rows or size_bytes > limit.max_bytes):
            return steps[place - 1][0] + 1
    return hard


def _ends_before(lanes: Sequence[_Lane], cut: int | None, first_at: FirstAt) -> dict[FeedPartition, int]:
    return {lane.name: end for lane in lanes if (end := lane.before(cut, first_at)) > lane.backlog.start}


def _rows(lanes: Sequence[_Lane], ends: Mapping[FeedPartition, int]) -> int:
    """Return the number of records up to these ends, if offsets count them."""
    return sum(ends[lane.name] - lane.backlog.start for lane in lanes if lane.name in ends)


def _fewer(lanes: Sequence[_Lane], limit: BatchLimit, cut: int | None, first_at: FirstAt) -> Admitted:
    """Search an earlier cut inside chunks, with at most the limit's records and at least about half of them.

    The search goes backwards from the cut in steps that double, then bisects.
    """
    high = max(lane.heads[-1] for lane in lanes) + 1 if cut is None else cut
    step, low, ends = 1, high, _ends_before(lanes, high, first_at)
    while low > 0 and _rows(lanes, ends) > limit.max_rows:
        high, low, step = low, max(low - step, 0), step * 2
        ends = _ends_before(lanes, low, first_at)
    while high - low > 1 and _rows(lanes, ends) <= limit.max_rows // 2:
        middle = (low + high) // 2
        found = _ends_before(lanes, middle, first_at)
        if _rows(lanes, found) > limit.max_rows:
            high = middle
        else:
            low, ends = middle, found
    return Admitted(ends, cut_ms=low) if ends else _inside(lanes, limit, low, first_at)


def _inside(lanes: Sequence[_Lane], limit: BatchLimit, cut: int, first_at: FirstAt) -> Admitted:
    """Take records whose head is the cut itself: no records are before it. Ties go to the lanes in their order (T2)."""
    ends: dict[FeedPartition, int] = {}
    room = limit
    for lane in lanes:
        end = lane.before(cut + 1, first_at)
        if end == lane.backlog.start:
            continue
        chunks = [chunk for chunk in lane.backlog.chunks if chunk.end_offset <= end]
        fitting = lane.within(room)
        ends[lane.name] = min(end, fitting)
        is_all_known = end < lane.backlog.chunks[-1].end_offset or lane.backlog.is_whole
        if fitting < end or not is_all_known:
            heads = {} if cut == UNKNOWN_TS else {lane.name: cut}
            return Admitted(ends, heads, lane.name if fitting >= end else None, cut)
        rows = end - lane.backlog.start if lane.counts_records else sum(chunk.rows for chunk in chunks)
        size_bytes = sum(chunk.size_bytes for chunk in chunks)
        room = BatchLimit(room.max_rows - rows, room.max_bytes - size_bytes)
        if room.max_rows <= 0 or room.max_bytes <= 0:
            return Admitted(ends, cut_ms=cut)
    return Admitted(ends, cut_ms=cut + 1)


Further = Callable[[Backlog, int, Limit], tuple[list[Chunk], bool]]
"""Backlog, offset after its chunks, limit → the chunks from there until the limit is passed; and whether these are all."""


def admit_groups(
    backlogs: list[Backlog], limit: BatchLimit, first_at: FirstAt, horizon_ms: int | None, further: Further
) -> Admitted:
    """Choose where a batch of several partitions ends. Records of one event time are admitted together if they fit into a batch (P8).

    Chunks may show less of a partition than a batch holds: those of an earlier look end where the partition ended then, and one look at a
    log has a bound of blocks. So before a batch ends inside one event time, this looks further at the partition that shows too little.

    Args:
        backlogs: of each partition; gets the chunks found here.
        limit: see ``admit``.
        first_at: see ``admit``.
        horizon_ms: see ``admit``.
        further: looks at more of a partition.
    """
    while True:
        admitted = admit(backlogs, limit, first_at, horizon_ms)
        if admitted.unknown is None or not _extend(backlogs, admitted.unknown, limit, further):
            return admitted


def _extend(backlogs: list[Backlog], unknown: FeedPartition, limit: BatchLimit, further: Further) -> bool:
    """Look further at a partition that shows less than a batch holds; return whether there was more."""
    index, backlog = next((index, each) for index, each in enumerate(backlogs) if (each.feed, each.partition) == unknown)
    rows = sum(chunk.rows for chunk in backlog.chunks)
    size_bytes = sum(chunk.size_bytes for chunk in backlog.chunks)
    if rows > limit.max_rows or size_bytes > limit.max_bytes:
        return False
    more, is_whole = further(backlog, backlog.chunks[-1].end_offset, Limit(limit.max_rows - rows, limit.max_bytes - size_bytes))
    backlogs[index] = replace(backlog, chunks=[*backlog.chunks, *more], is_whole=is_whole)
    return bool(more)
