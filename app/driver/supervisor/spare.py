"""A spare: the process of the next driver, which has imported everything and waits for the one before it to end.

Of what a driver needs until its queries run again, imports are more than a third. A spare has done them, and has started the process that
Spark's Python processes are forked from. It has no JVM, no connection and no lease; it costs memory alone, and ends with its supervisor.
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

from app.driver.supervisor.process_group import end_session
from app.driver.supervisor.spawning import Spawned, Spawning, open_log
from app.driver.supervisor.turn import GO, READY
from engine.processes.python_processes import CODE

# One that died by itself would do so again soon.
AGAIN_S = 300.0
# A spare has 250 MB; the host's last memory belongs to queries.
LEAST_FREE_BYTES = 1 << 30
KILL_PATIENCE_S = 5.0
log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Names:
    """Where a version of cgroups tells of memory; ``unused_files`` is a line of ``told``: what the kernel takes back first."""

    most: str
    used: str
    told: str
    unused_files: str


_CGROUPS = (
    _Names("memory.max", "memory.current", "memory.stat", "inactive_file"),
    _Names("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


@dataclass(frozen=True, slots=True)
class _WaitingSpare:
    """A spare that waits.

    Attributes:
        turn: our end of its standard input.
        code: what it has imported, see ``code_stamp``.
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
        spawning: how drivers are started.
        after_s: a driver has been ready for so long when its spare is started; None: there are no spares.
        code: the directory of the packages that a spare imports.
    """

    def __init__(self, spawning: Spawning, after_s: float | None, code: Path = CODE) -> None:
        self._spawning = spawning
        self._code = code
        self._after_s = after_s
        self._held: _WaitingSpare | None = None
        self._said_ready: int | None = None
        self._due_at: float | None = None

    @property
    def ready_pid(self) -> int | None:
        """Return the process that can take over now; None where there is none."""
        held = self._held
        is_ready = held is not None and held.spawned.process.returncode is None and held.is_ready
        return held.spawned.process.pid if held is not None and is_ready else None

    async def keep(self) -> None:
        """Start a spare where there is none and it is time for one. Call it again and again while there is a ready driver.

        What goes wrong concerns nobody else: it is logged, and there is no spare for a while.
        """
        if self._after_s is None:
            return
        try:
            await self._keep()
        except Exception as error:  # noqa: BLE001 - whoever calls would end a healthy driver for it
            log.warning("spare_not_started", error=_words(error))
            self._due_at = time.monotonic() + AGAIN_S

    async def _keep(self) -> None:
        now = time.monotonic()
        if self._due_at is None:
            self._due_at = now + (self._after_s or 0.0)
        if self._held is not None and (exit_code := self._held.spawned.process.returncode) is not None:
            log.warning("spare_lost", pid=self._held.spawned.process.pid, exit_code=exit_code)
            await self.end()
            self._said_ready = None
            self._due_at = now + AGAIN_S
        if self._held is not None and free_memory() < LEAST_FREE_BYTES // 2:
            log.info("spare_gives_memory_back", pid=self._held.spawned.process.pid)
            await self.end()
            self._said_ready = None
            self._due_at = now + AGAIN_S
        if self._held is None and now >= self._due_at and free_memory() >= LEAST_FREE_BYTES:
            await self._start()
        if self.ready_pid != self._said_ready:
            self._said_ready = self.ready_pid
            log.info("spare_ready", pid=self._said_ready)

    async def take(self) -> Spawned | None:
        """Let the spare be the driver, and return it; None where there is none that can. What cannot is ended. Raises nothing."""
        self._due_at = self._said_ready = None
        if self._held is None:
            return None
        held, process = self._held, self._held.spawned.process
        try:
            code = await asyncio.to_thread(code_stamp, self._code)
            refusal = (
                "ended" if process.returncode is not None
                else "other_code" if code != held.code
                else "not_ready" if not held.is_ready
                else None
            )  # fmt: skip
            if refusal is None:
                with open_log(self._spawning.log_path) as output:  # the one that it was started with may have been put aside
                    socket.send_fds(held.turn, [GO], [output.fileno()])
        except ConnectionError:
            refusal = "ended"
        except Exception as error:  # noqa: BLE001 - a driver starts without a spare, too
            refusal = _words(error)
        if refusal is not None:
            log.info("spare_not_taken", pid=process.pid, reason=refusal)
            try:
                await self.end()
            except Exception as error:  # noqa: BLE001 - it ends with its socket, which is closed
                log.warning("spare_not_ended", pid=process.pid, error=_words(error))
            return None
        held.turn.close()
        self._held = None
        return held.spawned

    async def end(self) -> None:
        """End the spare and whatever it has started."""
        held, self._held = self._held, None
        if held is None:
            return
        held.turn.close()
        if not await asyncio.to_thread(end_session, held.spawned.process.pid, KILL_PATIENCE_S):
            log.error("spare_cannot_be_killed", pid=held.spawned.process.pid)
            return
        await held.spawned.process.wait()

    async def _start(self) -> None:
        code = await asyncio.to_thread(code_stamp, self._code)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                spawned = await self._spawning.spawn(theirs.fileno())
            except BaseException:
                ours.close()
                raise
        self._held = _WaitingSpare(spawned, ours, code)
        log.info("spare_spawned", pid=spawned.process.pid)


def free_memory(container: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes of memory that nobody uses, of the host, or of the container where that has a bound.

    Args:
        container: where the kernel tells of it.
    """
    free = [psutil.virtual_memory().available]
    for names in _CGROUPS:
        with suppress(OSError, ValueError, KeyError):  # there is none, or it has no bound ("max")
            most, used = (int((container / name).read_text()) for name in (names.most, names.used))
            told = dict(line.split(maxsplit=1) for line in (container / names.told).read_text().splitlines())
            free.append(most - used + int(told[names.unused_files]))
    return min(free)


def code_stamp(code: Path) -> str:
    """Return what changes when the code, or a package that it uses, is installed again: a spare has imported what was there before."""
    told = sorted(_files(code)) + sorted(_packages())
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _files(code: Path) -> Iterator[str]:
    for package in ("app", "engine"):
        for path in (code / package).rglob("*.py"):
            with suppress(FileNotFoundError):  # an installation under way; what comes of it is seen the next time
                found = path.stat()
                yield f"{path} {found.st_size} {found.st_mtime_ns}"


def _packages() -> Iterator[str]:
    """Name what is installed: the names hold versions."""
    for place in sys.path:
        if place.endswith("-packages"):
            yield from (str(path) for path in Path(place).glob("*.dist-info"))


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
