"""How old a launch is, which decides whether it is taken for one that hangs."""

from __future__ import annotations

import queue
from uuid import uuid4

from app.domain.states import HandleKind
from app.driver.host import QueryHost
from app.driver.ports import LaunchOrder, QueryHandle

OLD_MS = 200


def test_a_launch_that_tells_that_it_goes_on_is_as_old_as_its_last_word() -> None:
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()
    told: queue.SimpleQueue[None] = queue.SimpleQueue()

    def launch(order: LaunchOrder) -> QueryHandle:
        while True:
            asked.get()
            order.note_phase("restoring")
            told.put(None)

    host = QueryHost(launch, 1.0, lambda: None)
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
