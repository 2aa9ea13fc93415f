"""Slots on real Spark: many queries in one stream, and what a failure of one, of a worker or of a stream means for the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import polars as pl
import pytest

from engine.errors import DataInvalid, EngineError, ResultLocked
from engine.plan.model import Feed, Plan
from engine.postgres.fence import claim_epoch
from engine.runtime.failures import ExhaustsItsWorker, KillsItsWorker, StallsItsWorker
from engine.runtime.launches import launched_query
from engine.runtime.launches.launch_state import Launch
from engine.runtime.launches.run_options import RunOptions
from engine.runtime.limits.watchdog import USUAL, WorkBounds
from engine.sources.log.replay_reader import replay_feed
from engine.spark.streams.running_query import RunningQuery
from engine.spark.streams.slot_manager import SlotManager
from tests.launching import (
    DEADLINE_S,
    counting,
    flight,
    hourly_oracle,
    hourly_rows,
    kill_workers,
    many_flights,
    register_flights,
)
from tests.launching import wait_for as wait_until
from tests.spark.conftest import SparkLauncher
from tests.spark.poison import HUNGRY, POISONOUS, SPINNING, WAITING, PoisonedWork, WaitingReplays

pytestmark = pytest.mark.spark


@dataclass
class Fleets:
    """Queries that ride in one fleet."""

    launcher: SparkLauncher
    fleet: SlotManager
    bounds: WorkBounds = USUAL
    queries: dict[str, RunningQuery] = field(default_factory=dict)
    identities: dict[str, UUID] = field(default_factory=dict)

    def launch(self, name: str, **more: Any) -> RunningQuery:
        return self.launch_definition(counting(name=name, into={"table": name}, **more))

    def launch_definition(self, definition: dict[str, Any], epoch: int = 1) -> RunningQuery:
        name = definition["name"]
        make = self.launcher.plan if epoch == 1 else self.launcher.replanned
        plan, identity = make(**definition), self.identities.setdefault(name, uuid4())
        with self.launcher.connect() as connection:
            claim_epoch(connection, identity, identity, epoch)
        launch = Launch(identity, identity, epoch, self.launcher.directory(identity))
        self.queries[name] = query = self.fleet.launch(plan, launch, RunOptions(bounds=self.bounds))
        return query

    def streams(self) -> int:
        """How many streaming queries Spark runs."""
        return len(self.launcher.spark.streams.active)

    def show(self, name: str, flights: pl.DataFrame) -> None:
        """Wait until a query shows what comes of these records."""
        expected = hourly_oracle(flights)

        def is_shown() -> bool:
            if (error := self.queries[name].error()) is not None:
                raise error
            return hourly_rows(self.launcher, name) == expected

        wait_until(is_shown)


@pytest.fixture
def fleets(launcher: SparkLauncher) -> Iterator[Fleets]:
    register_flights(launcher)
    made = Fleets(launcher, SlotManager(launcher.spark, launcher.dsn, lambda: True))
    yield made
    assert all(query.stop(DEADLINE_S) for query in made.queries.values())
    for stream in launcher.spark.streams.active:
        stream.stop()


def test_queries_share_one_stream_and_come_and_go(fleets: Fleets) -> None:
    before = fleets.streams()
    fleets.launcher.append("flights", flights := many_flights(500))
    names = [f"shared_{number}" for number in range(12)]
    for name in names[:10]:
        fleets.launch(name)
    for name in names[:10]:
        fleets.show(name, flights)
    assert fleets.streams() - before == 2, "one for each core"
    assert fleets.queries[names[0]].stop(DEADLINE_S)
    batches = fleets.queries[names[0]].next_batch
    for name in names[10:]:
        fleets.launch(name)
    fleets.launcher.append("flights", more := many_flights(500, first=500))
    for name in names[1:]:
        fleets.show(name, pl.concat([flights, more]))
    assert hourly_rows(fleets.launcher, names[0]) == hourly_oracle(flights), "who left gets nothing more"
    assert fleets.queries[names[0]].next_batch == batches
    assert fleets.streams() - before == 2


def test_a_query_that_cannot_be_written_fails_alone(fleets: Fleets) -> None:
    fleets.launch("good")
    bad = fleets.launch("bad")
    with fleets.launcher.connect() as connection:
        connection.execute('ALTER TABLE views."bad" ADD CHECK (total < 0)')
    fleets.launcher.append("flights", flights := many_flights(200))
    wait_until(lambda: not bad.is_active)
    assert isinstance(bad.error(), DataInvalid)
    fleets.show("good", flights)
    fleets.launcher.append("flights", more := many_flights(200, first=200))
    fleets.show("good", pl.concat([flights, more]))


def test_a_heavy_query_goes_on_alone_and_comes_back_when_it_is_light(fleets: Fleets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.limits.load.LIGHT_AFTER_S", 0.5)
    monkeypatch.setattr("engine.runtime.limits.load.WINDOW_S", 0.5)
    monkeypatch.setattr("engine.spark.streams.slot_manager.LOOK_S", 0.2)
    before = fleets.streams()
    fleets.launch("other")
    fleets.launcher.append("flights", flights := many_flights(60_000))
    heavy = fleets.launch("heavy")
    wait_until(lambda: heavy.slot is not None and not heavy.slot.is_shared)
    fleets.show("heavy", flights)
    fleets.show("other", flights)
    wait_until(lambda: heavy.slot is not None and heavy.slot.is_shared)
    wait_until(lambda: fleets.streams() - before == 1)
    fleets.launcher.append("flights", more := many_flights(100, first=60_000))
    fleets.show("heavy", pl.concat([flights, more]))
    assert heavy.error() is None


def test_so_many_ride_alone_at_once_and_the_others_work_their_backlogs_off_together(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleets.fleet, "_most_own", 1)
    before = fleets.streams()
    fleets.launcher.append("flights", flights := many_flights(60_000))
    names = [f"behind_{number}" for number in range(4)]
    for name in names:
        fleets.launch(name)
    for name in names:
        fleets.show(name, flights)
        assert fleets.streams() - before <= 2, "a shared one, and one of its own"
    assert all(query.error() is None for query in fleets.queries.values())
    with fleets.launcher.connect() as connection:
        noted = connection.execute(
            "SELECT detail #> '{execution,is_waiting}', detail #> '{execution,is_shared}' FROM log.commit"
        ).fetchall()
    assert (True, True) in noted, "its status says that it waits for a slot of its own"


def test_workers_that_are_killed_cost_nobody_anything(fleets: Fleets) -> None:
    names = [f"killed_{number}" for number in range(4)]
    for name in names:
        fleets.launch(name)
    flights = many_flights(100)
    fleets.launcher.append("flights", flights)
    for name in names:
        fleets.show(name, flights)
    for first in range(100, 1_100, 100):
        fleets.launcher.append("flights", part := many_flights(100, first=first))
        flights = pl.concat([flights, part])
        kill_workers()
    for name in names:
        fleets.show(name, flights)
        assert fleets.queries[name].error() is None


def test_a_query_whose_worker_crashed_is_found_and_the_others_go_on(fleets: Fleets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launched_query, "StageWork", PoisonedWork)
    names = ["innocent_1", "innocent_2", "innocent_3"]
    for name in names:
        fleets.launch(name)
    poisonous = fleets.launch(POISONOUS)
    fleets.launcher.append("flights", flights := pl.DataFrame([flight("JFK", 5_000, 1)]))
    wait_until(lambda: not poisonous.is_active)
    assert isinstance(poisonous.error(), KillsItsWorker)
    for name in names:
        fleets.show(name, flights)
    fleets.launcher.append("flights", more := many_flights(50, first=10))
    for name in names:
        fleets.show(name, pl.concat([flights, more], how="diagonal"))
        assert fleets.queries[name].error() is None


@pytest.mark.parametrize(
    ("name", "bounds", "code", "said"),
    [
        (WAITING, WorkBounds(stall_s=4), StallsItsWorker, "no progress for 4"),
        pytest.param(SPINNING, WorkBounds(stall_s=4), StallsItsWorker, "no progress for", marks=pytest.mark.slow),
        pytest.param(
            HUNGRY, WorkBounds(memory_bytes=700 << 20), ExhaustsItsWorker, "of 700 that one may have", marks=pytest.mark.slow
        ),
    ],
)
def test_who_holds_its_worker_up_is_found_and_the_others_go_on(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch, name: str, bounds: WorkBounds, code: type[EngineError], said: str
) -> None:
    monkeypatch.setattr(launched_query, "StageWork", PoisonedWork)
    fleets.bounds = bounds
    names = [f"{name}_{number}" for number in range(3)]
    for each in names:
        fleets.launch(each)
    bad = fleets.launch(name)
    fleets.launcher.append("flights", flights := pl.DataFrame([flight("JFK", 5_000, 1)]))
    wait_until(lambda: not bad.is_active)
    assert isinstance(bad.error(), code)
    assert said in str(bad.error())
    for each in names:
        fleets.show(each, flights)
    before = {each: fleets.queries[each].slot for each in names}
    assert fleets.queries[name].stop(DEADLINE_S)
    again = fleets.launch_definition(counting(name=name, into={"table": name}), epoch=2)
    fleets.launcher.append("flights", more := many_flights(50, first=10))
    wait_until(lambda: not again.is_active)
    for each in names:
        fleets.show(each, pl.concat([flights, more], how="diagonal"))
        assert fleets.queries[each].error() is None
    assert {each: fleets.queries[each].slot for each in names} == before, "it began alone, so nobody else was held up again"


def test_who_is_stopped_in_the_midst_of_a_round_does_not_wait_for_it(fleets: Fleets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launched_query, "StageWork", PoisonedWork)
    slow, query = fleets.launch(WAITING), fleets.launch("stopped_within")
    fleets.launcher.append("flights", [flight("JFK", 5_000, 1)])
    wait_until(lambda: slow.is_under_way and query.is_under_way)
    slot = query.slot
    assert slot is not None
    assert slot is slow.slot
    done = slot.cycles_done  # Spark's first, where it came before the records
    assert query.stop(DEADLINE_S)
    assert slot.cycles_done == done, "the round goes on"
    resting = threading.Thread(target=query.await_rest)
    resting.start()
    assert query not in slot.queries
    assert resting.is_alive(), "a worker may be at work for it"

    def is_at_rest() -> bool:
        kill_workers()  # it may not have begun yet
        return not resting.is_alive()

    wait_until(is_at_rest)
    assert query.next_batch == 0


def test_who_holds_the_planning_up_is_found_and_the_others_go_on(fleets: Fleets, monkeypatch: pytest.MonkeyPatch) -> None:
    def replays(plan: Plan, query_id: UUID, dsn: str) -> WaitingReplays | None:
        name = replay_feed(query_id)
        return WaitingReplays(dsn, Feed(name, "log", name), plan) if plan.query == WAITING else None

    monkeypatch.setattr(launched_query, "_replays", replays)
    fleets.bounds = WorkBounds(stall_s=3)
    names = ["planned_1", "planned_2"]
    for name in names:
        fleets.launch(name)
    bad = fleets.launch(WAITING)
    fleets.launcher.append("flights", flights := many_flights(50))
    wait_until(lambda: not bad.is_active)
    assert isinstance(bad.error(), StallsItsWorker)
    assert "while its next batch was planned" in str(bad.error())
    for name in names:
        fleets.show(name, flights)
        assert fleets.queries[name].error() is None


def test_a_lock_on_one_result_holds_the_others_up_for_a_moment_only(fleets: Fleets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.spark.streams.slot.LOCK_S", 1.0)
    fleets.launch("free")
    locked = fleets.launch("locked")
    with fleets.launcher.connect() as connection, connection.transaction():
        connection.execute('LOCK TABLE views."locked" IN ACCESS EXCLUSIVE MODE')
        fleets.launcher.append("flights", flights := many_flights(100))
        fleets.show("free", flights)
        wait_until(lambda: not locked.is_active)
    assert isinstance(locked.error(), ResultLocked)
    assert locked.stop(DEADLINE_S)
    fleets.launch_definition(counting(name="locked", into={"table": "locked"}), epoch=2)
    fleets.show("locked", flights)
    assert fleets.queries["free"].error() is None


def grown(fleets: Fleets, name: str, partitions: int = 1) -> dict[str, Any]:
    """Register texts of 464 bytes; returns a query that makes 1.86 MB of each."""
    fleets.launcher.register(
        "stream",
        "texts",
        columns={"k": "string", "t": "string", "ts": "bigint"},
        event_time="ts",
        connector={"type": "log", "partitions": partitions},
    )
    long = "t"
    for _ in range(3):
        long = f"replace({long}, 'a', 'aaaaaaaaaa')"
    select = {"k": "k", "ts": "ts"} | {f"c{number}": long for number in range(4)}
    return {"name": name, "from": {"stream": "texts"}, "select": select, "into": {"stream": f"{name}_texts"}}


def texts(numbers: range) -> list[dict[str, Any]]:
    return [{"k": str(number), "t": "a" * 464, "ts": number} for number in numbers]


def show_grown(fleets: Fleets, name: str, numbers: range) -> None:
    """Wait until a query of ``grown`` has made everything of these texts, in the order of a single batch."""
    wait_until(lambda: fleets.launcher.stream(f"{name}_texts").height >= len(numbers))
    found = fleets.launcher.stream(f"{name}_texts")
    assert found.select("k").to_series().to_list() == [str(number) for number in numbers]
    assert found.select(pl.col("c3").str.len_bytes().unique()).to_series().to_list() == [464_000]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_query_that_makes_much_of_little_takes_less_at_once(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    monkeypatch.setattr("engine.runtime.launches.launched_query.SHARED_EMITTED", 8 << 20)
    other = fleets.launch("other_one")
    query = fleets.launch_definition(grown(fleets, "grown", partitions))
    fleets.launcher.append("texts", texts(range(24)))
    fleets.launcher.append("flights", flights := many_flights(100))
    show_grown(fleets, "grown", range(24))
    assert query.next_batch > 4, "of 43 MiB no batch has emitted more than eight"
    fleets.show("other_one", flights)
    assert (query.error(), other.error()) == (None, None)


@pytest.mark.slow
def test_who_rides_alone_and_makes_more_than_its_driver_may_hold_takes_less_at_once(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the bound of a slot of its own is for: its batches are large, and nobody else's wait for them, but the driver holds them."""
    monkeypatch.setattr("engine.runtime.launches.launched_query.OWN_EMITTED", 8 << 20)
    monkeypatch.setattr("engine.runtime.limits.load.HEAVY_ROWS", 2)
    query = fleets.launch_definition(grown(fleets, "grown"))
    fleets.launcher.append("texts", texts(range(3)))
    wait_until(lambda: query.slot is not None and not query.slot.is_shared and query.next_batch > 0)
    batches = query.next_batch
    fleets.launcher.append("texts", texts(range(3, 27)))
    show_grown(fleets, "grown", range(27))
    assert query.next_batch - batches > 4, "of 43 MiB no batch has emitted more than eight"
    assert query.error() is None
    assert query.slot is not None
    assert not query.slot.is_shared
    with fleets.launcher.connect() as connection:
        noted = connection.execute(
            "SELECT detail #> '{execution,is_shared}', detail #> '{execution,max_rows}' FROM log.commit"
        ).fetchall()
    ((is_shared, max_rows),) = noted
    assert not is_shared
    assert 1 <= max_rows <= 4, "its status says so"


@pytest.mark.slow
def test_batches_that_a_round_has_no_room_for_come_in_the_next_one(fleets: Fleets) -> None:
    """Of three batches that emit 43 MiB each the third begins when the round has emitted more than its 64."""
    definition = grown(fleets, "much_0")
    names = [f"much_{number}" for number in range(3)]
    queries = [fleets.launch_definition({**definition, "name": name, "into": {"stream": f"{name}_texts"}}) for name in names]
    little = fleets.launch("little")
    fleets.launcher.append("flights", flights := many_flights(100))
    fleets.show("little", flights)
    assert len({query.slot for query in (*queries, little)}) == 1
    fleets.launcher.append("texts", texts(range(24)))
    for name in names:
        show_grown(fleets, name, range(24))
    with fleets.launcher.connect() as connection:
        noted = connection.execute("SELECT detail #> '{execution,postponed}' FROM log.commit").fetchall()
    assert sum(times for (times,) in noted) == 1, "its status counts it"
    assert [query.error() for query in (*queries, little)] == [None] * 4
