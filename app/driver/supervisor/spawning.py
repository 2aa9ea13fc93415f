"""Starts the process of a driver, and opens its log file."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import UUID

import structlog

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
