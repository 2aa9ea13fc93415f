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

from app.driver.process_group import end_session
from app.driver.spawning import Spawned, Spawning, open_log
from app.driver.turn import GO, READY
from engine.python_processes import CODE

# One that died by itself would do so again soon.
AGAIN_S = 300.0
# A spare has 250 MB; the host's last memory belongs to queries.
LEAST_FREE_BYTES = 1 << 30
KILL_PATIENCE_S = 5.0
log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Held:
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
        self._held: _Held | None = None
        self._said_ready: int | None = None
        self._due_at: float | None = None

    @property
    def ready_pid(self) -> int | None:
        """Return the process that can take over now; None where there is none."""
        held = self._held
        is_ready = held is not None and held.spawned.process.returncode is None and held.is_ready
        return held.spawned.process.pid if held is not None and is_ready else None

    async def keep(self) -> None:
        """Start a spare where there is none and it is time for one. Call it again and again while there is a ready driver."""
        if self._after_s is None:
            return
        now = time.monotonic()
        if self._due_at is None:
            self._due_at = now + self._after_s
        if self._held is not None and (exit_code := self._held.spawned.process.returncode) is not None:
            log.warning("spare_lost", pid=self._held.spawned.process.pid, exit_code=exit_code)
            await self.end()
            self._said_ready = None
            self._due_at = now + AGAIN_S
        if self._held is None and now >= self._due_at:
            await self._start()
        if self.ready_pid != self._said_ready:
            self._said_ready = self.ready_pid
            log.info("spare_ready", pid=self._said_ready)

    async def take(self) -> Spawned | None:
        """Let the spare be the driver, and return it; None where there is none that can. What cannot is ended."""
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
        except OSError as error:  # a driver starts without a spare, too
            refusal = error.strerror or type(error).__name__
        if refusal is not None:
            log.info("spare_not_taken", pid=process.pid, reason=refusal)
            await self.end()
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
        """Start one where there is memory for it. What goes wrong concerns nobody else: there is none for a while."""
        ours: socket.socket | None = None
        try:
            if free_memory() < LEAST_FREE_BYTES:
                return
            code = await asyncio.to_thread(code_stamp, self._code)
            ours, theirs = socket.socketpair()
            with theirs:
                spawned = await self._spawning.spawn(theirs.fileno())
        except (OSError, psutil.Error) as error:
            if ours is not None:
                ours.close()
            log.warning("spare_not_started", error=getattr(error, "strerror", None) or type(error).__name__)
            self._due_at = time.monotonic() + AGAIN_S
            return
        self._held = _Held(spawned, ours, code)
        log.info("spare_spawned", pid=spawned.process.pid)


def free_memory(container: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes of memory that nobody uses, of the host, or of the container where that has a bound.

    Args:
        container: where the kernel tells of it (cgroup v2).
    """
    free = psutil.virtual_memory().available
    with suppress(OSError, ValueError, KeyError):  # there is none, or it has no bound ("max")
        most, used = (int((container / name).read_text()) for name in ("memory.max", "memory.current"))
        told = dict(line.split(maxsplit=1) for line in (container / "memory.stat").read_text().splitlines())
        free = min(free, most - used + int(told["inactive_file"]))
    return free


def code_stamp(code: Path) -> str:
    """Return what changes when the code, or a package that it uses, is installed anew: a spare has imported what was there before."""
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
