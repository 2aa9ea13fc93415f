"""P2: however a backlog is cut into batches, the batches one behind the other are the k-way merge of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.admission import Admitted, Backlog, FeedPartition, admit
from engine.sources.feeds import NO_TS, Chunk
from tests.examples import examples

Place = tuple[int, int]
"""Partition and offset of a record."""


def in_order(steps: list[int]) -> list[int]:
    return list(accumulate(steps))


times = st.one_of(
    st.builds(
        lambda first, rest: [first, *rest], st.integers(0, 20), st.lists(st.integers(0, 20) | st.just(NO_TS))
    ),  # some have none
    st.lists(st.integers(0, 30), max_size=25),  # disorder and late records
    st.lists(st.integers(0, 2), min_size=5, max_size=25),  # hardly anything but ties
    st.lists(st.integers(0, 3), min_size=5, max_size=25).map(in_order),
)


@dataclass
class Partition:
    """A partition with nothing but event times, in chunks of which a reader looks at a few.

    Attributes:
        ends: offsets where chunks end, whatever is read from.
        looked_at: how many chunks a look shows.
    """

    number: int
    times: list[int]
    ends: list[int]
    looked_at: int
    next: int = 0
    head: int | None = None

    def backlog(self) -> Backlog:
        chunks: list[Chunk] = []
        start = self.next
        for end in [end for end in self.ends if end > self.next][: self.looked_at]:
            own = self.times[start:end]
            chunks.append(Chunk(end, len(own), len(own) * 10, max(own)))
            start = end
        return Backlog("feed", self.number, self.next, chunks, is_table=False, is_whole=start == len(self.times), head=self.head)


@st.composite
def partitions(draw: st.DrawFn) -> list[Partition]:
    found = []
    for number in range(draw(st.integers(1, 5))):
        own = draw(times)
        size = draw(st.integers(1, 5))
        found.append(Partition(number, own, [*range(size, len(own), size), len(own)] if own else [], draw(st.integers(1, 6))))
    return found


def merged(spans: Mapping[int, tuple[list[int], int, int | None]]) -> list[Place]:
    """Merge partitions as T2 says, the smallest head first, one record after the other.

    Args:
        spans: partition → its event times, the offset of the first one, and the head that it goes on with.
    """
    waiting = {number: list(enumerate(own, first)) for number, (own, first, _) in spans.items() if own}
    heads = {number: head for number, (_, _, head) in spans.items()}

    def next_head(number: int) -> int:
        (_, time), head = waiting[number][0], heads[number]
        return time if head is None else max(time, head)

    taken: list[Place] = []
    while waiting:
        number = min(waiting, key=lambda number: (next_head(number), number))
        heads[number] = next_head(number)
        taken.append((number, waiting[number].pop(0)[0]))
        waiting = {number: rest for number, rest in waiting.items() if rest}
    return taken


@dataclass
class Reading:
    """Batches until nothing is left, as the source plans them."""

    partitions: list[Partition]
    limit: BatchLimit
    batches: list[list[Place]] = field(default_factory=list)
    cuts_inside: int = 0

    def run(self) -> list[Place]:
        while any(each.next < len(each.times) for each in self.partitions):
            backlogs = [backlog for each in self.partitions if (backlog := each.backlog()).chunks]
            self._take(admit(backlogs, self.limit, self._first_at))
        return [place for batch in self.batches for place in batch]

    def _first_at(self, backlog: Backlog, start: int, end: int, bound: int) -> int:
        own = self.partitions[backlog.partition].times
        return next((offset for offset in range(start, end) if own[offset] >= bound and own[offset] != NO_TS), end)

    def _take(self, admitted: Admitted) -> None:
        assert admitted.ends, "every batch takes something of a backlog"
        spans = {}
        heads: dict[FeedPartition, int] = admitted.heads
        self.cuts_inside += len(heads)
        for (_, number), end in admitted.ends.items():
            each = self.partitions[number]
            assert each.next < end <= len(each.times)
            spans[number] = (each.times[each.next : end], each.next, each.head)
            each.next, each.head = end, heads.get(("feed", number))
        self.batches.append(merged(spans))


limits = st.builds(BatchLimit, st.integers(1, 60), st.just(10**9)) | st.builds(BatchLimit, st.just(10**9), st.integers(1, 600))


@settings(max_examples=examples(500))
@given(partitions(), limits)
@example([Partition(0, [5, 5, 5], [1, 2, 3], 1), Partition(1, [5, 5], [1, 2], 1)], BatchLimit(1, 10**9))
@example([Partition(0, [7, 1, 2, 8], [4], 1), Partition(1, [3, 9, 4], [1, 2, 3], 2)], BatchLimit(1, 10**9))
def test_batches_one_behind_the_other_are_the_merge_of_the_whole(feed: list[Partition], limit: BatchLimit) -> None:
    reading = Reading(feed, limit)
    read = reading.run()
    event(f"cuts inside one time: {min(reading.cuts_inside, 3)}")
    event(f"batches: {min(len(reading.batches), 10)}")
    assert read == merged({each.number: (each.times, 0, None) for each in feed})


@given(partitions(), limits, st.integers(0, 31))
def test_up_to_a_horizon_too_and_nothing_is_read_that_stands_behind_it(
    feed: list[Partition], limit: BatchLimit, horizon_ms: int
) -> None:
    reading = Reading(feed, limit)
    while True:
        backlogs = [backlog for each in feed if (backlog := each.backlog()).chunks]
        admitted = admit(backlogs, limit, reading._first_at, horizon_ms)
        if not admitted.ends:
            break
        reading._take(admitted)
    read = [place for batch in reading.batches for place in batch]
    whole = merged({each.number: (each.times, 0, None) for each in feed})
    before = {
        (each.number, offset) for each in feed for offset in range(len(each.times)) if max(each.times[: offset + 1]) < horizon_ms
    }
    assert read == [place for place in whole if place in before]


@given(partitions(), limits)
def test_a_batch_holds_little_more_than_the_bound_where_heads_differ(feed: list[Partition], limit: BatchLimit) -> None:
    """What stands in the last chunks that fit, and of each partition what stands before the cut in the chunk behind."""
    for each in feed:
        each.times = [(time + 1) * 1_000 + offset * 5 + each.number for offset, time in enumerate(accumulate(each.times, max))]
    reading = Reading(feed, limit)
    reading.run()
    beside = sum(max((high - low for low, high in pairwise([0, *each.ends])), default=0) for each in feed)
    for batch in reading.batches:
        assert len(batch) <= min(limit.max_rows, limit.max_bytes // 10) + beside
