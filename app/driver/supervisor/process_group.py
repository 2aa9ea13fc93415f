"""A driver and all its child processes: starts them with a log file, sees them as the operating system shows them, ends them.

A driver leads its own session. It is gone only when the whole session is gone: the JVM outlives its Python parent by about two seconds, and
PySpark's worker daemons make their own process groups but stay in the session.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import UUID

import psutil
import structlog

# Tolerance of psutil's create time: it is computed from boot time and ticks, and the clock may change in between.
SAME_PROCESS_S = 2.0
POLL_S = 0.05


def create_time(pid: int) -> float | None:
    """Return the start time of a living process, in seconds since the epoch; None if it does not exist or is a zombie."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def is_same_process(pid: int, created_at: float) -> bool:
    """Whether a pid still belongs to the process that started at that time."""
    started_at = create_time(pid)
    return started_at is not None and abs(started_at - created_at) < SAME_PROCESS_S


def session_members(leader: int) -> list[int]:
    """Return the living processes of a session. Zombies use no resources; their parents must reap them."""
    members = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                members.append(pid)
    return members


def end_session(leader: int, patience_s: float) -> bool:
    """Kill all processes of a session, and wait until they are gone.

    Returns:
        Whether they are gone within ``patience_s``.
    """
    deadline = time.monotonic() + patience_s
    while members := session_members(leader):
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


MAX_LOG_BYTES = 64 * 1024 * 1024
log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Spawned:
    """The process of a driver."""

    id: UUID
    process: asyncio.subprocess.Process


@dataclass(frozen=True, slots=True)
class Spawning:
    """How every process of a driver is started.

    Attributes:
        command: accepts ``--driver-id``, ``--supervisor-pid`` and ``--spare``.
        environment: the complete environment of the process.
        log_path: its log file; no other user may read it.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    log_path: Path

    async def spawn(self, turn: int | None = None) -> Spawned:
        """Start a process that leads its own session.

        Args:
            turn: the descriptor of a spare's standard input; None: the process is the driver at once.

        Raises:
            OSError: it cannot be started.
        """
        driver_id = uuid.uuid4()
        spare = [] if turn is None else ["--spare"]
        with open_log(self.log_path) as output:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                "--driver-id",
                str(driver_id),
                "--supervisor-pid",
                str(os.getpid()),
                *spare,
                stdin=asyncio.subprocess.DEVNULL if turn is None else turn,
                stdout=output,
                stderr=output,
                env=dict(self.environment),
                start_new_session=True,
            )
        return Spawned(driver_id, process)

    def put_log_aside(self) -> None:
        """Rename a large log. If that fails, a driver starts all the same."""
        try:
            if self.log_path.exists() and self.log_path.stat().st_size > MAX_LOG_BYTES:
                self.log_path.replace(self.log_path.with_suffix(".log.1"))
        except OSError as error:
            log.warning("driver_log_not_put_aside", error=error.strerror or type(error).__name__)


def open_log(path: Path) -> IO[bytes]:
    """Open the log file of drivers, readable only by its owner."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    return path.open("ab")
