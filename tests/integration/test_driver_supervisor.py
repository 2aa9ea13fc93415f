"""The supervisor and real driver processes: whatever is killed, one driver is there again and the queries go on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.driver.supervisor.process_group import session_members
from app.driver.supervisor.supervisor import Supervisor, environment_of
from app.settings.effective_settings import load_settings
from tests.integration.driver_tools import STUB, Control, fast_settings, stays, until

# A service that does nothing but supervise, to be killed.
SERVICE = """
import asyncio, sys
from app.driver.supervisor.supervisor import Supervisor
from app.settings.effective_settings import load_settings

async def serve():
    async with Supervisor(load_settings(), sys.argv[1], sys.argv[2:]):
        print("serving", flush=True)
        await asyncio.Event().wait()

asyncio.run(serve())
"""


@pytest.fixture
def control(dsn: str) -> Iterator[Control]:
    control = Control(dsn)
    yield control
    control.close()


async def ready(control: Control, *, other_than: object = None) -> dict[str, Any]:
    """Wait for a driver that is ready, without blocking the supervisor's loop."""

    def found() -> dict[str, Any] | None:
        return next((row for row in control.drivers() if row["phase"] == "ready" and row["id"] != other_than), None)

    return await asyncio.to_thread(until, "a driver is ready", found)  # type: ignore[return-value]


async def test_a_killed_driver_is_replaced_at_once_and_its_queries_come_back(dsn: str, tmp_path: Path, control: Control) -> None:
    # A lease that outlives the test: only the supervisor's word that the driver is gone can free the queries in time.
    settings = fast_settings(tmp_path, lease_ttl_ms=600_000)
    query = control.add()
    async with Supervisor(settings, dsn, STUB):
        first = await ready(control)
        await asyncio.to_thread(control.reaches, query, "running")
        os.kill(first["pid"], signal.SIGKILL)
        second = await ready(control, other_than=first["id"])
        status = await asyncio.to_thread(control.reaches, query, "running", epoch=2)
        assert status["lease_owner"] == second["id"]
        assert [row["id"] for row in control.drivers()] == [second["id"]]


