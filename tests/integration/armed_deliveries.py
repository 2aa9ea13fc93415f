"""Processes that deliver, forked from one that has imported everything; each may kill itself where a named point is passed.

``python tests/integration/armed_deliveries.py``: a line of standard input is an object with ``point`` (``-``: none), ``owner`` and
``environment``, and makes a process, whose pid is answered. Nothing of this is in the product: the parts are put in place of those that they
do the same as.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from app.catalog.deliveries import sql as deliveries
from app.driver.delivering import worker
from app.driver.delivering.process import DeliveryProcess
from app.settings.effective_settings import load_settings
from app.telemetry.setup import configure_logging
from engine.deliveries.delivery_kinds import DELIVERY_KINDS
from engine.deliveries.files import FilesDeliverer
from engine.deliveries.kafka import delivery as kafka_delivery

POINTS = {
    "planned": "the database knows what comes, the target has nothing of it",
    "linked": "a commit into files is made, its files have not got their names",
    "delivered": "the target has everything, the database does not know",
    "noted": "the database knows",
    "planned later": "as planned, of the second delivery, before which so much time has passed that brokers may have forgotten the first",
}
T = TypeVar("T")


def passing_after(function: Callable[..., T], spared: int = 0) -> Callable[..., T]:
    """Return a function that does the same, and then kills this process; ``spared`` times it does not."""
    left = spared

    def armed(*arguments: Any, **named: Any) -> T:
        nonlocal left
        answer = function(*arguments, **named)
        if answer is not None or function.__name__ != "plan":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return armed


def arm(point: str) -> None:
    """Let this process die at a point."""
    match point:
        case "planned":
            deliveries.plan = passing_after(deliveries.plan)
        case "linked":
            FilesDeliverer._commit = passing_after(FilesDeliverer._commit)  # type: ignore[method-assign]
        case "delivered":
            deliveries.note_delivered = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        case "noted":
            deliveries.note_delivered = passing_after(deliveries.note_delivered)
        case "planned later":
            kafka_delivery.REMEMBERED_S = 0.0  # type: ignore[misc]  # an hour has passed, always
            deliveries.plan = passing_after(deliveries.plan, spared=1)


def deliver(point: str, owner: UUID) -> None:
    """Be a process that delivers; never returns."""
    assert point == "-" or point in POINTS, point
    assert worker.DELIVERY_KINDS is DELIVERY_KINDS
    arm(point)
    settings = load_settings()
    configure_logging(settings.log)
    DeliveryProcess(settings, owner, os.getppid()).run()
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.environ.update(wanted["environment"])
            deliver(wanted["point"], UUID(wanted["owner"]))
        print(pid, flush=True)
