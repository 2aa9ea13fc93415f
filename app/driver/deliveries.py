"""Starts and monitors the process that delivers results, while there is something to deliver.

Deliveries have a separate process, because a target's library may hang, crash or hold the interpreter, and no query must suffer. The process
is in the driver's session, so it ends with it.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any, Final
from uuid import UUID

import psycopg
import structlog

from app.catalog.deliveries.sql import is_any_free
from engine.processes.python_processes import import_environment, python_command

EVERY_S: Final = 1.0
END_S: Final = 10.0
"""The process waits half of this for running deliveries. This module does not import that value: the process has its own libraries."""

LONGEST_PAUSE_S: Final = 30.0
HEALTHY_S: Final = 60.0
COMMAND: Final = tuple(python_command("app.driver.delivering"))
log = structlog.stdlib.get_logger(__name__)


class Delivering:
    """Starts the process, and restarts it when it has died."""

    def __init__(self, driver_id: UUID, command: tuple[str, ...] = COMMAND) -> None:
        self._driver_id, self._command = driver_id, command
        self._process: subprocess.Popen[bytes] | None = None
        self._next_check_at = 0.0
        self._pause_s = EVERY_S
        self._started_at = 0.0

    @property
    def pid(self) -> int | None:
        """Return the pid of the running process; None if there is none."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def keep(self, connection: psycopg.Connection[Any]) -> None:
        """Start the process if there is a delivery to do. Call this again and again; it checks at most once a second."""
        now = time.monotonic()
        if now < self._next_check_at:
            return
        self._next_check_at = now + EVERY_S
        if self.pid is not None:
            return
        ended, self._process = self._process, None
        if ended is not None and ended.returncode != 0:
            # A process that dies soon after its start is restarted less and less often.
            self._pause_s = EVERY_S if now - self._started_at > HEALTHY_S else min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._next_check_at = now + self._pause_s
            log.warning("delivering_lost", exit_code=ended.returncode, again_in_s=self._pause_s)
        elif is_any_free(connection):
            self._spawn(now)

    def ask_to_end(self) -> None:
        """Ask the process to stop; returns at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def end(self) -> None:
        """Wait until the process has stopped, and kill it after ``END_S``."""
        self.ask_to_end()
        if self._process is None:
            return
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _spawn(self, now: float) -> None:
        arguments = ["--owner", str(self._driver_id), "--parent-pid", str(os.getpid())]
        try:
            self._process = subprocess.Popen([*self._command, *arguments], stdin=subprocess.DEVNULL, env=import_environment())
        except OSError as error:
            log.warning("delivering_not_started", error=error.strerror or type(error).__name__)
            return
        self._started_at = now
        log.info("delivering_spawned", pid=self._process.pid)
