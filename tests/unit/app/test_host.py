"""How old a launch is, which decides whether it is taken for one that hangs; and what is told of a query that was stopped."""

from __future__ import annotations

import queue
import threading
from uuid import uuid4

from structlog.testing import capture_logs

from app.catalog.drivers.states import HandleKind
from app.driver.launches.host import QueryHost
from app.driver.launches.ports import LaunchOrder
from engine.runtime.executor import QueryHandle

OLD_MS = 200


def test_a_launch_that_tells_that_it_goes_on_is_as_old_as_its_last_word() -> None:
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()
    told: queue.SimpleQueue[None] = queue.SimpleQueue()

    def launch(order: LaunchOrder) -> QueryHandle:
        while True:
            asked.get()
            order.note_phase("restoring")
            told.put(None)

    host = QueryHost(launch, 1.0, lambda _query: None)
    query_id = uuid4()
    host.launch(LaunchOrder(query_id, "q", {}, uuid4(), 1, 1, lambda _phase: None))

    def age_ms() -> int:
        return host.report(query_id).age_ms or 0

    while age_ms() < OLD_MS:
        assert host.report(query_id).kind is HandleKind.LAUNCHING
    for _ in range(50):  # on a loaded machine it may grow old again before it is looked at
        asked.put(None)
        told.get(timeout=60)
        if age_ms() < OLD_MS:
            return
    raise AssertionError("it is as old as its beginning")


class Leaving:
    """A handle that stops at once, and has something at work until it is told."""

    is_active = True
    phase = None
    comes_to_rest = True

    def __init__(self) -> None:
        self.may_rest = threading.Event()

    def error(self) -> None:
        return None

    def stop(self, _timeout_s: float, /) -> bool:
        return True

    def await_rest(self) -> bool:
        assert self.may_rest.wait(60)
        return self.comes_to_rest


def test_a_stop_is_over_before_what_it_left_at_work_which_is_told_until_it_is_at_rest() -> None:
    changes: queue.SimpleQueue[None] = queue.SimpleQueue()
    made: list[Leaving] = []

    def launch(_order: LaunchOrder) -> QueryHandle:
        made.append(Leaving())
        return made[-1]

    host = QueryHost(launch, 1.0, lambda _query: changes.put(None))
    query_id = uuid4()

    def reaches(kind: HandleKind, *, is_leaving: bool) -> None:
        while (report := host.report(query_id)).kind is not kind or report.is_leaving is not is_leaving:
            changes.get(timeout=60)

    host.launch(LaunchOrder(query_id, "q", {}, uuid4(), 1, 1, lambda _phase: None))
    reaches(HandleKind.RUNNING, is_leaving=False)
    host.stop(query_id)
    reaches(HandleKind.ABSENT, is_leaving=True)
    assert not host.has_live
    host.launch(LaunchOrder(query_id, "q", {}, uuid4(), 1, 2, lambda _phase: None))
    reaches(HandleKind.RUNNING, is_leaving=True)
    made[0].may_rest.set()
    reaches(HandleKind.RUNNING, is_leaving=False)
    host.stop(query_id)
    made[1].may_rest.set()
    reaches(HandleKind.ABSENT, is_leaving=False)


def test_what_does_not_come_to_rest_is_waited_for_no_longer_and_the_log_says_why() -> None:
    changes: queue.SimpleQueue[None] = queue.SimpleQueue()
    handle = Leaving()
    handle.comes_to_rest = False
    host = QueryHost(lambda _order: handle, 1.0, lambda _query: changes.put(None))
    query_id = uuid4()

    def reaches(kind: HandleKind, *, is_leaving: bool) -> None:
        while (report := host.report(query_id)).kind is not kind or report.is_leaving is not is_leaving:
            changes.get(timeout=60)

    host.launch(LaunchOrder(query_id, "q", {}, uuid4(), 1, 4, lambda _phase: None))
    reaches(HandleKind.RUNNING, is_leaving=False)
    with capture_logs() as told:
        host.stop(query_id)
        reaches(HandleKind.ABSENT, is_leaving=True)
        handle.may_rest.set()
        reaches(HandleKind.ABSENT, is_leaving=False)
    (line,) = (each for each in told if each["event"] == "query_left_at_work")
    assert (line["query"], line["epoch"], line["log_level"]) == ("q", 4, "warning")
    assert "does not end" in line["reason"]
