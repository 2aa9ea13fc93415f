"""The driver process: it sends heartbeats, claims queries and reconciles them until it is asked to stop.

It ends in order on SIGTERM or SIGINT, when its supervisor has exited, when a query does not stop in time, and when its runner died. It stops the
living queries, releases every lease, then exits. Queries that cannot be stopped by then die with the process. The supervisor releases their
leases once the whole session is gone, or the leases expire.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any
from uuid import UUID

import psutil
import psycopg
import structlog

from app.catalog.drivers import sql as drivers
from app.catalog.drivers import transitions
from app.catalog.drivers.lifecycle import Limits
from app.catalog.drivers.states import State
from app.catalog.drivers.transitions import LeasedQuery
from app.catalog.stored.state_files import state_store_of
from app.db.database import CONNECT_TIMEOUT_SECONDS
from app.db.schema_version import look_at_schema
from app.driver.collecting import Collecting
from app.driver.database import DESIRED_STATES, await_schema, has_parent, listen_forever
from app.driver.deliveries import Delivering
from app.driver.launches.host import QueryHost
from app.driver.launches.launching import FencedLauncher, discard_query
from app.driver.launches.ports import Runner
from app.driver.leases import Leases
from app.driver.reconciler import Reconciler
from app.driver.state_root import StateRoot
from app.settings.settings import DriverSettings, Settings
from engine.commit.history.segment_collector import Retention
from engine.postgres.incarnation import mark, notice
from engine.postgres.links import LinkedConnection
from engine.postgres.postgres import DATABASE_AWAY

LONGEST_REST_S = 0.2
REST_SHARE = 2
"""A cycle is followed by a pause of its length times this, so that many notifications use at most a third of a core. The next cycle handles all
notifications of the pause together."""

# Notifications and polls can be seconds apart; a supervisor that has exited should be noticed sooner.
LONGEST_PAUSE_S, LEAST_PAUSE_S = 1.0, 0.01
# Time for the end of the session and the last writes, after the queries were stopped.
CLOSE_S = 10.0
EXIT_OK, EXIT_RUNNER_DIED, EXIT_QUERY_HUNG, EXIT_SCHEMA = 0, 3, 4, 5
log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a driver.

    Attributes:
        supervisor_pid: this driver ends when that process has exited; None: it has no supervisor.
    """

    driver_id: UUID
    supervisor_pid: int | None = None


def limits_of(settings: DriverSettings) -> Limits:
    return Limits(
        start_timeout_ms=settings.start_timeout_ms,
        stop_timeout_ms=settings.stop_timeout_ms,
        healthy_after_ms=settings.healthy_after_ms,
        max_attempts=settings.max_attempts,
        backoff_first_ms=settings.backoff_base_ms,
        backoff_longest_ms=settings.backoff_cap_ms,
    )


def run_driver(settings: Settings, make_runner: Callable[[Settings], Runner], identity: Identity) -> int:
    """Run a driver until it is asked to stop. Call this from the main thread; it installs handlers for SIGTERM and SIGINT.

    Returns:
        The exit code. Threads may still hang: exit with ``os._exit``.
    """
    if (dsn := settings.dsn) is None:
        raise ValueError("a driver needs SLACKWATER_DATABASE_URL")
    if not await_schema(dsn, lambda: has_parent(identity.supervisor_pid)):
        return EXIT_OK
    return DriverProcess(settings, dsn, make_runner(settings), identity).run()


