"""which shared slots a manager opens, and that nobody waits for one that somebody else needs."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from engine.errors import ExternalError
from engine.spark.streams import slot_manager as fleets
from engine.spark.streams.running_query import RunningQuery
from engine.spark.streams.slot_manager import FEW, MAX_FAILED_STARTS, SlotManager

DEADLINE_S = 60.0


class Slot:
    """Takes whoever joins, and starts when it may."""

    made: list[Slot]
    may_start: threading.Event
    dies = False

    def __init__(self, _spark: Any, _dsn: str, _name: str, *, pool: int, on_end: Any) -> None:
        self.pool, self.on_end = pool, on_end
        self.members: list[Any] = []
        self.is_over = False
        self.made.append(self)

    def start(self) -> None:
        assert not self.members
        assert self.may_start.wait(DEADLINE_S)
        self.is_over = self.dies

    def join(self, member: Any) -> bool:
        if not self.is_over:
            self.members.append(member)
        return not self.is_over


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> SlotManager:
    monkeypatch.setattr(Slot, "made", [], raising=False)
    monkeypatch.setattr(Slot, "may_start", threading.Event(), raising=False)
    monkeypatch.setattr(fleets, "Slot", Slot)
    monkeypatch.setattr(RunningQuery, "prepare", lambda *_: SimpleNamespace(slot=None))
    Slot.may_start.set()
    return SlotManager(SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2)), "", lambda: True)  # type: ignore[arg-type]


def launch(fleet: SlotManager, number: int = 1) -> list[Any]:
    any_plan: Any = None
    return [fleet.launch(any_plan, SimpleNamespace(query_id=uuid4()), any_plan) for _ in range(number)]  # type: ignore[arg-type]


def until_there_are(number: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(Slot.made) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_manager_that_is_ready_has_a_slot_for_its_first_query(fleet: SlotManager) -> None:
    fleet.make_ready()
    fleet.make_ready()
    Slot.may_start.clear()
    (first,) = launch(fleet)
    assert (len(Slot.made), first.slot) == (1, Slot.made[0])


def test_who_launches_does_not_wait_for_another_slot_and_rides_in_it_once_it_runs(fleet: SlotManager) -> None:
    launch(fleet, FEW - 1)
    assert len(Slot.made) == 1
    Slot.may_start.clear()
    launch(fleet, 2)
    until_there_are(2)
    (early,) = launch(fleet)
    assert early.slot is Slot.made[0]
    Slot.may_start.set()
    deadline = time.monotonic() + DEADLINE_S
    while len(fleet._shared) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert launch(fleet)[0].slot is Slot.made[1]
    launch(fleet, 3 * FEW)
    assert len(Slot.made) == 2
    assert abs(len(Slot.made[0].members) - len(Slot.made[1].members)) <= 1


def test_of_a_slot_that_has_ended_nobody_becomes_a_member(fleet: SlotManager) -> None:
    launch(fleet)
    Slot.made[0].is_over = True
    (next_one,) = launch(fleet)
    assert (len(Slot.made), next_one.slot) == (2, Slot.made[1])


def test_a_launch_is_told_where_slots_end_as_soon_as_they_begin(fleet: SlotManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slot, "dies", True)
    with pytest.raises(ExternalError, match=r"driver\.log has the reason"):
        launch(fleet)
    assert len(Slot.made) == MAX_FAILED_STARTS
