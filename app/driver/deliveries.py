"""The process that delivers results, kept by a driver for as long as there is something to deliver.

A process of its own: what a library of a target does there, hanging, crashing, holding the interpreter, concerns no query. It is in the
driver's session, so who makes an end of that ends it too.
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
"""What it waits for deliveries that are under way is half of that; its libraries are for itself alone, so nothing of it is imported here."""

LONGEST_PAUSE_S: Final = 30.0
HEALTHY_S: Final = 60.0
COMMAND: Final = tuple(python_command("app.driver.delivering"))
log = structlog.stdlib.get_logger(__name__)


class Delivering:
    """Starts the process, and starts it again when it has died.

    Args:
        driver_id: name of its leases.
        command: what to start.
    """

    def __init__(self, driver_id: UUID, command: tuple[str, ...] = COMMAND) -> None:
        self._driver_id, self._command = driver_id, command
        self._process: subprocess.Popen[bytes] | None = None
        self._look_at = 0.0
        self._pause_s = EVERY_S
        self._started_at = 0.0

    @property
    def pid(self) -> int | None:
        """Return the process that there is; None: there is none."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def keep(self, connection: psycopg.Connection[Any]) -> None:
        """See to it that there is a process where one is wanted. Call it again and again; it looks once a second at most."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + EVERY_S
        if self.pid is not None:
            return
        ended, self._process = self._process, None
        if ended is not None and ended.returncode != 0:
            # One that dies as soon as it begins is not started again and again.
            self._pause_s = EVERY_S if now - self._started_at > HEALTHY_S else min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._look_at = now + self._pause_s
            log.warning("delivering_lost", exit_code=ended.returncode, again_in_s=self._pause_s)
        elif is_any_free(connection):
            self._spawn(now)

    def ask_to_end(self) -> None:
        """Let the process end in order; returns at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def end(self) -> None:
        """Wait for its end, and end it by force where it does not come."""
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
