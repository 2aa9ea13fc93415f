"""Keeps one driver process alive as long as the service lives.

The supervisor deals only with processes. It starts the driver in its own session, checks its heartbeat, kills the rest of its session when it
died or sends no heartbeat, releases its leases, and starts the next one, a spare (``app.driver.supervisor.spare``) if there is one. Orphans
of a killed service end by themselves when they notice; a faster supervisor ends them first.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg
import structlog
from pydantic import BaseModel, SecretStr

from app.catalog.drivers import sql as drivers
from app.catalog.drivers.sql import DriverRow
from app.driver.database import LOOK_EVERY_S, schema_problem
from app.driver.process import CLOSE_S
from app.driver.supervisor.health import FIRST_RESTART_S, DriverHealth
from app.driver.supervisor.process_group import Spawning, create_time, end_session, is_same_process
from app.driver.supervisor.spare import Spares
from app.settings.settings import ENV_PREFIX, NESTING, Settings
from engine.postgres.postgres import DATABASE_AWAY, connect
from engine.processes.python_processes import ALLOCATOR, import_environment, python_command

DRIVER_COMMAND = tuple(python_command("app.driver"))
# A driver without a heartbeat for two lifetimes of a lease has lost its queries anyway.
LOST_AFTER_LEASES = 2
# Checks in a row without a heartbeat, one heartbeat interval apart.
SILENT_LOOKS = 3
# Imports before the first heartbeat take 2 s. On a machine with twelve busy processes per core they took 40 s, and the next driver would be
# as slow.
FIRST_HEARTBEAT_S = 120.0
# A killed process is gone within milliseconds, its JVM within about two seconds.
KILL_PATIENCE_S = 15.0
T = TypeVar("T")
log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Driver:
    """A started driver."""

    id: UUID
    process: asyncio.subprocess.Process
    started_at: float


class Supervisor:
    """Starts, watches and restarts one driver; an async context manager.

    Args:
        settings: passed to the driver as environment variables.
        dsn: of the database; replaces ``settings.database_url``.
        command: to start; see ``Spawning``.
    """

    def __init__(self, settings: Settings, dsn: str, command: Sequence[str] = DRIVER_COMMAND) -> None:
        self._settings = settings
        self._dsn = dsn
        environment = {**import_environment(), **ALLOCATOR, **environment_of(settings), f"{ENV_PREFIX}DATABASE_URL": dsn}
        self._spawning = Spawning(tuple(command), environment, settings.data_dir / "driver.log")
        self._spares = Spares(self._spawning, settings.driver.spare_after_ms / 1000 if settings.driver.spare else None)
        self._ending = asyncio.Event()
        self._health = DriverHealth(unready_since=None)
        self._task: asyncio.Task[None] | None = None

    def trouble(self) -> str | None:
        """Return why this supervisor has no ready driver; None if it has one, or if one may still start."""
        return self._health.trouble(time.monotonic())

    @property
    def is_ready(self) -> bool:
        return self._task is not None and not self._ending.is_set() and self._health.unready_since is None

    @property
    def spare_pid(self) -> int | None:
        """Return the pid of the spare that becomes the driver next; None if there is none."""
        return self._spares.ready_pid

    async def start(self) -> None:
        """Start to supervise; returns at once."""
        self._health = DriverHealth(unready_since=time.monotonic())
        self._task = asyncio.create_task(self._supervise(), name="driver-supervisor")

    async def stop(self) -> None:
        """Stop the driver in order, or after its timeout by force, and return when none of its processes is left."""
        self._ending.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def _supervise(self) -> None:
        try:
            while not self._ending.is_set():
                await self._wait(await self._supervise_one())
        finally:
            await asyncio.shield(self._spares.end())

    async def _supervise_one(self) -> float:
        """Start a driver and supervise it to its end. Returns the seconds to wait before the next one."""
        try:
            if await self._schema_fits():
                await self._end_orphans()
                await self._keep_one()
        except psycopg.Error as error:
            log.warning("supervision_failed", error=str(error))
            return max(FIRST_RESTART_S, self._health.pause_s)
        except OSError as error:
            self._health.did_not_start(error.strerror or type(error).__name__)
            log.warning("supervision_failed", error=str(error))
        return self._health.pause_s

    async def _schema_fits(self) -> bool:
        """Wait until a driver of this version can use the schema; False if the supervisor stops before that."""
        while not self._ending.is_set():
            problem = await asyncio.to_thread(schema_problem, self._dsn)
            if problem != self._health.waits_for and problem is not None:
                log.warning("driver_waits_for_schema", detail=problem)
            self._health.waits_for = problem
            if problem is None:
                return True
            await self._wait(LOOK_EVERY_S)
        return False

    async def _keep_one(self) -> None:
        """Start a driver and supervise it to its end."""
        driver = await self._spawn()
        try:
            await self._until_it_ends(driver)
        finally:
            # Also when cancelled: a driver must not outlive its supervisor.
            is_gone = await asyncio.shield(self._finish(driver))
        lived_s = time.monotonic() - driver.started_at
        ended = {
            "exit_code": driver.process.returncode,
            "lived_s": round(lived_s, 1),
            "is_gone": is_gone,
            "log": str(self._spawning.log_path),
        }
        if self._ending.is_set():
            log.info("driver_stopped", driver_id=str(driver.id), **ended)
        else:
            self._health.ended(driver.process.returncode, lived_s, time.monotonic())
            log.warning("driver_lost", driver_id=str(driver.id), **ended)

    async def _spawn(self) -> _Driver:
        await asyncio.to_thread(self._spawning.put_log_aside)
        spare = await self._spares.take()
        spawned = spare or await self._spawning.spawn()
        log.info("driver_spawned", driver_id=str(spawned.id), pid=spawned.process.pid, was_spare=spare is not None)
        return _Driver(spawned.id, spawned.process, time.monotonic())

    async def _until_it_ends(self, driver: _Driver) -> None:
        """Return when the driver ended, was asked to stop, or sends no heartbeat."""
        ended = asyncio.ensure_future(driver.process.wait())
        ending = asyncio.ensure_future(self._ending.wait())
        silent_looks = 0
        try:
            while not ended.done() and not ending.done():
                await asyncio.wait(
                    (ended, ending), timeout=self._settings.driver.heartbeat_ms / 1000, return_when=asyncio.FIRST_COMPLETED
                )
                silent_looks = silent_looks + 1 if not ended.done() and await self._is_silent(driver) else 0
                # In three checks a living driver sends a heartbeat, so a database clock that was set forward kills no driver.
                if silent_looks == SILENT_LOOKS:
                    log.error("driver_silent", driver_id=str(driver.id), pid=driver.process.pid)
                    return
                if self._health.unready_since is None:
                    await self._spares.keep()
            if not ended.done():
                await self._terminate(driver, ended)
        finally:
            ended.cancel()
            ending.cancel()

    async def _terminate(self, driver: _Driver, ended: asyncio.Future[int]) -> None:
        """Signal only the driver process: its JVM must live until the queries have stopped."""
        with suppress(ProcessLookupError):
            driver.process.send_signal(signal.SIGTERM)
        await asyncio.wait((ended,), timeout=self._settings.driver.stop_timeout_ms / 1000 + 2 * CLOSE_S)

    async def _is_silent(self, driver: _Driver) -> bool:
        """Whether the heartbeat is missing for too long. An unreachable database says nothing about the driver."""
        try:
            row = await self._ask(lambda connection: drivers.find_driver(connection, driver.id))
        except DATABASE_AWAY:
            return False
        lost_after_s = LOST_AFTER_LEASES * self._settings.driver.lease_ttl_ms / 1000
        if row is not None and row.phase == "ready":
            self._health.saw_ready(time.monotonic() - driver.started_at)
        if row is not None:
            return row.heartbeat_age_s > lost_after_s
        return time.monotonic() - driver.started_at > max(lost_after_s, FIRST_HEARTBEAT_S)

    async def _finish(self, driver: _Driver) -> bool:
        """End a driver's session, then release its leases. Returns whether all its processes are gone."""
        is_gone = await asyncio.to_thread(end_session, driver.process.pid, KILL_PATIENCE_S)
        await driver.process.wait()
        if is_gone:
            await self._forget(driver.id)
        else:
            log.error("driver_cannot_be_killed", driver_id=str(driver.id), pid=driver.process.pid)
        return is_gone

    async def _end_orphans(self) -> None:
        """End the drivers on this machine whose supervisors have exited."""
        host = socket.gethostname()
        for row in await self._ask(lambda connection: drivers.drivers_on(connection, host)):
            if not _is_supervised(row):
                await self._end_orphan(row)

    async def _end_orphan(self, row: DriverRow) -> None:
        started_at = create_time(row.pid)
        if started_at is not None and not is_same_process(row.pid, row.create_time):
            # Another process has the pid now, so the session is gone: the pid of a session's leader is not reused before that.
            await self._forget(row.id)
            return
        log.warning("orphan_driver_found", driver_id=str(row.id), pid=row.pid)
        if await asyncio.to_thread(end_session, row.pid, KILL_PATIENCE_S):
            await self._forget(row.id)

    async def _forget(self, driver_id: UUID) -> None:
        """Release the leases of a driver that is gone. A failure does no harm: leases expire."""
        try:
            await self._ask(lambda connection: drivers.forget_driver(connection, driver_id))
        except DATABASE_AWAY as error:
            log.warning("driver_not_forgotten", driver_id=str(driver_id), error=str(error))

    async def _ask(self, action: Callable[[psycopg.Connection[Any]], T]) -> T:
        return await asyncio.to_thread(self._ask_now, action)

    def _ask_now(self, action: Callable[[psycopg.Connection[Any]], T]) -> T:
        with connect(self._dsn, "slackwater-supervisor") as connection:
            return action(connection)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)


def environment_of(settings: BaseModel, prefix: str = ENV_PREFIX) -> dict[str, str]:
    """Return the environment variables that give another process the same settings, without secrets."""
    variables: dict[str, str] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            variables |= environment_of(value, prefix + name.upper() + NESTING)
        elif not isinstance(value, SecretStr) and value is not None:
            variables[prefix + name.upper()] = str(value)
    return variables


def _is_supervised(row: DriverRow) -> bool:
    """Whether the process that started a driver lives. A driver without a supervisor is no orphan."""
    if row.supervisor_pid is None or row.supervisor_create_time is None:
        return is_same_process(row.pid, row.create_time)
    return is_same_process(row.supervisor_pid, row.supervisor_create_time)
