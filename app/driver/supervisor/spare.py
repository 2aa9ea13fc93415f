"""A spare: the process of the next driver, which has imported everything and waits until the present driver ends.

Imports take more than a third of the time until a new driver runs its queries. A spare has done them, and has started the process that Spark's
Python processes are forked from. It has no JVM, no connection and no lease. It uses only memory, and ends with its supervisor.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import structlog

from app.driver.supervisor.process_group import Spawned, Spawning, end_session, open_log
from app.driver.supervisor.turn import GO, READY
from engine.processes.python_processes import CODE

# A spare that died by itself would probably die again soon.
AGAIN_S = 300.0
# A spare uses 250 MB; the last memory of the host is for queries.
LEAST_FREE_BYTES = 1 << 30
KILL_PATIENCE_S = 5.0
log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of a cgroup version's memory files; ``unused_files`` is a line of ``statistics``: memory that the kernel frees first."""

    most: str
    used: str
    statistics: str
    unused_files: str


_CGROUPS = (
    _Names("memory.max", "memory.current", "memory.stat", "inactive_file"),
    _Names("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


@dataclass(frozen=True, slots=True)
class _WaitingSpare:
    """A waiting spare.

    Attributes:
        turn: the supervisor's end of the spare's standard input.
        code: stamp of its imports, see ``code_stamp``.
    """

    spawned: Spawned
    turn: socket.socket
    code: str

    @property
    def is_ready(self) -> bool:
        try:
            return self.turn.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == READY
        except (BlockingIOError, ConnectionError):
            return False


class Spares:
    """Keeps at most one spare for a supervisor.

    Args:
        spawning: starts drivers.
        after_s: a spare starts when a driver has been ready for this time; None: no spares.
        code: directory of the packages that a spare imports.
    """

    def __init__(self, spawning: Spawning, after_s: float | None, code: Path = CODE) -> None:
        self._spawning = spawning
        self._code = code
        self._after_s = after_s
        self._spare: _WaitingSpare | None = None
        self._logged_ready_pid: int | None = None
        self._due_at: float | None = None

    @property
    def ready_pid(self) -> int | None:
        """Return the pid of a spare that can become the driver now; None if there is none."""
        spare = self._spare
        is_ready = spare is not None and spare.spawned.process.returncode is None and spare.is_ready
        return spare.spawned.process.pid if spare is not None and is_ready else None

    async def keep(self) -> None:
        """Start a spare if there is none and it is time. Call this again and again while a driver is ready.

        Errors affect nothing else: they are logged, and there is no spare for a while.
        """
        if self._after_s is None:
            return
        try:
            await self._keep()
        except Exception as error:  # noqa: BLE001 - the caller would end a healthy driver
            log.warning("spare_not_started", error=_words(error))
            self._due_at = time.monotonic() + AGAIN_S

    async def _keep(self) -> None:
        now = time.monotonic()
        if self._due_at is None:
            self._due_at = now + (self._after_s or 0.0)
        if self._spare is not None and (exit_code := self._spare.spawned.process.returncode) is not None:
            log.warning("spare_lost", pid=self._spare.spawned.process.pid, exit_code=exit_code)
            await self.end()
            self._logged_ready_pid = None
            self._due_at = now + AGAIN_S
        if self._spare is not None and free_memory() < LEAST_FREE_BYTES // 2:
            log.info("spare_gives_memory_back", pid=self._spare.spawned.process.pid)
            await self.end()
            self._logged_ready_pid = None
            self._due_at = now + AGAIN_S
        if self._spare is None and now >= self._due_at and free_memory() >= LEAST_FREE_BYTES:
            await self._start()
        if self.ready_pid != self._logged_ready_pid:
            self._logged_ready_pid = self.ready_pid
            log.info("spare_ready", pid=self._logged_ready_pid)

    async def take(self) -> Spawned | None:
        """Make the spare the driver, and return it; None if it is unusable, and then end it. Raises nothing."""
        self._due_at = self._logged_ready_pid = None
        if self._spare is None:
            return None
        spare, process = self._spare, self._spare.spawned.process
        try:
            code = await asyncio.to_thread(code_stamp, self._code)
            refusal = (
                "ended" if process.returncode is not None
                else "other_code" if code != spare.code
                else "not_ready" if not spare.is_ready
                else None
            )  # fmt: skip
            if refusal is None:
                with open_log(self._spawning.log_path) as output:  # the log from its start may have been renamed
                    socket.send_fds(spare.turn, [GO], [output.fileno()])
        except ConnectionError:
            refusal = "ended"
        except Exception as error:  # noqa: BLE001 - a driver can start without a spare
            refusal = _words(error)
        if refusal is not None:
            log.info("spare_not_taken", pid=process.pid, reason=refusal)
            try:
                await self.end()
            except Exception as error:  # noqa: BLE001 - the spare ends when its socket is closed
                log.warning("spare_not_ended", pid=process.pid, error=_words(error))
            return None
        spare.turn.close()
        self._spare = None
        return spare.spawned

    async def end(self) -> None:
        """End the spare and all its child processes."""
        spare, self._spare = self._spare, None
        if spare is None:
            return
        spare.turn.close()
        if not await asyncio.to_thread(end_session, spare.spawned.process.pid, KILL_PATIENCE_S):
            log.error("spare_cannot_be_killed", pid=spare.spawned.process.pid)
            return
        await spare.spawned.process.wait()

    async def _start(self) -> None:
        code = await asyncio.to_thread(code_stamp, self._code)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                spawned = await self._spawning.spawn(theirs.fileno())
            except BaseException:
                ours.close()
                raise
        self._spare = _WaitingSpare(spawned, ours, code)
        log.info("spare_spawned", pid=spawned.process.pid)


def free_memory(container: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes of free memory of the host, or of the container if that has a limit."""
    free = [psutil.virtual_memory().available]
    for names in _CGROUPS:
        with suppress(OSError, ValueError, KeyError):  # there is no cgroup, or it has no limit ("max")
            most, used = (int((container / name).read_text()) for name in (names.most, names.used))
            statistics = dict(line.split(maxsplit=1) for line in (container / names.statistics).read_text().splitlines())
            free.append(most - used + int(statistics[names.unused_files]))
    return min(free)


def code_stamp(code: Path) -> str:
    """Return a digest that changes when the code, or a package that it uses, is installed again: a spare has the old code."""
    lines = sorted(_files(code)) + sorted(_packages())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _files(code: Path) -> Iterator[str]:
    for package in ("app", "engine"):
        for path in (code / package).rglob("*.py"):
            with suppress(FileNotFoundError):  # an installation is running; the next check sees its result
                status = path.stat()
                yield f"{path} {status.st_size} {status.st_mtime_ns}"


def _packages() -> Iterator[str]:
    """Yield the names of the installed packages, which contain versions."""
    for place in sys.path:
        if place.endswith("-packages"):
            yield from (str(path) for path in Path(place).glob("*.dist-info"))


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
