"""A driver's spare: it takes over when the driver is gone, and where it cannot a driver is started as always."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from app.driver.supervisor.process_group import MAX_LOG_BYTES, Spawning, session_members
from app.driver.supervisor.spare import LEAST_FREE_BYTES, Spares, free_memory
from app.driver.supervisor.supervisor import Supervisor
from app.testing.machines.service import command_of
from engine.processes.python_processes import CODE
from tests.integration.driver_tools import STUB, Control, fast_settings, until
from tests.integration.test_driver_supervisor import ended, ready, service

SPARE = {"spare": True, "spare_after_ms": 0}
WAITING = (sys.executable, "-c", "from app.driver.supervisor.turn import await_turn; print(await_turn(), flush=True); input()")


@pytest.fixture
def control(dsn: str) -> Iterator[Control]:
    control = Control(dsn)
    yield control
    control.close()


async def spare_of(supervisor: Supervisor | Spares, *, other_than: int | None = None) -> int:
    def found() -> int | None:
        pid = supervisor.spare_pid if isinstance(supervisor, Supervisor) else supervisor.ready_pid
        return pid if pid != other_than else None

    return int(await asyncio.to_thread(until, "a spare is ready", found) or 0)


@asynccontextmanager
async def spares(
    tmp_path: Path, command: tuple[str, ...] = WAITING, after_s: float | None = 0.0, code: Path = CODE
) -> AsyncIterator[Spares]:
    found = Spares(Spawning(command, dict(os.environ), tmp_path / "driver.log"), after_s, code)
    try:
        yield found
    finally:
        await found.end()


async def test_the_spare_is_the_next_driver_and_has_a_spare_itself(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add()
    async with Supervisor(fast_settings(tmp_path, **SPARE), dsn, STUB) as supervisor:
        first = await ready(control)
        pid = await spare_of(supervisor)
        os.kill(first["pid"], signal.SIGKILL)
        second = await ready(control, other_than=first["id"])
        assert second["pid"] == pid
        assert session_members(first["pid"]) == []
        await asyncio.to_thread(control.reaches, query, "running", epoch=2)
        assert await spare_of(supervisor, other_than=pid) != pid
    assert session_members(pid) == []
    assert control.drivers() == []


async def test_a_spare_holds_no_connection_and_is_no_driver_yet(dsn: str, tmp_path: Path, control: Control) -> None:
    async with Supervisor(fast_settings(tmp_path, **SPARE), dsn, STUB) as supervisor:
        first = await ready(control)
        pid = await spare_of(supervisor)
        assert [row["pid"] for row in control.drivers()] == [first["pid"]]
        assert [
            each for each in psutil.Process(pid).net_connections("all") if each.raddr and each.type != 0 and each.fd > 2
        ] == []


async def test_a_spare_that_was_killed_is_not_waited_for(dsn: str, tmp_path: Path, control: Control) -> None:
    async with Supervisor(fast_settings(tmp_path, **SPARE), dsn, STUB) as supervisor:
        first = await ready(control)
        pid = await spare_of(supervisor)
        os.kill(pid, signal.SIGKILL)
        os.kill(first["pid"], signal.SIGKILL)
        second = await ready(control, other_than=first["id"])
        assert second["pid"] != pid


async def test_stopping_a_service_ends_its_spare(dsn: str, tmp_path: Path, control: Control) -> None:
    async with Supervisor(fast_settings(tmp_path, **SPARE), dsn, STUB) as supervisor:
        await ready(control)
        pid = await spare_of(supervisor)
    assert session_members(pid) == []


def test_a_spare_ends_with_a_service_that_was_killed(dsn: str, tmp_path: Path, control: Control) -> None:
    process = service(dsn, tmp_path, **SPARE)

    def found() -> list[int]:
        return [each.pid for each in psutil.Process(process.pid).children() if "--spare" in command_of(each)]

    (pid,) = until("there is a spare", found)
    ended(process)
    until("the spare is gone", lambda: session_members(pid) == [])
    until("the driver is gone", lambda: control.drivers() == [])


async def test_a_spare_that_has_imported_other_code_is_not_taken(tmp_path: Path) -> None:
    package = tmp_path / "code" / "app"
    package.mkdir(parents=True)
    (package / "one.py").write_text("A = 1")
    async with spares(tmp_path, code=package.parent) as held:
        await held.keep()
        pid = await spare_of(held)
        (package / "one.py").write_text("A = 12")
        with capture_logs() as logs:
            assert await held.take() is None
        assert [entry["reason"] for entry in logs] == ["other_code"]
        assert session_members(pid) == []


async def test_a_spare_that_still_imports_is_not_waited_for(tmp_path: Path) -> None:
    async with spares(tmp_path, (sys.executable, "-c", "import signal; signal.pause()")) as held:
        await held.keep()
        with capture_logs() as logs:
            assert await held.take() is None
        assert [entry["reason"] for entry in logs] == ["not_ready"]


async def test_a_spare_that_ends_by_itself_is_not_started_again_and_again(tmp_path: Path) -> None:
    async with spares(tmp_path, (sys.executable, "-c", "raise SystemExit(3)")) as held:
        with capture_logs() as logs:
            while not any(entry["event"] == "spare_lost" for entry in logs):
                await held.keep()
                await asyncio.sleep(0.01)
            await held.keep()
        assert [entry["event"] for entry in logs] == ["spare_spawned", "spare_lost"]


async def test_there_is_no_spare_before_its_time_or_where_none_is_wanted(tmp_path: Path) -> None:
    for after_s in (None, 60.0):
        async with spares(tmp_path, after_s=after_s) as held:
            await held.keep()
            assert await held.take() is None
    assert not (tmp_path / "driver.log").exists()


async def test_a_spare_writes_into_the_log_that_was_put_aside_meanwhile(tmp_path: Path) -> None:
    async with spares(tmp_path) as held:
        await held.keep()
        await spare_of(held)
        path = tmp_path / "driver.log"
        with path.open("ab") as output:
            output.truncate(MAX_LOG_BYTES + 1)
        Spawning(WAITING, {}, path).put_log_aside()
        taken = await held.take()
        assert taken is not None
        await taken.process.wait()
        assert path.read_text().startswith("True")
        assert (tmp_path / "driver.log.1").stat().st_size == MAX_LOG_BYTES + 1


@pytest.mark.parametrize("what", ["socket.socketpair", "code_stamp", "free_memory"])
@pytest.mark.parametrize(
    ("error", "words"), [(OSError(24, "Too many open files"), "Too many open files"), (ValueError("odd"), "ValueError")]
)
async def test_what_goes_wrong_with_a_spare_concerns_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, error: Exception, words: str
) -> None:
    def none_left(*_given: object) -> None:
        raise error

    monkeypatch.setattr(f"app.driver.supervisor.spare.{what}", none_left)
    async with spares(tmp_path) as held:
        with capture_logs() as logs:
            await held.keep()
            await held.keep()
            assert await held.take() is None
        assert [(entry["event"], entry["error"]) for entry in logs] == [("spare_not_started", words)]


@pytest.mark.parametrize("what", ["code_stamp", "end_session"])
@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file or directory"), psutil.Error()])
async def test_a_spare_that_cannot_be_looked_at_or_ended_keeps_no_driver_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, error: Exception
) -> None:
    def gone(*_given: object) -> str:
        raise error

    async with spares(tmp_path) as held:
        await held.keep()
        await spare_of(held)
        with monkeypatch.context() as patched:
            patched.setattr(f"app.driver.supervisor.spare.{what}", gone)
            patched.setattr("app.driver.supervisor.spare._packages", lambda: ["another one"])
            assert await held.take() is None


async def test_a_spare_gives_its_memory_back_where_there_is_little_left_and_is_not_started_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with spares(tmp_path) as held:
        await held.keep()
        pid = await spare_of(held)
        monkeypatch.setattr("app.driver.supervisor.spare.free_memory", lambda: LEAST_FREE_BYTES // 2)
        await held.keep()
        assert held.ready_pid == pid
        monkeypatch.setattr("app.driver.supervisor.spare.free_memory", lambda: LEAST_FREE_BYTES // 2 - 1)
        await held.keep()
        assert session_members(pid) == []
        monkeypatch.setattr("app.driver.supervisor.spare.free_memory", lambda: LEAST_FREE_BYTES)
        with capture_logs() as logs:
            await held.keep()
        assert logs == []


def test_a_log_that_cannot_be_put_aside_keeps_no_driver_from_starting(tmp_path: Path) -> None:
    path = tmp_path / "driver.log"
    with path.open("ab") as output:
        output.truncate(MAX_LOG_BYTES + 1)
    (tmp_path / "driver.log.1").mkdir()
    with capture_logs() as logs:
        Spawning(WAITING, {}, path).put_log_aside()
    assert [entry["event"] for entry in logs] == ["driver_log_not_put_aside"]


def test_memory_that_a_container_may_not_have_is_not_free(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("2500000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 100000\n")
    assert free_memory(tmp_path) == 600_000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(tmp_path) > 1 << 20


def test_a_container_of_the_first_version_of_cgroups_has_a_bound_too(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("3000000\n")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text("2500000\n")
    (tmp_path / "memory" / "memory.stat").write_text("inactive_file 7\ntotal_inactive_file 100000\n")
    assert free_memory(tmp_path) == 600_000
