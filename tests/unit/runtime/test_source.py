"""Planning batches over feeds: positions, the clock, groups of splits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import perf_counter
from typing import Any
from uuid import uuid4

import pytest

from engine.commit.removed_records import as_unread
from engine.commit.sink_batch import GroupedPackets
from engine.commit.task_states import Cursor
from engine.errors import RecordsRemoved, SourceUnavailable, StateCorrupt
from engine.expressions.types.types import Schema, parse_type
from engine.plan.model import Feed, Input, RelationSchema
from engine.processes.function_times import function_time
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.batch_planner import FIRST_ROWS, BatchPlanner, Upstream
from engine.runtime.planning.cursors import new_cursor, open_feeds
from engine.runtime.planning.source_spec import Clock, SourceSpec
from engine.runtime.planning.wall_clock import WallClock
from engine.runtime.source import PacketReader
from engine.sources.feeds import Chunk, FeedReader, Limit, ReadRequest, Split, Start
from engine.sources.packets import Packet

FUTURE_MS = 9_999_999_999_999


def an_input(index: int, alias: str, feed: str, kind: Any = "stream") -> Input:
    schema = Schema((("k", parse_type("bigint")),))
    relation = RelationSchema(alias, kind, schema, ("k",), None, None, None, None, None)
    return Input(index, alias, relation, Feed(f"log:{feed}", "log", feed), ("k",), ("k",))


@dataclass
class FakeFeed(FeedReader):
    """A feed whose partitions are as long as ``length`` says, in chunks of some records at one record per ``step_ms``.

    Attributes:
        chunk_rows: records of a chunk.
        looked_at: where each look at chunks began.
        are_dated: whether it was asked for their event times.
    """

    feed: Feed
    length: dict[int, int] = field(default_factory=lambda: {0: 0})
    looked_at: list[int] = field(default_factory=list)
    are_dated: set[bool] = field(default_factory=set)
    step_ms: int = 1
    chunk_rows: int = 10

    @property
    def is_announced(self) -> bool:
        return True

    def starts(self, start: Start) -> Mapping[int, int]:
        return dict.fromkeys(self.length, 0)

    def ends(self) -> Mapping[int, int]:
        return dict(self.length)

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:
        self.looked_at.append(start)
        self.are_dated.add(is_dated)
        rows = self.chunk_rows
        ends = [min(first + rows, self.length[partition]) for first in range(start, self.length[partition], rows)]
        times = [(max(end - rows, start) * self.step_ms, (end - 1) * self.step_ms) if is_dated else (None, None) for end in ends]
        return [Chunk(end, rows, 1_000, span[1]) for end, span in zip(ends, times, strict=True)]

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:
        return min(max(start, -(-bound_ms // self.step_ms)), end)

    def splits(self, partition: int, start: int, end: int) -> list[Split]:
        return [Split(partition, first, min(first + 50, end)) for first in range(start, end, 50)]

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        yield Packet(0, "progress", 0, split.partition, split.start, 0, None, None, request.now_ms, b"{}")


def a_planner(
    *feeds: FakeFeed, cores: int = 2, max_rows: int = 10**6, release: int = 0, upstream: Upstream | None = None
) -> BatchPlanner:
    inputs = tuple(an_input(index, feed.feed.log_feed, feed.feed.log_feed) for index, feed in enumerate(feeds))
    start = {feed.feed.name: {str(partition): 0 for partition in feed.length} for feed in feeds}
    spec = SourceSpec("", inputs, 2, new_cursor(start, release, 0), BatchLimit(max_rows, 10**9), cores, release=release)
    pairs: list[tuple[FeedReader, tuple[Input, ...]]] = [(feed, (item,)) for feed, item in zip(feeds, inputs, strict=True)]
    return BatchPlanner(spec, pairs, upstream=upstream)


def a_feed(name: str, **length: int) -> FakeFeed:
    return FakeFeed(Feed(f"log:{name}", "log", name), {int(key[1:]): value for key, value in length.items()})


def latest(planner: BatchPlanner, start: Cursor) -> Cursor:
    return planner.next_cursor(start)


class Frozen(FakeFeed):
    """Between asking for its end and anything else another feed and its own get further records."""

    meanwhile: FakeFeed

    def ends(self) -> Mapping[int, int]:
        found = super().ends()
        for feed in (self, self.meanwhile):
            feed.length[0] += 50
        return found


@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_stream_is_never_read_further_than_what_was_in_the_table_then(is_available_now: bool) -> None:
    inputs = (an_input(0, "prices", "prices", "table"), an_input(1, "orders", "orders"))
    table, stream = a_feed("prices", p0=10), Frozen(Feed("log:orders", "log", "orders"), {0: 10})
    stream.meanwhile = table
    spec = SourceSpec(
        "", inputs, 1, new_cursor({"log:prices": {"0": 0}, "log:orders": {"0": 0}}, 0, 0), BatchLimit(10**6, 10**9), 2
    )
    planner = BatchPlanner(spec, [(table, inputs[:1]), (stream, inputs[1:])])
    if is_available_now:
        planner.prepare()
    assert latest(planner, planner.start)["feeds"] == {"log:prices": {"0": 60}, "log:orders": {"0": 10}}


def test_without_new_records_the_offset_is_the_start_itself() -> None:
    planner = a_planner(a_feed("a", p0=0))
    start = planner.start
    assert latest(planner, start) is start


def test_positions_and_clock_move_together() -> None:
    planner = a_planner(a_feed("a", p0=30, p1=0), a_feed("b", p0=10))
    offset = latest(planner, planner.start)
    assert offset["feeds"] == {"log:a": {"0": 30, "1": 0}, "log:b": {"0": 10}}
    assert offset["now_ms"] > 0
    assert latest(planner, offset) is offset


class Elected(FakeFeed):
    """A feed whose log has an epoch, and whose records before ``replaced`` are others since epoch 2."""

    epoch = 1
    replaced = 0

    def epochs(self) -> Mapping[int, int]:
        return {0: self.epoch}

    def check_epochs(self, positions: Mapping[int, int], epochs: Mapping[int, int], committed: Mapping[int, int]) -> None:
        if epochs[0] < 2 <= self.epoch and positions[0] > self.replaced:
            raise SourceUnavailable(f"{positions[0]} was read, {committed[0]} is committed")


def test_epochs_are_kept_with_the_positions_that_were_read_under_them() -> None:
    feed = Elected(Feed("log:a", "log", "a"), {0: 30})
    planner = a_planner(feed, a_feed("b", p0=10))
    first = latest(planner, planner.start)
    assert first["epochs"] == {"log:a": {"0": 1}}
    feed.epoch, feed.length, feed.replaced = 2, {0: 50}, 30
    second = latest(planner, json.loads(json.dumps(first)))
    assert (second["feeds"]["log:a"], second["epochs"]) == ({"0": 50}, {"log:a": {"0": 2}})
    feed.replaced = 20
    assert latest(planner, second) is second
    with pytest.raises(SourceUnavailable, match="30 was read, 0 is committed"):
        latest(planner, first)


def test_a_cursor_from_before_there_were_epochs_is_taken_as_it_is() -> None:
    feed = Elected(Feed("log:a", "log", "a"), {0: 30})
    feed.epoch = 7
    planner = a_planner(feed)
    assert latest(planner, {"feeds": {"log:a": {"0": 10}}, "now_ms": 1})["epochs"] == {"log:a": {"0": 7}}


def test_a_request_to_release_makes_one_batch_that_tells_every_task() -> None:
    feed = a_feed("a", p0=30)
    before = latest(first := a_planner(feed), first.start)
    planner = a_planner(feed, release=1)
    after = latest(planner, before)
    assert after["feeds"] == before["feeds"]
    (group,) = planner.groups(before, after)
    packets = list(PacketReader(planner._spec, planner._feeds).read(group))
    assert [packet.kind for packet in packets] == ["cursor", "tick", "tick"]
    assert [packet.task for packet in packets[1:]] == [0, 1]
    assert [json.loads(packet.blob)["is_release"] for packet in packets[1:]] == [True, True]
    assert latest(planner, after) is after


def test_a_release_goes_with_the_records_that_are_there_and_a_new_beginning_needs_none() -> None:
    feed = a_feed("a", p0=30)
    planner = a_planner(feed, release=1)
    end = latest(planner, {"feeds": {"log:a": {"0": 0}}, "now_ms": 1})
    (group,) = planner.groups({"feeds": {"log:a": {"0": 0}}, "now_ms": 1}, end)
    assert (group.is_release, len(group.splits)) == (True, 1)
    begun = planner.start
    (group,) = planner.groups(begun, latest(planner, begun))
    assert not group.is_release


def test_the_clock_never_goes_backwards() -> None:
    planner = a_planner(a_feed("a", p0=30))
    assert latest(planner, {"feeds": {"log:a": {"0": 0}}, "now_ms": FUTURE_MS})["now_ms"] == FUTURE_MS


def test_a_launch_wakes_every_task_also_where_the_hosts_clock_was_set_back_before_it() -> None:
    feed = a_feed("a", p0=0)
    inputs = (an_input(0, "a", "a"),)
    spec = SourceSpec("", inputs, 2, new_cursor({"log:a": {"0": 0}}, 0, 0), BatchLimit(10, 10**9), 2, Clock(uuid4(), frozenset()))
    elapsed_ms = iter((0, 0, 10))
    planner = BatchPlanner(spec, [(feed, inputs)], WallClock(lambda: 1_000, lambda: next(elapsed_ms)))
    start = {"feeds": {"log:a": {"0": 0}}, "now_ms": 5_000}
    assert latest(planner, start) is start
    assert latest(planner, start) is start
    assert latest(planner, start)["now_ms"] == 5_005


def test_tasks_and_sink_hear_which_partitions_have_been_at_their_end_for_long() -> None:
    feed, inputs = a_feed("a", p0=10, p1=20), (an_input(0, "a", "a"),)
    clock = Clock(uuid4(), frozenset(), slowest_after_ms=1_000)
    spec = SourceSpec("", inputs, 2, new_cursor({"log:a": {"0": 0, "1": 0}}, 0, 0), BatchLimit(10**6, 10**9), 2, clock)
    now_ms = iter((5_000, 5_600, 6_000))
    planner = BatchPlanner(spec, [(feed, inputs)], WallClock(lambda: next(now_ms), lambda: 0))
    first = latest(planner, planner.start)
    assert first["at_end"] == {"log:a": {"0": 5_000, "1": 5_000}}
    feed.length[0] = 11
    second = latest(planner, first)
    assert second["at_end"] == {"log:a": {"0": 5_600, "1": 5_000}}
    feed.length[0] = 12
    third = latest(planner, second)
    groups = planner.groups(second, third)
    packets = [packet for group in groups for packet in PacketReader(planner._spec, planner._feeds).read(group)]
    ticks = [json.loads(packet.blob) for packet in packets if packet.kind == "tick"]
    assert [tick["idle"] for tick in ticks] == [[["log:a", 1]]] * 2
    assert GroupedPackets.of(packets).idle == [("log:a", 1)]
    assert not any(group.idle for group in planner.groups(first, second))


def test_a_partition_that_no_longer_counts_makes_a_batch_without_records() -> None:
    feed, inputs = a_feed("a", p0=10, p1=20), (an_input(0, "a", "a"),)
    clock = Clock(uuid4(), frozenset(), slowest_after_ms=1_000)
    spec = SourceSpec("", inputs, 2, new_cursor({"log:a": {"0": 0, "1": 0}}, 0, 0), BatchLimit(10**6, 10**9), 2, clock)
    now_ms = iter((5_000, 5_600, 6_000))
    planner = BatchPlanner(spec, [(feed, inputs)], WallClock(lambda: next(now_ms), lambda: 0))
    first = latest(planner, planner.start)
    feed.length[0] = 11
    second = latest(planner, first)
    third = latest(planner, second)
    assert third["feeds"] == second["feeds"]
    assert [group.idle for group in planner.groups(second, third)] == [(("log:a", 1),)]


def test_a_batch_is_bounded_and_the_next_one_goes_on() -> None:
    planner = a_planner(a_feed("a", p0=100), max_rows=30)
    first = latest(planner, planner.start)
    assert first["feeds"]["log:a"]["0"] == 30
    assert latest(planner, first)["feeds"]["log:a"]["0"] == 60


def test_a_launch_begins_with_a_small_batch_and_takes_twice_as_much_each_time_up_to_its_bound() -> None:
    planner = a_planner(replace(a_feed("a", p0=2_000_000), chunk_rows=5_000), max_rows=400_000)
    cursors = [planner.start]
    for _ in range(5):
        cursors.append(latest(planner, cursors[-1]))
    ends = [cursor["feeds"]["log:a"]["0"] for cursor in cursors]
    assert [end - start for start, end in pairwise(ends)] == [FIRST_ROWS, 2 * FIRST_ROWS, 400_000, 400_000, 400_000]


@pytest.mark.parametrize("feeds", [1, 2])
def test_a_cursor_says_whether_the_bound_of_its_batch_left_records_unread(feeds: int) -> None:
    planner = a_planner(*(a_feed(name, p0=30) for name in "ab"[:feeds]), max_rows=20 * feeds)
    full = latest(planner, planner.start)
    rest = latest(planner, full)
    assert [full.get("is_full"), rest.get("is_full")] == [True, None]
    assert latest(planner, rest) is rest


def test_available_now_reads_what_was_there_at_the_start_and_no_more() -> None:
    feed = a_feed("a", p0=25)
    planner = a_planner(feed)
    planner.prepare()
    feed.length[0] = 95
    offset = latest(planner, planner.start)
    assert offset["feeds"]["log:a"]["0"] == 25
    assert latest(planner, offset) is offset


def test_a_small_batch_is_one_spark_task_with_all_its_stages() -> None:
    planner = a_planner(a_feed("a", p0=100, p1=100), a_feed("b", p0=10))
    end = latest(planner, planner.start)
    (group,) = planner.groups(planner.start, end)
    assert (group.now_ms, group.is_whole) == (end["now_ms"], True)
    assert {(index, split.partition, split.start, split.end) for index, split in group.splits} == {
        (0, 0, 0, 50), (0, 0, 50, 100), (0, 1, 0, 50), (0, 1, 50, 100), (1, 0, 0, 10)
    }  # fmt: skip


def test_a_large_batch_is_read_in_equal_groups_one_for_each_core() -> None:
    planner = a_planner(a_feed("a", p0=0), cores=3)
    start, end = {"feeds": {"log:a": {"0": 0}}, "now_ms": 0}, {"feeds": {"log:a": {"0": 200_000}}, "now_ms": 1}
    groups = planner.groups(start, end)
    assert len(groups) == 3
    assert not any(group.is_whole for group in groups), "stages follow behind a shuffle"
    sizes = [sum(split.end - split.start for _, split in group.splits) for group in groups]
    assert sum(sizes) == 200_000
    assert max(sizes) - min(sizes) <= 50


def test_packets_carry_the_clock_of_their_batch() -> None:
    planner = a_planner(a_feed("a", p0=10))
    (group,) = planner.groups(planner.start, {"feeds": {"log:a": {"0": 10}}, "now_ms": 77})
    packets = list(PacketReader(planner._spec, planner._feeds).read(group))
    assert [packet.now_ms for packet in packets] == [77, 77]
    assert [packet.kind for packet in packets] == ["cursor", "progress"]
    assert json.loads(packets[0].blob) == {"feeds": {"log:a": {"0": 10}}, "now_ms": 77}


def test_a_feed_that_two_inputs_share_is_opened_once() -> None:
    feeds = open_feeds("", [an_input(0, "t", "events", "table"), an_input(1, "s", "events"), an_input(2, "o", "other")])
    assert [(reader.feed.name, [item.alias for item in inputs]) for reader, inputs in feeds] == [
        ("log:events", ["t", "s"]), ("log:other", ["o"])
    ]  # fmt: skip


def test_the_specification_survives_its_way_as_an_option() -> None:
    spec = SourceSpec(
        "postgresql://u:p@h/d", (an_input(0, "a", "a"),), 2, new_cursor({"log:a": {"0": 3}}, 0, 0), BatchLimit(1, 2), 2
    )
    assert SourceSpec.decoded(spec.encoded()) == spec


def test_a_backlog_is_discovered_before_it_is_needed_and_once() -> None:
    feed = a_feed("a", p0=100)
    planner = a_planner(feed, max_rows=30)
    first = latest(planner, planner.start)
    second = latest(planner, first)
    third = latest(planner, second)
    assert [offset["feeds"]["log:a"]["0"] for offset in (first, second, third)] == [30, 60, 90]
    latest(planner, third)
    assert sorted(feed.looked_at) == [0, 30, 60, 90]


def test_what_arrived_after_the_look_is_read_later() -> None:
    feed = a_feed("a", p0=50)
    planner = a_planner(feed, max_rows=30)
    first = latest(planner, planner.start)
    feed.length[0] = 200
    second = latest(planner, first)
    assert second["feeds"]["log:a"]["0"] in (50, 60)
    assert latest(planner, second)["feeds"]["log:a"]["0"] > second["feeds"]["log:a"]["0"]


def test_a_feed_that_was_put_back_behind_what_a_launch_has_read_is_left_to_the_next_launch() -> None:
    feed = a_feed("orders", p0=30)
    planner = a_planner(feed)
    read = latest(planner, planner.start)
    feed.length[0] = 20
    with pytest.raises(Exception, match="was read up to 30, and now ends at 20") as refused:
        latest(planner, read)
    assert isinstance(refused.value, SourceUnavailable)


def test_a_launch_that_would_begin_behind_the_end_of_a_feed_is_refused() -> None:
    feed = a_feed("orders", p0=20)
    inputs = (an_input(0, "orders", "orders"),)
    spec = SourceSpec("", inputs, 1, new_cursor({"log:orders": {"0": 30}}, 0, 0), BatchLimit(10, 10**9), 2)
    planner = BatchPlanner(spec, [(feed, inputs)])
    with pytest.raises(Exception, match="reading goes on at 30, but the feed ends at 20") as refused:
        latest(planner, planner.start)
    assert isinstance(refused.value, StateCorrupt)


class Trimmed(FakeFeed):
    """A feed of which retention has removed what lies before ``kept_from``; it removes ``removing`` more when it has been looked at."""

    kept_from: int = 0
    removing: int = 0

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:
        self._require(start)
        found = super().chunks(partition, start, limit, is_dated=is_dated)
        self.kept_from += self.removing
        return found

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        self._require(split.start)
        yield from super().read(split, request)

    def _require(self, start: int) -> None:
        if start < self.kept_from:
            raise RecordsRemoved(f"records {start} to {self.kept_from - 1} were removed", self.kept_from)


def trimmed(kept_from: int, *, max_rows: int = 30, **length: int) -> tuple[Trimmed, BatchPlanner, Cursor]:
    feed = Trimmed(Feed("log:a", "log", "a"), {int(key[1:]): value for key, value in length.items()})
    feed.kept_from = kept_from
    planner = a_planner(feed, max_rows=max_rows)
    return feed, planner, as_unread(planner.start)


def counted(planner: BatchPlanner, feed: FakeFeed, start: Cursor, end: Cursor) -> list[tuple[str, str, int]]:
    reader = PacketReader(planner._spec, planner._feeds)
    packets = [packet for group in planner.groups(start, end) for packet in reader.read(group)]
    return [tuple(each) for packet in packets if packet.kind == "stats" for each in json.loads(packet.blob)["counters"]]


def test_a_query_that_has_read_nothing_begins_behind_what_retention_removed_and_counts_it() -> None:
    feed, planner, start = trimmed(25, p0=100)
    first = latest(planner, start)
    assert first["feeds"]["log:a"]["0"] == 55
    assert first["skipped"] == {"log:a": {"0": [0, 25]}}
    (group,) = planner.groups(start, first)
    assert [(split.start, split.end) for _, split in group.splits] == [(25, 55)]
    assert counted(planner, feed, start, first) == [("a", "records_lost", 25)]
    second = latest(planner, first)
    assert (second["skipped"], second["feeds"]["log:a"]["0"]) == (first["skipped"], 85)
    assert counted(planner, feed, first, second) == []


def test_a_partition_of_which_all_was_removed_is_passed_and_read_from_its_end() -> None:
    feed, planner, start = trimmed(40, p0=40)
    first = latest(planner, start)
    assert (first["feeds"]["log:a"]["0"], first["unread"]) == (40, {"log:a": ["0"]})
    assert [group.splits for group in planner.groups(start, first)] == [()]
    assert counted(planner, feed, start, first) == [("a", "records_lost", 40)]
    assert latest(planner, first) is first
    feed.length[0], feed.kept_from = 60, 50
    second = latest(planner, first)
    assert (second["feeds"]["log:a"]["0"], second["skipped"]) == (60, {"log:a": {"0": [0, 50]}})
    assert counted(planner, feed, first, second) == [("a", "records_lost", 10)]


def test_a_partition_that_was_read_is_not_passed_over_what_is_gone_and_one_that_was_not_still_is() -> None:
    feed, planner, start = trimmed(0, p0=100)
    first = latest(planner, start)
    feed.kept_from = 50
    with pytest.raises(RecordsRemoved, match="records 30 to 49"):
        latest(a_planner(feed), first)
    one = a_feed("b", p0=30, p1=0)
    planner = a_planner(one)
    first = latest(planner, as_unread(planner.start))
    assert first["unread"] == {"log:b": ["1"]}


def test_records_that_are_removed_while_they_are_read_are_looked_for_by_the_next_attempt() -> None:
    feed, planner, start = trimmed(0, max_rows=1_000, p0=100)
    feed.removing = 10
    first = latest(planner, start)
    with pytest.raises(SourceUnavailable, match=r"records 0 to 9 were removed\. The next attempt looks at what is there"):
        counted(planner, feed, start, first)
    again = a_planner(feed, max_rows=30)
    assert latest(again, start)["skipped"] == {"log:a": {"0": [0, 10]}}


def test_a_query_begun_by_an_earlier_version_has_read_all_its_partitions() -> None:
    _, planner, _ = trimmed(25, p0=100)
    with pytest.raises(RecordsRemoved):
        latest(planner, planner.start)


class Scored(FakeFeed):
    """A feed whose records go through the Python function ``score`` while they are read, for 3 ms a split. A split has 4 MB."""

    def splits(self, partition: int, start: int, end: int) -> list[Split]:
        return [Split(partition, first, min(first + 50_000, end)) for first in range(start, end, 50_000)]

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        with function_time("score"):
            ends_s = perf_counter() + 0.003
            while perf_counter() < ends_s:
                pass
        yield from super().read(split, request)


def scored(rows: int, cores: int) -> tuple[GroupedPackets, int]:
    """Return a batch of a feed that calls a function, as the sink gets it from readers alone, and the number of its groups."""
    start, end = new_cursor({"log:a": {"0": 0}}, 0, 0), {"feeds": {"log:a": {"0": rows}}, "now_ms": 77}
    inputs = (an_input(0, "a", "a"),)
    spec = SourceSpec("", inputs, 2, start, BatchLimit(10**6, 10**9), cores)
    feeds: list[tuple[FeedReader, tuple[Input, ...]]] = [(Scored(Feed("log:a", "log", "a"), {0: rows}), inputs)]
    groups = BatchPlanner(spec, feeds).groups(start, end)
    return GroupedPackets.of([packet for group in groups for packet in PacketReader(spec, feeds).done(group, 1)]), len(groups)


def test_functions_called_while_several_workers_read_are_counted() -> None:
    batch, groups = scored(150_000, cores=3)
    assert (groups, batch.stats, batch.is_in_one_worker) == (3, [], False)
    assert batch.read_ms >= batch.function_ms()["score"] >= 3


@pytest.mark.parametrize("cores", [0, 3])
def test_functions_called_while_records_are_read_are_counted_where_no_task_has_work(cores: int) -> None:
    batch, groups = scored(50, cores)
    assert (groups, batch.stats, batch.is_in_one_worker) == (1, [], True)
    assert batch.function_ms()["score"] >= 3


def test_time_of_a_function_in_a_batch_that_failed_is_not_another_batchs() -> None:
    with function_time("failed"):
        pass
    assert list(scored(50, cores=0)[0].function_ms()) == ["score"]
