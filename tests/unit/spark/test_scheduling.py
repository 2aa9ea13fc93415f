"""Rounds: who has a batch in one, who joins and leaves, what becomes of a member that fails. Without Spark."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from engine.commit.task_states import Cursor
from engine.errors import DataInvalid, SourceUnavailable
from engine.log.backlogs import UnreadLook
from engine.runtime.checkpoint import planned_batch
from engine.runtime.failures import BatchFailed, decoded
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.batch_planner import BatchPlanner
from engine.runtime.planning.cursors import FeedInputs, new_cursor
from engine.runtime.planning.source_spec import Clock, SourceSpec
from engine.sources.feeds import BYTES_PER_RECORD, ReadRequest, Split
from engine.sources.packets import BATCH_ID, Packet, packets_in
from engine.spark.streams.cycle_work import CyclePartition
from engine.spark.streams.scheduling import LOOKED, CycleReader, Silence
from tests.unit.runtime.test_source import FakeFeed, a_feed, an_input


class Damaged(FakeFeed):
    """A feed that can be looked at, and not be read."""

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        yield from super().read(split, request)
        raise DataInvalid("somebody has removed what was to be read")


@dataclass
class Emitting(FakeFeed):
    """A feed of which much comes: a hundred bytes for each record."""

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        yield from super().read(split, request)
        yield Packet(0, "data", 0, 0, 0, 1, 0, 0, 0, bytes(100 * (split.end - split.start)))


class Unlooked(FakeFeed):
    def ends(self) -> dict[int, int]:
        raise DataInvalid("the feed has gone")


@dataclass
class Rounds:
    """A slot's folder, and the feeds that its members read."""

    folder: Path
    feeds: dict[str, FakeFeed] = field(default_factory=dict)
    offset: dict[str, int] = field(default_factory=lambda: {"round": 0})

    def __post_init__(self) -> None:
        self.reader = CycleReader(self.folder, Silence(sleep=lambda _seconds: None))

    def join(self, number: int, feed: FakeFeed, run: Path | None = None, cores: int = 0, *, is_postponed: bool = False) -> None:
        self.feeds[feed.feed.log_feed] = feed
        start = new_cursor({feed.feed.name: dict.fromkeys(map(str, feed.length), 0)}, 0, 0)
        inputs = (an_input(0, feed.feed.log_feed, feed.feed.log_feed),)
        spec = SourceSpec("", inputs, 1, start, BatchLimit(10**6, 10**9), cores, run=run, next_batch=7, is_postponed=is_postponed)
        (self.folder / str(number)).write_bytes(spec.encoded())

    def round(self) -> dict[int, list[Packet]]:
        """Return what a round brings, by member; nothing where there is none."""
        end = self.reader.latestOffset(self.offset, ReadAllAvailable())
        if end is self.offset:
            return {}
        parts = self.reader.partitions(self.offset, end)
        assert self.reader.partitions(self.offset, end) == parts, "Spark may ask twice"
        self.offset = end
        found: dict[int, list[Packet]] = {}
        for part in parts:
            for batch in pickle.loads(pickle.dumps(self.reader)).read(part):  # noqa: S301 - our own
                for packet in packets_in(batch):
                    found.setdefault(packet.query_number, []).append(packet)
        return found

    def parts(self) -> list[CyclePartition]:
        end = self.reader.latestOffset(self.offset, ReadAllAvailable())
        found = self.reader.partitions(self.offset, end)
        self.offset = end
        return [part for part in found if isinstance(part, CyclePartition)]


@pytest.fixture
def rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    made = Rounds(tmp_path)

    def feeds_of(spec: SourceSpec) -> list[FeedInputs]:
        return [(made.feeds[spec.inputs[0].feed.log_feed], spec.inputs)]

    def ends_of(_dsn: str, names: frozenset[str]) -> dict[str, dict[str, int]]:
        return {name: {str(part): end for part, end in made.feeds[name].length.items()} for name in names if name in made.feeds}

    monkeypatch.setattr("engine.runtime.planning.batch_planner.feeds_of", feeds_of)
    monkeypatch.setattr("engine.runtime.source.feeds_of", feeds_of)
    monkeypatch.setattr("engine.spark.streams.scheduling._ends_of", ends_of)
    monkeypatch.setattr("engine.spark.streams.cycle_work._readers", OrderedDict())
    return made


