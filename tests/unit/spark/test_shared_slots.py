"""Which shared slots a manager opens, and that no launch waits for a slot that another one needs."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from engine.errors import ExternalError
from engine.spark.streams import slot_manager
from engine.spark.streams.running_query import RunningQuery
from engine.spark.streams.slot_manager import MAX_FAILED_STARTS, QUERIES_PER_SHARED_SLOT, SlotManager

DEADLINE_S = 60.0


class Slot:
    """Accepts every query, and starts when the test lets it."""

    made: list[Slot]
    may_start: threading.Event
    dies = False

    def __init__(self, _spark: Any, _dsn: str, _name: str, *, pool: int, on_end: Any) -> None:
        self.pool, self.on_end = pool, on_end
        self.queries: list[Any] = []
        self.is_over = False
        self.made.append(self)

    def start(self) -> None:
        assert not self.queries
        assert self.may_start.wait(DEADLINE_S)
        self.is_over = self.dies

    def join(self, query: Any) -> bool:
        if not self.is_over:
            self.queries.append(query)
        return not self.is_over


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> SlotManager:
    monkeypatch.setattr(Slot, "made", [], raising=False)
    monkeypatch.setattr(Slot, "may_start", threading.Event(), raising=False)
    monkeypatch.setattr(slot_manager, "Slot", Slot)
    monkeypatch.setattr(RunningQuery, "prepare", lambda *_: SimpleNamespace(slot=None))
    Slot.may_start.set()
    return SlotManager(SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2)), "", lambda: True)  # type: ignore[arg-type]


def launch(manager: SlotManager, number: int = 1) -> list[Any]:
    any_plan: Any = None
    return [manager.launch(any_plan, SimpleNamespace(query_id=uuid4()), any_plan) for _ in range(number)]  # type: ignore[arg-type]


def until_there_are(number: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(Slot.made) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_manager_that_is_ready_has_a_slot_for_its_first_query(manager: SlotManager) -> None:
    manager.make_ready()
    manager.make_ready()
    Slot.may_start.clear()
    (first,) = launch(manager)
    assert (len(Slot.made), first.slot) == (1, Slot.made[0])


def test_a_launch_does_not_wait_for_another_slot_and_uses_it_once_it_runs(manager: SlotManager) -> None:
    launch(manager, QUERIES_PER_SHARED_SLOT - 1)
    assert len(Slot.made) == 1
    Slot.may_start.clear()
    launch(manager, 2)
    until_there_are(2)
    (early,) = launch(manager)
    assert early.slot is Slot.made[0]
    Slot.may_start.set()
    deadline = time.monotonic() + DEADLINE_S
    while len(manager._shared) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert launch(manager)[0].slot is Slot.made[1]
    launch(manager, 3 * QUERIES_PER_SHARED_SLOT)
    assert len(Slot.made) == 2
    assert abs(len(Slot.made[0].queries) - len(Slot.made[1].queries)) <= 1


def test_no_query_joins_a_slot_that_has_ended(manager: SlotManager) -> None:
    launch(manager)
    Slot.made[0].is_over = True
    (next_one,) = launch(manager)
    assert (len(Slot.made), next_one.slot) == (2, Slot.made[1])


def test_a_launch_fails_if_slots_end_as_soon_as_they_begin(manager: SlotManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slot, "dies", True)
    with pytest.raises(ExternalError, match=r"driver\.log has the reason"):
        launch(manager)
    assert len(Slot.made) == MAX_FAILED_STARTS
