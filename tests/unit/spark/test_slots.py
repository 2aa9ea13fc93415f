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

from app.catalog.drivers.states import is_outage
from app.driver.launches.host import report_of
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.cursors import new_cursor
from engine.runtime.planning.source_spec import SourceSpec
from engine.spark.streams.slot import Slot
from engine.spark.streams.slot_manager import MIN_DEDICATED_SLOTS, TRIALS, SlotManager


@dataclass(eq=False)
class FakeQuery:
    """A query as slots and their manager see it.

    Attributes:
        on_resume: called when it resumes in a slot.
        own_slots: how many dedicated slots it got.
        is_under_way: it has a batch at hand.
        after_commit: set while it is on trial.
    """

    on_resume: Callable[[], None] = lambda: None
    name: str = "q@1"
    slot: Any = None
    is_active: bool = True
    moving: threading.Lock = field(default_factory=threading.Lock)
    own_slots: int = 0
    query_id: UUID = field(default_factory=uuid4)
    is_settled: bool = True
    is_under_way: bool = False
    after_commit: Any = None

    def resume(self, *_more: Any) -> SourceSpec:
        self.on_resume()
        return SourceSpec("", (), 1, new_cursor({}, 0, 0), BatchLimit(1, 1), 0)

    def use_own_slot(self, *_more: Any, **_named: Any) -> None:
        self.own_slots += 1

    def is_light(self) -> bool:
        return True


@pytest.fixture
def spark(tmp_path: Path) -> Any:
    context = SimpleNamespace(master="local[1]", defaultParallelism=1)
    return SimpleNamespace(conf=SimpleNamespace(get=lambda _name: str(tmp_path)), sparkContext=context)


def a_slot(spark: Any) -> Slot:
    return Slot(spark, "", "shared 0", pool=0, on_end=lambda _slot, _error: None)


def test_a_query_that_is_stopped_while_it_resumes_is_in_no_slot(spark: Any) -> None:
    slot, query = a_slot(spark), FakeQuery()
    assert slot.join(query)  # type: ignore[arg-type]

    def is_stopped() -> None:
        query.is_active = False
        slot.leave(query)  # type: ignore[arg-type]

    query.on_resume = is_stopped
    slot._resume([query])  # type: ignore[list-item]
    assert slot.queries == []


def test_the_wait_for_a_cycle_has_a_timeout_and_ends_with_the_stream(spark: Any) -> None:
    slot = a_slot(spark)
    assert not slot.await_cycle(0, 0.01)
    assert slot.stop(1)
    assert slot.await_cycle(0, 60)


def test_a_query_that_was_brought_back_before_it_got_its_own_slot_stays(spark: Any) -> None:
    manager, left, other = SlotManager(spark, "", lambda: True), a_slot(spark), a_slot(spark)
    query: Any = FakeQuery(slot=other)
    manager._move(query, left)
    manager._try_alone(query)
    assert (query.own_slots, query.slot) == (0, other)
    query.slot = left
    manager._move(query, left)
    assert query.own_slots == 1


def test_a_query_that_waits_for_its_own_slot_occupies_a_place(spark: Any) -> None:
    manager, shared = SlotManager(spark, "", lambda: True), a_slot(spark)
    queries: list[Any] = [FakeQuery(name=f"q{number}@1", slot=shared) for number in range(MIN_DEDICATED_SLOTS + 1)]
    assert all(shared.join(query) for query in queries)
    *first, last = queries
    with ExitStack() as held:
        for query in first:
            held.enter_context(query.moving)  # the stream before it takes long to start
        for query in queries:
            manager._dedicate_if_heavy(query, is_heavy=True)
        manager._return_light_queries()
        manager._dedicate_if_heavy(last, is_heavy=True)
        assert shared.queries == [last]


def test_a_query_with_one_long_batch_does_not_count_as_light(spark: Any) -> None:
    manager = SlotManager(spark, "", lambda: True)
    query: Any = FakeQuery(is_under_way=True)

    def stop(_timeout: float) -> bool:
        query.is_active = False  # somebody stops it at the same time, so that it need not share
        return True

    query.slot = SimpleNamespace(is_shared=False, stop=stop)
    manager._dedicated.add(query)
    manager._return_light_queries()
    assert query.is_active, "its slot goes on"
    query.is_under_way = False
    manager._return_light_queries()
    assert not query.is_active, "its slot was stopped"


def test_a_query_whose_own_stream_stops_too_slowly_spends_no_attempt(spark: Any) -> None:
    manager, failed = SlotManager(spark, "", lambda: True), list[Exception]()
    query: Any = FakeQuery()
    query.fail = failed.append
    query.slot = SimpleNamespace(is_shared=False, stop=lambda _timeout: False)
    manager._bring_back(query, query.slot)
    (error,) = failed
    assert is_outage(report_of(error)), "the next launch spends no attempt"


def test_suspects_whose_trials_do_not_end_take_no_more_places_than_there_are(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.spark.streams.slot_manager.TRIAL_S", 0.01)
    monkeypatch.setattr("engine.spark.streams.slot_manager.LOOK_S", 0.01)
    manager, most = SlotManager(spark, "", lambda: True), MIN_DEDICATED_SLOTS + TRIALS
    begun: queue.SimpleQueue[FakeQuery] = queue.SimpleQueue()

    class Endless(FakeQuery):
        def use_own_slot(self, *_more: Any, **_named: Any) -> None:
            self.slot = SimpleNamespace(is_shared=False)
            begun.put(self)

    suspects: list[Any] = [Endless(name=f"q{number}@1") for number in range(most + 3)]
    for query in suspects:
        manager._suspects.put(query)
    tried = [begun.get(timeout=60) for _ in range(most)]
    for _ in range(3):
        manager._return_light_queries()  # none of them is settled: each keeps its place
        with pytest.raises(queue.Empty):
            begun.get(timeout=0.1)
        over = next(query for query in tried if query.is_active and query.after_commit is not None)
        over.is_active = False  # it was stopped
        tried.append(begun.get(timeout=60))
    assert {query.name for query in tried} == {query.name for query in suspects}
