"""P2 as the source plans it: batches end at one event time, heads go on in the cursor and into the splits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from queue import Queue
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.commit.task_states import Cursor
from engine.frames.clocks import BEFORE_ALL_TIME
from engine.plan.model import Feed, Input
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.batch_planner import BatchPlanner
from engine.runtime.planning.cursors import new_cursor
from engine.runtime.planning.source_spec import SourceSpec, SplitGroup
from engine.runtime.planning.upstream import Reached
from engine.runtime.source import PacketReader
from engine.sources.feeds import Chunk, FeedReader, Limit, Split
from tests.unit.runtime.test_source import FakeFeed, a_feed, a_planner, an_input, latest

Offset = dict[str, Any]


def splits_of(groups: Sequence[Any]) -> list[tuple[int, Split]]:
    return sorted(
        (pair for group in groups if isinstance(group, SplitGroup) for pair in group.splits),
        key=lambda pair: (pair[0], pair[1].partition, pair[1].start),
    )


def test_feeds_of_one_query_end_at_one_event_time() -> None:
    slow, fast = a_feed("slow", p0=100), a_feed("fast", p0=100, p1=40)
    fast.step_ms = 3
    planner = a_planner(slow, fast, max_rows=60)
    first = latest(planner, planner.start)
    assert first["feeds"] == {"log:slow": {"0": 40}, "log:fast": {"0": 14, "1": 14}}, "all that is before 40 ms"
    second = latest(planner, first)
    assert second["feeds"] == {"log:slow": {"0": 80}, "log:fast": {"0": 27, "1": 27}}, "all that is before 80 ms"
    assert "heads" not in second


def test_one_partition_is_neither_dated_nor_has_it_heads() -> None:
    only = a_feed("a", p0=100)
    planner = a_planner(only, max_rows=30)
    begun = planner.start
    end = latest(planner, begun)
    latest(planner, end)
    assert (end["feeds"]["log:a"]["0"], only.are_dated) == (30, {False})
    assert {split.head for _, split in splits_of(planner.groups(begun, end))} == {None}


def test_the_first_splits_of_several_partitions_begin_before_all_time() -> None:
    planner = a_planner(a_feed("a", p0=20), a_feed("b", p0=20))
    begun = planner.start
    splits = splits_of(planner.groups(begun, latest(planner, begun)))
    assert [split.head for _, split in splits] == [BEFORE_ALL_TIME] * 2


def test_replayed_late_records_are_no_partition_to_be_merged_with() -> None:
    only, replays = a_feed("a", p0=30), a_feed("replays", p0=30)
    inputs = (an_input(0, "a", "a"),)
    spec = SourceSpec("", inputs, 1, new_cursor({"log:a": {"0": 0}, "log:replays": {"0": 0}}, 0, 0), BatchLimit(10**6, 10**9), 2)
    planner = BatchPlanner(spec, [(only, inputs), (replays, ())])
    begun = planner.start
    end = latest(planner, begun)
    assert (end["feeds"], only.are_dated) == ({"log:a": {"0": 30}, "log:replays": {"0": 30}}, {False})
    assert {split.head for _, split in splits_of(planner.groups(begun, end))} == {None}


@dataclass
class Standing(FakeFeed):
    """A feed of which all records but the last have one event time; a look shows no more than the bound."""

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:
        found = super().chunks(partition, start, limit, is_dated=is_dated)[: limit.max_rows // 10 + 1]
        last = self.length[partition]
        return [Chunk(chunk.end_offset, 10, 1_000, 99 if chunk.end_offset == last else 7) for chunk in found]

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:
        last = self.length[partition] - 1
        return start if bound_ms <= 7 else max(start, min(end, last)) if bound_ms <= 99 else end


def standing(max_rows: int = 20) -> BatchPlanner:
    feeds = [Standing(Feed(f"log:{name}", "log", name), {0: 100}) for name in ("a", "b")]
    inputs = tuple(an_input(index, feed.feed.log_feed, feed.feed.log_feed) for index, feed in enumerate(feeds))
    start = {feed.feed.name: {"0": 0} for feed in feeds}
    pairs: list[tuple[FeedReader, tuple[Input, ...]]] = [(feed, (item,)) for feed, item in zip(feeds, inputs, strict=True)]
    return BatchPlanner(SourceSpec("", inputs, 2, new_cursor(start, 0, 0), BatchLimit(max_rows, 10**9), 2), pairs)


def batches(planner: BatchPlanner) -> list[Cursor]:
    offsets = [planner.start]
    while (offset := latest(planner, offsets[-1])) is not offsets[-1]:
        offsets.append(offset)
    return offsets


def test_a_partition_that_is_cut_inside_one_event_time_goes_on_with_its_head() -> None:
    planner = standing()
    begun, first, second, *_ = batches(planner)
    assert (first["feeds"], first["heads"]) == ({"log:a": {"0": 20}, "log:b": {"0": 0}}, {"log:a": {"0": 7}})
    [(_, split)] = splits_of(planner.groups(begun, first))
    assert split.head == BEFORE_ALL_TIME
    [(_, split)] = splits_of(planner.groups(first, second))
    assert (split.start, split.head) == (20, 7)


def test_ties_are_read_in_the_order_of_feeds_and_each_record_once() -> None:
    planner = standing()
    offsets = batches(planner)
    positions = [(offset["feeds"]["log:a"]["0"], offset["feeds"]["log:b"]["0"]) for offset in offsets]
    assert positions == sorted(positions)
    assert positions[-1] == (100, 100)
    assert all(a >= 99 or b == 0 for a, b in positions), "the second feed waits for all of the first one's time"
    assert "heads" not in offsets[-1]


def test_a_batch_that_leaves_a_partition_alone_keeps_its_head() -> None:
    planner = standing()
    start = planner._cursor({"log:a": {"0": 20}, "log:b": {"0": 0}}, 1, 1, {"log:b": {"0": 50}})
    after = latest(planner, start)
    assert (after["feeds"]["log:a"]["0"], after["feeds"]["log:b"]["0"]) == (40, 0)
    assert after["heads"] == {"log:a": {"0": 7}, "log:b": {"0": 50}}


def test_cuts_inside_one_event_time_are_counted_once_per_batch() -> None:
    planner = standing()
    begun, first, *_ = batches(planner)
    packets = [
        packet for group in planner.groups(begun, first) for packet in PacketReader(planner._spec, planner._feeds).read(group)
    ]
    counted = [json.loads(packet.blob)["counters"] for packet in packets if packet.kind == "stats"]
    assert counted == [[["a", "cut_inside_time", 1]]]
    planner = a_planner(a_feed("a", p0=20), a_feed("b", p0=20))
    begun, end = batches(planner)
    kinds = [
        packet.kind for group in planner.groups(begun, end) for packet in PacketReader(planner._spec, planner._feeds).read(group)
    ]
    assert "stats" not in kinds


@dataclass
class Timed(FakeFeed):
    """A feed of one partition whose records have these heads, one to a chunk; a look shows a chunk more than the bound at most."""

    heads: list[int] = field(default_factory=list)
    blocks_per_look: int = 1_000
    looks: Queue[int] = field(default_factory=Queue)

    def ends(self) -> Mapping[int, int]:
        return {0: len(self.heads)}

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:
        shown = range(start, min(len(self.heads), start + min(limit.max_rows + 1, self.blocks_per_look)))
        found = [Chunk(place + 1, 1, 100, self.heads[place]) for place in shown]
        self.looks.put(start)
        return found

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:
        return next((place for place in range(start, end) if self.heads[place] >= bound_ms), end)

    def wait_for_look(self, start: int) -> None:
        """Wait until chunks behind this offset were asked for."""
        while self.looks.get(timeout=30) != start:
            pass


def timed(name: str, heads: Sequence[int], blocks_per_look: int = 1_000) -> Timed:
    return Timed(Feed(f"log:{name}", "log", name), {0: 0}, heads=list(heads), blocks_per_look=blocks_per_look)


def ends_of(cursor: Cursor) -> list[int]:
    feeds: Mapping[str, Mapping[str, int]] = cursor["feeds"]
    return [partitions["0"] for partitions in feeds.values()]


def test_a_group_of_ties_that_grew_since_an_earlier_look_is_read_as_a_whole() -> None:
    credited, debited = timed("credits", [1, 2, 3, 7, 7]), timed("debits", [1, 2, 3, 7, 7])
    planner = a_planner(credited, debited, max_rows=6)
    first = latest(planner, planner.start)
    assert ends_of(first) == [3, 3]
    for feed in (credited, debited):
        feed.wait_for_look(3)
        feed.heads += [7, 9]
    second = latest(planner, first)
    assert (ends_of(second), second.get("heads", {})) == ([6, 6], {})


def test_a_group_of_ties_in_more_blocks_than_one_look_shows_is_read_as_a_whole() -> None:
    planner = a_planner(timed("credits", [7] * 6, blocks_per_look=2), timed("debits", [7] * 6, blocks_per_look=2), max_rows=12)
    found = latest(planner, planner.start)
    assert (ends_of(found), found.get("heads", {})) == ([6, 6], {})


def derived(name: str, heads: Sequence[int]) -> Timed:
    feed = Feed(f"log:{name}", "log", name, is_derived=True)
    return Timed(feed, {0: 0}, heads=list(heads))


def test_behind_a_horizon_nothing_is_discovered_early_and_the_group_there_is_read_as_a_whole() -> None:
    credited, debited = derived("credits", [1, 7, 7]), derived("debits", [1, 7])
    behind = {"log:credits": Reached(True, 9, 9, ()), "log:debits": Reached(False, 7, 7, ())}
    behind |= {feed.feed.log_feed: behind[feed.feed.name] for feed in (credited, debited)}
    planner = a_planner(credited, debited, max_rows=6, upstream=lambda feeds: {feed: behind[feed] for feed in feeds})
    first = latest(planner, planner.start)
    assert ends_of(first) == [1, 1], "the producer of debits may still write records of 7"
    assert [feed.looks.qsize() for feed in (credited, debited)] == [1, 1]
    debited.heads += [7, 9]
    behind |= dict.fromkeys(behind, Reached(True, 9, 9, ()))
    second = latest(planner, first)
    assert (ends_of(second), second.get("heads", {})) == ([3, 4], {})


@given(
    lanes=st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=2, max_size=3),
    more=st.lists(st.lists(st.lists(st.integers(0, 2), max_size=4), min_size=3, max_size=3), max_size=4),
    max_rows=st.integers(1, 12),
    blocks_per_look=st.integers(1, 20),
)
def test_a_batch_takes_all_or_nothing_of_each_group_that_fits(
    lanes: list[list[int]], more: list[list[list[int]]], max_rows: int, blocks_per_look: int
) -> None:
    feeds = [timed(f"lane{number}", list(accumulate(steps)), blocks_per_look) for number, steps in enumerate(lanes)]
    planner = a_planner(*feeds, max_rows=max_rows)
    start = planner.start
    nothing: list[list[int]] = [[], [], []]
    for grown in (*more, nothing, nothing):
        end = latest(planner, start)
        unread = [feed.heads[position:] for feed, position in zip(feeds, ends_of(start), strict=True)]
        taken = [feed.heads[a:b] for feed, a, b in zip(feeds, ends_of(start), ends_of(end), strict=True)]
        for head in {head for heads in unread for head in heads}:
            group = sum(heads.count(head) for heads in unread)
            assert group > max_rows or sum(heads.count(head) for heads in taken) in (0, group)
        assert end is not start or not any(unread), "what is there is read"
        start = end
        for feed, steps in zip(feeds, grown, strict=False):
            feed.heads += [*accumulate(steps, initial=(feed.heads or [0])[-1])][1:]


@dataclass
class Marked(Timed):
    """A derived feed with marks: how far the merge had come, and the time."""

    marks: list[tuple[int, int]] = field(default_factory=list)

    def last_mark_ms(self, until_head: int | None = None) -> int | None:
        return max((time for head, time in self.marks if until_head is None or head < until_head), default=None)


def test_marks_before_the_horizon_are_read_although_no_row_is() -> None:
    """P14: under load a producer is never at its end, and time goes on behind a relation without rows all the same."""
    quiet = Marked(Feed("log:finals", "log", "finals", is_derived=True), {0: 0}, marks=[(3, 2_000), (6, 5_000), (9, 8_000)])
    busy = derived("debits", [])
    behind = {"finals": Reached(False, 7, 7, ()), "debits": Reached(False, 7, 7, ())}
    planner = a_planner(quiet, busy, upstream=lambda feeds: {feed: behind[feed] for feed in feeds})
    first = latest(planner, planner.start)
    assert (first["last_marks"], first["cut"]) == ({"log:finals": 5_000}, 7)
    assert latest(planner, first) is first, "there are no more before the horizon"
    behind |= dict.fromkeys(behind, Reached(True, 9, 9, ()))
    second = latest(planner, first)
    assert (second["last_marks"], "cut" in second) == ({"log:finals": 8_000}, False)
    assert latest(planner, second) is second


def test_marks_behind_rows_that_a_batch_leaves_unread_do_not_count_as_read() -> None:
    feed = Marked(Feed("log:a", "log", "a", is_derived=True), {0: 0}, heads=[1, 2, 3, 4], blocks_per_look=9, marks=[(4, 4_000)])
    planner = a_planner(feed, max_rows=2)
    first = latest(planner, planner.start)
    assert (first["feeds"]["log:a"]["0"], first.get("last_marks", {})) == (2, {})
    assert latest(planner, first)["last_marks"] == {"log:a": 4_000}