class DriverProcess:
    """The loop. Everything that can hang is in other threads, so a missing heartbeat is a reliable sign."""

    def __init__(self, settings: Settings, dsn: str, runner: Runner, identity: Identity) -> None:
        self._settings = settings.driver
        self._dsn = dsn
        self._runner = runner
        self._identity = identity
        self._notified: queue.SimpleQueue[UUID | None] = queue.SimpleQueue()
        """Ids of queries with a notification; None: any query. A signal handler may use this."""
        self._checkpoints_dir = settings.checkpoints_dir
        self._launcher = FencedLauncher(dsn, self._checkpoints_dir, runner)
        self._host = QueryHost(
            self._launcher, settings.driver.stop_timeout_ms / 1000, self._notified.put, lambda: runner.is_alive
        )
        self._store = state_store_of(settings)
        self._root = StateRoot.open(self._checkpoints_dir, self._store)
        retention = Retention(settings.state_retention_ms, settings.state_retained_bytes)
        self._collecting = Collecting(dsn, self._store, self._root.id, retention)
        self._delivering = Delivering(identity.driver_id)
        self._leases = Leases(identity.driver_id, settings.driver.lease_ttl_ms, self._root)
        self._reconciler = Reconciler(self._leases, self._host, limits_of(settings.driver), self._purge, self._was_busy)
        self._process = (socket.gethostname(), os.getpid(), psutil.Process().create_time())
        self._supervisor_create_time = _create_time(identity.supervisor_pid)
        self._phase = "starting_jvm"
        self._exit_code = EXIT_OK
        self._connection: psycopg.Connection[Any] | None = None
        self._heartbeat_at = float("-inf")
        self._heartbeat_phase = ""
        self._drains_until: float | None = None
        self._check_all_at = float("-inf")
        """When all queries are checked next, even without a notification."""
        self._is_empty = False
        self._imbalanced_since: float | None = None

    def run(self) -> int:
        """Loop until drained; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        threading.Thread(target=self._open_runner, name="open-runner", daemon=True).start()
        listener = (self._dsn, (DESIRED_STATES,), self._wake, LONGEST_PAUSE_S)
        threading.Thread(target=listen_forever, args=listener, name="listener", daemon=True).start()
        self._collecting.start()
        log.info("driver_started", driver_id=str(self._identity.driver_id), pid=os.getpid())
        while not self._is_over():
            query_ids = self._heard()
            started_at = time.monotonic()
            self._round(query_ids)
            time.sleep(min(LONGEST_REST_S, (time.monotonic() - started_at) * REST_SHARE))
        self._end()
        return self._exit_code

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        # Only this: the main thread may hold any lock at this moment.
        self._phase = "draining"
        self._notified.put(None)

    def _wake(self, query_id: str | None) -> None:
        notified: UUID | None = None
        with suppress(ValueError):  # any client may notify: a payload without an id means any query
            notified = None if query_id is None else UUID(query_id)
        self._notified.put(notified)

    def _heard(self) -> set[UUID] | None:
        """Wait for notifications and return the ids of their queries; None: any query, or it is time to check all.

        An empty set: it is only time for a heartbeat.
        """
        notified: set[UUID | None] = set()
        with suppress(queue.Empty):
            notified.add(self._notified.get(timeout=min(self._pause_s, max(0.0, self._check_all_at - time.monotonic()))))
            while True:
                notified.add(self._notified.get_nowait())
        query_ids = {query_id for query_id in notified if query_id is not None}
        is_all = None in notified or self._phase == "draining" or time.monotonic() >= self._check_all_at
        return None if is_all else query_ids

    def _open_runner(self) -> None:
        try:
            self._runner.open()
        except Exception:
            log.exception("runner_did_not_open")
            self._drain(EXIT_RUNNER_DIED)
        else:
            if self._phase == "starting_jvm":
                self._phase = "ready"
            log.info("driver_ready")
        self._notified.put(None)

    def _watch(self) -> None:
        """Check whether this driver must end."""
        if not has_parent(self._identity.supervisor_pid):
            self._drain(EXIT_OK)
        if self._phase == "ready" and not self._runner.is_alive:
            log.error("runner_died")
            self._drain(EXIT_RUNNER_DIED)
        if self._reconciler.is_draining:
            self._drain(EXIT_QUERY_HUNG)
        if self._phase == "draining" and self._drains_until is None:
            log.info("driver_draining")
            self._reconciler.is_draining = True
            self._delivering.ask_to_end()
            self._drains_until = time.monotonic() + self._settings.stop_timeout_ms / 1000

    def _drain(self, exit_code: int) -> None:
        if self._phase != "draining":
            self._phase = "draining"
            self._exit_code = exit_code

    def _is_over(self) -> bool:
        if self._drains_until is None:
            return False
        return (self._is_empty and not self._host.has_live) or time.monotonic() > self._drains_until

    @property
    def _pause_s(self) -> float:
        settings = self._settings
        due_s = (LONGEST_PAUSE_S, settings.heartbeat_ms / 1000, settings.lease_ttl_ms / 3000)
        return max(LEAST_PAUSE_S, min(due_s))

    def _round(self, query_ids: set[UUID] | None) -> None:
        """Run one cycle. While the database is unreachable the leases expire, and their queries stop.

        Args:
            query_ids: of the queries to check, perhaps none; None: all.
        """
        started_at = time.monotonic()
        self._watch()
        if query_ids is not None:
            query_ids |= self._host.ended()
        try:
            connection = self._connect()
            if self._beat(connection):
                query_ids = None
            if self._phase != "draining":
                self._delivering.keep(connection)
            if query_ids is None or query_ids:
                self._look(connection, query_ids, started_at)
        except DATABASE_AWAY as error:
            log.warning("database_unavailable", error=str(error))
            self._disconnect()
            if self._phase == "draining" or not self._leases.is_trusted:
                self._reconciler.stop_everything()
            self._is_empty = True
            self._check_all_at = started_at + LONGEST_PAUSE_S

    def _look(self, connection: psycopg.Connection[Any], query_ids: set[UUID] | None, started_at: float) -> None:
        """Check and reconcile queries.

        The cost does not depend on the number of queries if only few had notifications. If all queries are at rest, all are checked less often.
        """
        if query_ids is None or not self._leases.knows(query_ids):
            claimed = self._claim(connection)
            query_ids = None if query_ids is None else {*query_ids, *claimed}
        poll_s = self._settings.poll_ms / 1000
        pause_s = min(poll_s, LONGEST_PAUSE_S)
        if self._leases.is_trusted:
            due_ms = self._reconciler.reconcile(connection, query_ids)
            if self._reconciler.is_at_rest:
                pause_s = poll_s
            if due_ms is not None:
                pause_s = min(pause_s, max(LEAST_PAUSE_S, due_ms / 1000))
        self._is_empty = not self._leases.leased_queries(connection) if self._phase == "draining" else False
        self._check_all_at = started_at + pause_s if query_ids is None else min(self._check_all_at, started_at + pause_s)

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            # A lock wait longer than a lease's lifetime would be noticed too late. If this process is frozen, its own locks must not
            # outlive its leases.
            ttl_ms = self._settings.lease_ttl_ms
            options = f"-c lock_timeout={ttl_ms // 3} -c idle_in_transaction_session_timeout={ttl_ms}"
            self._connection = LinkedConnection.connect(
                self._dsn,
                autocommit=True,
                connect_timeout=CONNECT_TIMEOUT_SECONDS,
                options=options,
                application_name="slackwater driver",
                patience_s=ttl_ms / 3000,
            )
            # The database may have been restored while it was unreachable; no query is launched before that is known.
            notice(self._connection, self._root.last_mark())
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _beat(self, connection: psycopg.Connection[Any]) -> bool:
        """Send a heartbeat if it is time; return whether there is something to do then."""
        phase = self._phase
        # Three renewals per time to live: two may fail before a lease is lost.
        interval_ms = min(self._settings.heartbeat_ms, self._settings.lease_ttl_ms / 3)
        if phase == self._heartbeat_phase and (time.monotonic() - self._heartbeat_at) * 1000 < interval_ms:
            return False
        is_new = phase != self._heartbeat_phase
        self._leave_newer_schema(connection)
        detail = {
            "supervisor_pid": self._identity.supervisor_pid,
            "supervisor_create_time": self._supervisor_create_time,
            "max_queries": self._settings.max_queries,
            "state_root": str(self._root.id),
        }
        drivers.beat(connection, self._identity.driver_id, phase, detail, self._process)
        self._leases.renew(connection)
        self._root.note(mark(connection))
        self._heartbeat_at, self._heartbeat_phase = time.monotonic(), phase
        return (phase == "ready" and self._rebalance(connection)) or is_new or self._phase != phase

    def _leave_newer_schema(self, connection: psycopg.Connection[Any]) -> None:
        """Stop every query if a newer version has changed the schema; after a restart this driver waits for a known schema."""
        schema = look_at_schema(connection)
        if schema.is_unknown and self._phase != "draining":
            log.error("schema_unknown", detail=schema.problem)
            self._drain(EXIT_SCHEMA)

    def _claim(self, connection: psycopg.Connection[Any]) -> list[UUID]:
        """Claim free queries and return their ids. Not before the engine is ready: until then another driver may start them sooner."""
        return self._leases.claim(connection) if self._phase == "ready" else []

    def _rebalance(self, connection: psycopg.Connection[Any]) -> bool:
        """Hand queries over to drivers that have had room for a while. A move costs a query a restart, so short imbalances are ignored.

        Returns:
            Whether any are handed over.
        """
        surplus = {is_internal: self._leases.surplus(connection, is_internal=is_internal) for is_internal in (True, False)}
        if not any(surplus.values()):
            self._imbalanced_since = None
            return False
        self._imbalanced_since = self._imbalanced_since or time.monotonic()
        if (time.monotonic() - self._imbalanced_since) * 1000 < self._settings.rebalance_after_ms:
            return False
        for is_internal, number in surplus.items():
            if number:
                self._reconciler.hand_over(connection, number, is_internal=is_internal)
        self._imbalanced_since = None
        return True

    def _was_busy(self, leased: LeasedQuery) -> bool:
        if leased.status.state is State.STARTING:
            return transitions.has_taken_fence(self._connect(), leased)
        return self._runner.is_unfinished(leased.query_id, leased.checkpoint_id, leased.status.epoch)

    def _purge(self, connection: psycopg.Connection[Any], leased: LeasedQuery) -> None:
        """Remove a deleted query: its directory first, because only the row has its id."""
        discard_query(self._checkpoints_dir, leased.query_id)
        transitions.purge(connection, self._identity.driver_id, leased, self._root.id)

    def _end(self) -> None:
        """End the driver. If a query is still alive the driver's row stays: only the end of the process stops that query."""
        self._collecting.stop()
        self._delivering.end()
        is_clean = not self._host.has_live and self._is_empty
        if is_clean:
            self._launcher.close()
            closing = threading.Thread(target=self._runner.close, name="close-runner", daemon=True)
            closing.start()
            closing.join(CLOSE_S)
            with suppress(*DATABASE_AWAY):
                drivers.forget_driver(self._connect(), self._identity.driver_id)
        self._disconnect()
        log.info("driver_ended", is_clean=is_clean, exit_code=self._exit_code)


def _create_time(pid: int | None) -> float | None:
    try:
        return None if pid is None else psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None