def kinds(packets: list[Packet]) -> list[str]:
    return [packet.kind for packet in packets]


def test_who_has_news_has_a_batch_and_who_has_none_costs_nothing(rounds: Rounds) -> None:
    rounds.join(1, a_feed("a", p0=10))
    rounds.join(2, quiet := a_feed("b", p0=0))
    found = rounds.round()
    assert {number: kinds(packets) for number, packets in found.items()} == {1: ["cursor", "progress", "effort", "effort"]}
    assert json.loads(found[1][0].blob)[BATCH_ID] == 7, "who commits it sees which batch it was planned as"
    assert (rounds.folder / f"2{LOOKED}").exists(), "it was looked at, and had nothing"
    assert rounds.round() == {}
    quiet.length[0] = 5
    assert rounds.round().keys() == {2}


def test_a_member_that_has_read_everything_is_not_looked_at_until_its_feed_grows(rounds: Rounds) -> None:
    rounds.join(1, feed := a_feed("a", p0=10))
    rounds.join(2, other := a_feed("b", p0=10))
    assert rounds.round().keys() == {1, 2}
    feed.looked_at.clear()
    asked: list[str] = []
    feed.ends = lambda: asked.append("a") or dict(feed.length)  # type: ignore[method-assign,func-returns-value]
    for end in (20, 30):
        other.length[0] = end
        assert rounds.round().keys() == {2}
    assert not asked
    feed.length[0] = 11
    assert rounds.round().keys() == {1}


def test_who_gets_news_before_a_round_is_shared_out_is_in_it(rounds: Rounds) -> None:
    rounds.join(1, feed := a_feed("a", p0=10))
    rounds.join(2, late := a_feed("b", p0=10))
    assert rounds.round().keys() == {1, 2}
    feed.length[0] = 20
    end = rounds.reader.latestOffset(rounds.offset, ReadAllAvailable())
    late.length[0] = 11
    (part,) = rounds.reader.partitions(rounds.offset, end)
    assert isinstance(part, CyclePartition)
    assert [(each.query_number, each.batch_id) for each in part.parts] == [(1, 8), (2, 8)]
    assert [each.group.end["feeds"] for each in part.parts if each.group and each.group.end] == [
        {"log:a": {"0": 20}},
        {"log:b": {"0": 11}},
    ]
    rounds.offset = end
    assert rounds.round() == {}, "nothing is read twice"


def test_a_feed_that_has_gone_fails_its_member(rounds: Rounds) -> None:
    rounds.join(1, Unlooked(a_feed("a").feed, {0: 10}))
    rounds.feeds["a"].ends = lambda: {0: 10}  # type: ignore[method-assign]
    assert kinds(rounds.round()[1]) == ["cursor", "progress", "effort", "effort"]
    del rounds.feeds["a"].ends
    del rounds.feeds["a"]
    assert kinds(rounds.round()[1]) == ["failed"]


