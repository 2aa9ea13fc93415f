"""SIGSTOP of the driver's whole session and of single parts for 5, 30 and 120 seconds: slower, not wrong."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil
import pytest

from app.driver.supervisor.process_group import session_members
from app.testing.machines.service import command_of
from tests.faults.disturbed import Disturbed, is_audited_clean
from tests.faults.service import WORKER, Service

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(2_400)]

LONGEST_S = 120.0


class Freezable(Service):
    """A service, parts of which can be stopped for a while."""

    def driver_session(self) -> list[int]:
        return sorted(session_members(self.driver().pid))

    def driver_process(self) -> list[int]:
        return [self.driver().pid]

    def jvm(self) -> list[int]:
        return [each.pid for each in self._children() if "org.apache.spark.deploy" in command_of(each)]

    def workers(self) -> list[int]:
        return [each.pid for each in self._children() if _name_of(each) == WORKER]

    def api(self) -> list[int]:
        return [self._own().pid]

    def postgres(self) -> list[int]:
        return [each.pid for each in self._database()]


def freeze(pids: Iterable[int], seconds: float) -> None:
    """Stop processes, and let them go on later, as far as there are any left."""
    stopped = list(pids)
    assert stopped
    try:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _name_of(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


PARTS: dict[str, Callable[[Freezable], list[int]]] = {
    "the driver's session": Freezable.driver_session,
    "the driver's Python process": Freezable.driver_process,
    "the JVM": Freezable.jvm,
    "the workers": Freezable.workers,
    "the API": Freezable.api,
    "Postgres": Freezable.postgres,
}


@pytest.mark.parametrize("seconds", [5.0, 30.0, LONGEST_S])
def test_results_are_exact_whatever_stood_still(seconds: float) -> None:
    def disturb(given: Disturbed) -> None:
        assert isinstance(given.running, Freezable)
        parts = list(PARTS) if seconds < LONGEST_S else ["the driver's session", "the JVM", "Postgres"]
        given.chance.shuffle(parts)
        for part in parts:
            # The moment is what is random here; nothing waits for it.
            time.sleep(given.chance.uniform(0, 5))
            freeze(PARTS[part](given.running), seconds)
            given.wait_until_read(f"{part} stood still for {seconds:.0f} s")

    is_audited_clean(disturb, kind=Freezable)