async def test_leaving_the_supervisor_stops_the_driver_in_order(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add()
    async with Supervisor(fast_settings(tmp_path), dsn, STUB):
        row = await ready(control)
        await asyncio.to_thread(control.reaches, query, "running")
    assert session_members(row["pid"]) == []
    status = control.status(query)
    assert (status["state"], status["outcome"], status["lease_owner"]) == ("stopping", "restart", None)
    assert control.drivers() == []
    assert b"driver_ended" in (tmp_path / "driver.log").read_bytes()


async def test_a_driver_that_falls_silent_is_killed_and_replaced(dsn: str, tmp_path: Path, control: Control) -> None:
    async with Supervisor(fast_settings(tmp_path, lease_ttl_ms=500), dsn, STUB):
        first = await ready(control)
        os.kill(first["pid"], signal.SIGSTOP)
        await ready(control, other_than=first["id"])
        assert session_members(first["pid"]) == []


async def test_a_clock_of_the_database_that_is_set_ahead_ends_no_driver(dsn: str, tmp_path: Path, control: Control) -> None:
    async with Supervisor(fast_settings(tmp_path, heartbeat_ms=1_000), dsn, STUB):
        first = await ready(control)
        control.execute("UPDATE slackwater.driver SET heartbeat_at = heartbeat_at - interval '1 hour'")
        assert await asyncio.to_thread(stays, lambda: [row["id"] for row in control.drivers()] == [first["id"]], 3.5)


async def test_drivers_that_die_of_their_start_are_told(dsn: str, tmp_path: Path) -> None:
    async with Supervisor(fast_settings(tmp_path), dsn, (sys.executable, "-c", "raise SystemExit(3)")) as supervisor:
        assert supervisor.trouble() is None
        trouble = await asyncio.to_thread(until, "the supervisor tells", supervisor.trouble)
        assert "exit code 3" in str(trouble)


async def test_a_ready_driver_is_no_trouble(dsn: str, tmp_path: Path, control: Control) -> None:
    async with Supervisor(fast_settings(tmp_path), dsn, STUB) as supervisor:
        await ready(control)
        assert supervisor.trouble() is None


async def test_a_supervisor_says_when_its_own_driver_takes_queries(dsn: str, tmp_path: Path, control: Control) -> None:
    supervisor = Supervisor(fast_settings(tmp_path), dsn, STUB)
    assert not supervisor.is_ready, "it has not begun"
    async with supervisor:
        assert not supervisor.is_ready, "its driver starts"
        await asyncio.to_thread(until, "the driver takes queries", lambda: supervisor.is_ready)
        assert [row["phase"] for row in control.drivers()] == ["ready"]
    assert not supervisor.is_ready, "it has ended"


async def test_nobody_else_reads_what_a_driver_writes(dsn: str, tmp_path: Path, control: Control) -> None:
    async with Supervisor(fast_settings(tmp_path), dsn, STUB):
        first = await ready(control)
        assert "Umask:\t0077" in Path(f"/proc/{first['pid']}/status").read_text()
        assert (tmp_path / "driver.log").stat().st_mode & 0o777 == 0o600


async def test_whatever_a_driver_started_goes_with_it(dsn: str, tmp_path: Path, control: Control) -> None:
    # As the JVM does, the child outlives the driver; as PySpark's workers do, it has a process group of its own.
    note_pids = "open(sys.argv[1], 'a').write(f'{os.getppid()} {os.getpid()}\\n')"
    child = f"import os, signal, sys; os.setpgid(0, 0); {note_pids}; signal.pause()"
    leader = f"import signal, subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}, sys.argv[1]]); signal.pause()"
    note = tmp_path / "children"

    def lines(number: int) -> list[str]:
        written = note.read_text().splitlines() if note.exists() else []
        return written if len(written) >= number else []

    async with Supervisor(fast_settings(tmp_path), dsn, (sys.executable, "-c", leader, str(note))):
        (first,) = await asyncio.to_thread(until, "the first child", lambda: lines(1))
        driver_pid, child_pid = map(int, first.split())
        assert child_pid in session_members(driver_pid)
        os.kill(driver_pid, signal.SIGKILL)
        # The next driver is started when nothing is left of the one before.
        await asyncio.to_thread(until, "the second child", lambda: lines(2))
        assert session_members(driver_pid) == []


def service(dsn: str, settings_dir: Path, **driver: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **environment_of(fast_settings(settings_dir, lease_ttl_ms=600_000, **driver))}
    process = subprocess.Popen([sys.executable, "-c", SERVICE, dsn, *STUB], env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"serving\n"
    return process


def ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_an_orphan_ends_by_itself_and_hands_over(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add()
    process = service(dsn, tmp_path)
    control.reaches(query, "running")
    (row,) = control.drivers()
    ended(process)
    until("the orphan is gone", lambda: session_members(row["pid"]) == [])
    assert control.status(query)["lease_owner"] is None
    assert control.drivers() == []


def test_a_new_service_ends_an_orphan_that_cannot_end_itself_before_it_starts_its_own(
    dsn: str, tmp_path: Path, control: Control
) -> None:
    query = control.add()
    first = service(dsn, tmp_path)
    control.reaches(query, "running")
    (orphan,) = control.drivers()
    os.kill(orphan["pid"], signal.SIGSTOP)
    ended(first)
    second = service(dsn, tmp_path)
    status = control.reaches(query, "running", epoch=2)
    assert session_members(orphan["pid"]) == []
    assert status["lease_owner"] not in (None, orphan["id"])
    (row,) = control.drivers()
    ended(second)
    until("the second driver is gone", lambda: session_members(row["pid"]) == [])


async def test_the_driver_of_another_living_service_is_left_alone(dsn: str, tmp_path: Path, control: Control) -> None:
    other = service(dsn, tmp_path)
    row = await ready(control)
    async with Supervisor(fast_settings(tmp_path), dsn, STUB):
        await ready(control, other_than=row["id"])
        assert stays(lambda: session_members(row["pid"]) != [], 0.2)
    ended(other)
    until("the other driver is gone", lambda: session_members(row["pid"]) == [])


def test_a_driver_is_told_the_same_settings(tmp_path: Path) -> None:
    settings = fast_settings(tmp_path, max_attempts=7)
    environment = environment_of(settings)
    assert "SLACKWATER_DATABASE_URL" not in environment
    assert environment["SLACKWATER_DRIVER__MAX_ATTEMPTS"] == "7"
    assert load_settings({**environment}) is not None
