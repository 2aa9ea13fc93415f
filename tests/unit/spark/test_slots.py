"""A query is in one slot at most, and in none once it is stopped. Without Spark."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.catalog.drivers.outages import is_outage
from app.driver.launches.faults import report_of
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.cursors import new_cursor
from engine.runtime.planning.source_spec import SourceSpec
from engine.spark.streams.slot import Slot
from engine.spark.streams.slot_manager import LEAST_OWN, TRIALS, SlotManager


@dataclass(eq=False)
class Riding:
    """A query as slots and a fleet see it.

    Attributes:
        boards: called when a slot takes it.
        rode: slots of its own that it was given.
        is_under_way: it has a batch at hand.
        on_settled: set while it is on trial.
    """

    boards: Callable[[], None] = lambda: None
    name: str = "q@1"
    slot: Any = None
    is_active: bool = True
    moving: threading.Lock = field(default_factory=threading.Lock)
    rode: int = 0
    query_id: UUID = field(default_factory=uuid4)
    is_settled: bool = True
    is_under_way: bool = False
    on_settled: Any = None

    def board(self, *_more: Any) -> SourceSpec:
        self.boards()
        return SourceSpec("", (), 1, new_cursor({}, 0, 0), BatchLimit(1, 1), 0)

    def use_own_slot(self, *_more: Any, **_named: Any) -> None:
        self.rode += 1

    def is_light(self) -> bool:
        return True


@pytest.fixture
def spark(tmp_path: Path) -> Any:
    context = SimpleNamespace(master="local[1]", defaultParallelism=1)
    return SimpleNamespace(conf=SimpleNamespace(get=lambda _name: str(tmp_path)), sparkContext=context)


def a_slot(spark: Any) -> Slot:
    return Slot(spark, "", "shared 0", pool=0, on_end=lambda _slot, _error: None)


def test_who_is_stopped_while_it_boards_anew_is_carried_no_longer(spark: Any) -> None:
    slot, member = a_slot(spark), Riding()
    assert slot.join(member)  # type: ignore[arg-type]

    def is_stopped() -> None:
        member.is_active = False
        slot.leave(member)  # type: ignore[arg-type]

    member.boards = is_stopped
    slot._resume([member])  # type: ignore[list-item]
    assert slot.members == []


def test_a_round_is_waited_for_as_long_as_one_says_and_the_end_of_the_stream_ends_every_wait(spark: Any) -> None:
    slot = a_slot(spark)
    assert not slot.await_cycle(0, 0.01)
    assert slot.stop(1)
    assert slot.await_cycle(0, 60)


def test_who_was_brought_back_before_it_could_ride_alone_stays_where_it_is(spark: Any) -> None:
    fleet, left, other = SlotManager(spark, "", lambda: True), a_slot(spark), a_slot(spark)
    member: Any = Riding(slot=other)
    fleet._move(member, left)
    fleet._try_alone(member)
    assert (member.rode, member.slot) == (0, other)
    member.slot = left
    fleet._move(member, left)
    assert member.rode == 1


def test_who_waits_to_ride_alone_is_counted_as_one_that_does(spark: Any) -> None:
    fleet, shared = SlotManager(spark, "", lambda: True), a_slot(spark)
    members: list[Any] = [Riding(name=f"q{number}@1", slot=shared) for number in range(LEAST_OWN + 1)]
    assert all(shared.join(member) for member in members)
    *first, last = members
    with ExitStack() as held:
        for member in first:
            held.enter_context(member.moving)  # the stream before it takes long to start
        for member in members:
            fleet._weighed(member, is_heavy=True)
        fleet._return_light_queries()
        fleet._weighed(last, is_heavy=True)
        assert shared.members == [last]


def test_who_works_at_one_batch_for_long_is_not_taken_for_light(spark: Any) -> None:
    fleet = SlotManager(spark, "", lambda: True)
    member: Any = Riding(is_under_way=True)

    def stop(_timeout: float) -> bool:
        member.is_active = False  # somebody stops it at the same time, so that it need not share
        return True

    member.slot = SimpleNamespace(is_shared=False, stop=stop)
    fleet._dedicated.add(member)
    fleet._return_light_queries()
    assert member.is_active, "its slot goes on"
    member.is_under_way = False
    fleet._return_light_queries()
    assert not member.is_active, "its slot was stopped"


def test_a_query_whose_own_stream_stops_too_slowly_on_a_loaded_machine_pays_nothing_for_it(spark: Any) -> None:
    fleet, failed = SlotManager(spark, "", lambda: True), list[Exception]()
    member: Any = Riding()
    member.fail = failed.append
    member.slot = SimpleNamespace(is_shared=False, stop=lambda _timeout: False)
    fleet._bring_back(member, member.slot)
    (error,) = failed
    assert is_outage(report_of(error)), "the next launch spends no attempt"


def test_suspects_whose_trials_do_not_end_take_no_more_places_than_there_are(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.spark.streams.slot_manager.TRIAL_S", 0.01)
    monkeypatch.setattr("engine.spark.streams.slot_manager.LOOK_S", 0.01)
    fleet, most = SlotManager(spark, "", lambda: True), LEAST_OWN + TRIALS
    begun: queue.SimpleQueue[Riding] = queue.SimpleQueue()

    class Endless(Riding):
        def use_own_slot(self, *_more: Any, **_named: Any) -> None:
            self.slot = SimpleNamespace(is_shared=False)
            begun.put(self)

    suspects: list[Any] = [Endless(name=f"q{number}@1") for number in range(most + 3)]
    for member in suspects:
        fleet._suspects.put(member)
    riding = [begun.get(timeout=60) for _ in range(most)]
    for _ in range(3):
        fleet._return_light_queries()  # none of them is settled: each keeps its place
        with pytest.raises(queue.Empty):
            begun.get(timeout=0.1)
        over = next(member for member in riding if member.is_active and member.on_settled is not None)
        over.is_active = False  # it was stopped
        riding.append(begun.get(timeout=60))
    assert {member.name for member in riding} == {member.name for member in suspects}