def test_a_database_that_is_away_fails_all_members_after_one_wait(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate("abc", 1):
        rounds.join(number, a_feed(name, p0=10))
    rounds.round()
    waits = []

    def away(_dsn: str, _names: frozenset[str]) -> dict[str, dict[str, int]]:
        waits.append(1)
        raise SourceUnavailable("the database cannot be read")

    monkeypatch.setattr("engine.spark.streams.scheduling._ends_of", away)
    assert {number: kinds(packets) for number, packets in rounds.round().items()} == {number: ["failed"] for number in (1, 2, 3)}
    assert len(waits) == 1


def test_members_join_and_leave_between_rounds(rounds: Rounds) -> None:
    rounds.join(1, first := a_feed("a", p0=10))
    assert rounds.round().keys() == {1}
    rounds.join(2, a_feed("b", p0=10))
    first.length[0] = 20
    assert rounds.round().keys() == {1, 2}
    first.length[0] = 30
    (rounds.folder / "1").unlink()
    assert rounds.round() == {}


def test_batches_go_on_where_the_last_one_ended(rounds: Rounds) -> None:
    rounds.join(1, feed := a_feed("a", p0=10))
    for end in (10, 25, 26):
        feed.length[0] = end
        ((part,),) = (each.parts for each in rounds.parts())
        assert part.group is not None
        assert part.group.splits[-1][1].end == end


def test_what_is_planned_is_written_down_before_anything_is_done(rounds: Rounds, tmp_path: Path) -> None:
    rounds.join(1, a_feed("a", p0=10), tmp_path)
    end = rounds.reader.latestOffset(rounds.offset, ReadAllAvailable())
    rounds.reader.partitions(rounds.offset, end)

    assert planned_batch(tmp_path) == 7


def test_a_round_takes_who_has_waited_longest_and_beside_it_the_smallest(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.spark.streams.scheduling.MAX_CYCLE_INPUT_BYTES", 1_000 * BYTES_PER_RECORD)
    for number in (1, 2, 3):
        rounds.join(number, a_feed(f"large{number}", p0=900))
    for number in (4, 5):
        rounds.join(number, a_feed(f"small{number}", p0=20))
    found = [sorted(rounds.round()) for _ in range(3)]
    assert found == [[1, 4, 5], [2], [3]]
    rounds.feeds["small4"].length[0] = 30
    assert sorted(rounds.round()) == [4]


def test_who_has_little_news_is_in_each_round_while_others_are_left_over(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.spark.streams.scheduling.MAX_CYCLE_INPUT_BYTES", 1_000 * BYTES_PER_RECORD)
    rounds.join(1, a_feed("large1", p0=900))
    rounds.join(2, a_feed("large2", p0=900))
    rounds.join(3, small := a_feed("small", p0=20))
    assert sorted(rounds.round()) == [1, 3]
    small.length[0] = 40
    assert sorted(rounds.round()) == [2, 3]


def test_so_many_members_are_in_a_round_in_the_order_of_waiting(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.spark.streams.scheduling.MAX_CYCLE_QUERIES", 3)
    for number in range(1, 8):
        rounds.join(number, a_feed(f"feed{number}", p0=10 * number))
    assert [*rounds.round()] == [1, 2, 3]
    rounds.feeds["feed1"].length[0] = 20
    assert [*rounds.round()] == [4, 5, 6]
    assert [*rounds.round()] == [7, 1], "who comes again stands behind those who wait"
    assert rounds.round() == {}


def test_who_waits_for_a_round_reads_what_comes_meanwhile_with_it(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.spark.streams.scheduling.MAX_CYCLE_QUERIES", 1)
    rounds.join(1, a_feed("first", p0=10))
    rounds.join(2, late := a_feed("late", p0=10))
    assert [*rounds.round()] == [1]
    late.length[0] = 25
    ((part,),) = (each.parts for each in rounds.parts())
    assert (part.query_number, part.group and part.group.splits[-1][1].end) == (2, 25)


def test_a_launch_has_its_batch_without_records_also_where_it_waits_for_a_round(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The definition may have been edited in place: all tasks look at the clock once, and nothing else says so again."""
    monkeypatch.setattr("engine.spark.streams.scheduling.MAX_CYCLE_QUERIES", 1)
    monkeypatch.setattr("engine.runtime.planning.batch_planner.shared_connection", lambda _dsn: nullcontext())
    monkeypatch.setattr("engine.runtime.planning.batch_planner.earliest_wake", lambda _connection, _query: None)
    rounds.join(1, a_feed("first", p0=10))
    feed = a_feed("waking", p0=10)
    rounds.feeds["waking"] = feed
    start = {**new_cursor({feed.feed.name: {"0": 10}}, 0, 0), "now_ms": 1_000, "awake_ms": 1_000}
    inputs = (an_input(0, "waking", "waking"),)
    clock = Clock(uuid4(), frozenset())
    for number in (2, 3):
        spec = SourceSpec("", inputs, 1, start, BatchLimit(10**6, 10**9), 0, clock=clock, next_batch=7)
        (rounds.folder / str(number)).write_bytes(spec.encoded())
    assert [[*rounds.round()] for _ in range(4)] == [[1], [2], [3], []]


def test_a_member_is_discovered_once_for_a_round(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[BatchPlanner] = []
    look = BatchPlanner.next_cursor

    def counted(planner: BatchPlanner, start: Cursor, looked: UnreadLook | None = None) -> Cursor:
        looks.append(planner)
        return look(planner, start, looked)

    monkeypatch.setattr(BatchPlanner, "next_cursor", counted)
    rounds.join(1, a_feed("a", p0=10))
    assert [*rounds.round()] == [1]
    assert len(looks) == 1


def test_a_batch_that_is_left_over_is_not_under_way(rounds: Rounds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.spark.streams.scheduling.MAX_CYCLE_INPUT_BYTES", 1_000 * BYTES_PER_RECORD)
    rounds.join(1, a_feed("first", p0=900))
    rounds.join(2, a_feed("second", p0=900), tmp_path)
    assert sorted(rounds.round()) == [1]
    assert planned_batch(tmp_path) is None, "who ends the worker now is not the second"
    assert sorted(rounds.round()) == [2]
    assert planned_batch(tmp_path) == 7


def test_whose_turn_comes_when_a_round_has_emitted_enough_is_put_off_and_among_the_first_of_the_next(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.spark.streams.cycle_work.MAX_CYCLE_OUTPUT_BYTES", 6_000)
    feeds = {number: Emitting(a_feed(f"much{number}").feed, {0: 40}) for number in (1, 2, 3)}
    for number, feed in feeds.items():
        rounds.join(number, feed)
    rounds.join(4, Unlooked(a_feed("bad").feed, {0: 10}))
    whole = ["cursor", "progress", "data", "effort", "effort"]
    assert {number: kinds(packets) for number, packets in rounds.round().items()} == {
        1: whole, 2: whole, 3: ["postponed"], 4: ["failed"],
    }  # fmt: skip
    # As its slot does: from where it was, under another number.
    (rounds.folder / "3").unlink()
    rounds.join(5, feeds[3], is_postponed=True)
    for number in (1, 2):
        feeds[number].length[0] = 80
    found = rounds.round()
    assert {number: kinds(packets) for number, packets in found.items()} == {5: whole, 1: whole, 2: ["postponed"]}
    assert json.loads(found[5][0].blob)[BATCH_ID] == 7, "the batch that was put off"
    (rounds.folder / "2").unlink()
    rounds.join(6, feeds[2], is_postponed=True)
    feeds[1].length[0] = feeds[3].length[0] = 120
    assert [*rounds.round()] == [6, 1, 5], "put off once, it is the first once"


def test_who_is_alone_emits_what_it_emits(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.spark.streams.cycle_work.MAX_CYCLE_OUTPUT_BYTES", 1)
    (rounds.folder / "alone").touch()
    feed = a_feed("a").feed
    rounds.join(1, Emitting(feed, {0: 300_000, 1: 300_000}), cores=2)
    assert "postponed" not in kinds(rounds.round()[1])


@pytest.mark.parametrize("is_there", [False, True])
def test_a_directory_that_is_gone_costs_the_others_nothing(rounds: Rounds, tmp_path: Path, *, is_there: bool) -> None:
    """Who is stopped and removed between a look and its round leaves; what else is wrong with it fails it alone."""
    rounds.join(1, a_feed("gone", p0=10), tmp_path / "nowhere" / "run-0000000001-7")
    rounds.join(2, a_feed("other", p0=10))
    end = rounds.reader.latestOffset(rounds.offset, ReadAllAvailable())
    if not is_there:
        (rounds.folder / "1").unlink()
    (part,) = rounds.reader.partitions(rounds.offset, end)
    assert isinstance(part, CyclePartition)
    assert [(each.query_number, bool(each.failure)) for each in part.parts] == ([(1, True)] if is_there else []) + [(2, False)]


def test_who_leaves_while_left_over_is_forgotten(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.spark.streams.scheduling.MAX_CYCLE_INPUT_BYTES", 1_000 * BYTES_PER_RECORD)
    for number in (1, 2, 3):
        rounds.join(number, a_feed(f"large{number}", p0=900))
    assert sorted(rounds.round()) == [1]
    (rounds.folder / "2").unlink()
    assert sorted(rounds.round()) == [3]
    assert rounds.round() == {}


@pytest.mark.parametrize(("feed", "said"), [(Damaged, "somebody has removed"), (Unlooked, "the feed has gone")])
def test_a_member_that_fails_is_told_why_and_the_others_have_their_batches(
    rounds: Rounds, feed: type[FakeFeed], said: str
) -> None:
    other = a_feed("a", p0=10)
    rounds.join(1, feed(other.feed.__class__("log:bad", "log", "bad"), {0: 10}))
    rounds.join(2, other)
    found = rounds.round()
    assert kinds(found[1]) == ["failed"], "nothing of a batch that failed half-way"
    error = decoded(BatchFailed(found[1][0].blob.decode()))
    assert isinstance(error, DataInvalid)
    assert said in str(error)
    assert kinds(found[2]) == ["cursor", "progress", "effort", "effort"]


def test_a_failure_of_planning_is_told_once(rounds: Rounds) -> None:
    bad = Unlooked(a_feed("bad").feed, {0: 10})
    rounds.join(1, bad)
    assert kinds(rounds.round()[1]) == ["failed"]
    assert rounds.round() == {}


def test_a_specification_that_cannot_be_read_fails_its_member_alone(rounds: Rounds) -> None:
    (rounds.folder / "1").write_bytes(b"torn")
    rounds.join(2, a_feed("a", p0=10))
    found = rounds.round()
    assert (kinds(found[1]), kinds(found[2])) == (["failed"], ["cursor", "progress", "effort", "effort"])


def test_a_member_of_its_own_slot_is_shared_among_tasks(rounds: Rounds) -> None:
    rounds.join(1, a_feed("a", p0=300_000), cores=2)
    (rounds.folder / "alone").touch()
    parts = rounds.parts()
    assert len(parts) > 1
    assert all(part.is_alone and len(part.parts) == 1 for part in parts)


@pytest.mark.parametrize(("is_alone", "number"), [(True, 8), (False, 7)])
def test_a_first_round_without_anything_counts_where_it_is_committed(rounds: Rounds, *, is_alone: bool, number: int) -> None:
    """Spark has a first batch also where nothing is there yet, and a slot of one commits it."""
    if is_alone:
        (rounds.folder / "alone").touch()
    rounds.join(1, feed := a_feed("a", p0=0))
    assert rounds.reader.latestOffset(rounds.offset, ReadAllAvailable()) is rounds.offset
    for _ in range(2):  # Spark may ask twice
        parts = rounds.reader.partitions(rounds.offset, rounds.offset)
        assert [packet for part in parts for packet in rounds.reader.read(part)] == []
    feed.length[0] = 3
    assert json.loads(rounds.round()[1][0].blob)[BATCH_ID] == number


def test_who_shares_is_read_as_a_whole_however_much_there_is(rounds: Rounds) -> None:
    rounds.join(1, a_feed("a", p0=300_000))
    ((part,),) = (each.parts for each in rounds.parts())
    assert part.group is not None
    assert part.group.is_whole


def test_what_comes_while_the_reader_waits_is_for_the_next_call(rounds: Rounds) -> None:
    feed = a_feed("a", p0=0)

    def something_comes(_: float) -> None:
        feed.length[0] = 30

    rounds.reader = CycleReader(rounds.folder, Silence(sleep=something_comes))
    rounds.join(1, feed)
    assert rounds.round() == {}
    assert rounds.round().keys() == {1}


def test_available_now_ends_with_what_was_there(rounds: Rounds) -> None:
    rounds.join(1, feed := a_feed("a", p0=10))
    rounds.reader.prepareForTriggerAvailableNow()
    feed.length[0] = 20
    (found,) = rounds.round().values()
    assert b'"log:a":{"0":10}' in found[0].blob
    assert rounds.round() == {}
