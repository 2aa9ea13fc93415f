"""The driver process: heartbeat, claim, reconcile, until it is told to end.

It ends in order on SIGTERM or SIGINT, when its supervisor is gone, when a query does not stop in time, and when its runner died:
what lives is stopped, every lease is given back, then the process exits. What cannot be stopped by then dies with the process;
its leases are left for the supervisor, which gives them back once the whole session is gone, or for their time to live.
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
from app.catalog.stored.state_places import state_store_of
from app.db.database import CONNECT_TIMEOUT_SECONDS
from app.db.schema_version import look_at_schema
from app.driver.collecting import Collecting
from app.driver.deliveries import Delivering
from app.driver.launches.host import QueryHost
from app.driver.launches.launching import FencedLauncher, discard_query
from app.driver.launches.ports import Runner
from app.driver.leases import Leases
from app.driver.notifications import DESIRED_STATES, listen_forever
from app.driver.reconciler import Reconciler
from app.driver.schema_fit import await_schema, has_parent
from app.driver.state_root import StateRoot
from app.settings.settings import DriverSettings, Settings
from engine.commit.history.segment_collector import Retention
from engine.postgres.incarnation import mark, notice
from engine.postgres.links import LinkedConnection
from engine.postgres.postgres import DATABASE_AWAY

LONGEST_REST_S = 0.2
REST_SHARE = 2
"""A round is followed by a rest of its length times this, so that many bells take a third of a core at most. What rings meanwhile is looked at
together in the next."""

# The bell and the poll can be seconds apart; a supervisor that is gone shall be noticed sooner.
LONGEST_PAUSE_S, LEAST_PAUSE_S = 1.0, 0.01
# What stopping the session and the last writes may take after the queries were stopped.
CLOSE_S = 10.0
EXIT_OK, EXIT_RUNNER_DIED, EXIT_QUERY_HUNG, EXIT_SCHEMA = 0, 3, 4, 5
log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a driver is.

    Attributes:
        supervisor_pid: the process whose end ends this one; None: nobody watches over this driver.
    """

    driver_id: UUID
    supervisor_pid: int | None = None


def limits_of(settings: DriverSettings) -> Limits:
    """Return the timings that decisions are made on."""
    return Limits(
        start_timeout_ms=settings.start_timeout_ms,
        stop_timeout_ms=settings.stop_timeout_ms,
        healthy_after_ms=settings.healthy_after_ms,
        max_attempts=settings.max_attempts,
        backoff_first_ms=settings.backoff_base_ms,
        backoff_longest_ms=settings.backoff_cap_ms,
    )


def run_driver(settings: Settings, make_runner: Callable[[Settings], Runner], identity: Identity) -> int:
    """Be a driver until told to end. Call it from the main thread; installs handlers for SIGTERM and SIGINT.

    Args:
        settings: with a ``database_url``.
        make_runner: the engine; opened in a thread.
        identity: who this is.

    Returns:
        The exit code. Threads may still hang: leave with ``os._exit``.

    """
    if (dsn := settings.dsn) is None:
        raise ValueError("a driver needs SLACKWATER_DATABASE_URL")
    if not await_schema(dsn, lambda: has_parent(identity.supervisor_pid)):
        return EXIT_OK
    return DriverProcess(settings, dsn, make_runner(settings), identity).run()


class DriverProcess:
    """The loop. Everything that can hang is in other threads, so that a missing heartbeat means what it says."""

    def __init__(self, settings: Settings, dsn: str, runner: Runner, identity: Identity) -> None:
        self._settings = settings.driver
        self._dsn = dsn
        self._runner = runner
        self._identity = identity
        self._rung: queue.SimpleQueue[UUID | None] = queue.SimpleQueue()
        """Of which queries something was heard; None: of any. A signal may come while this is used."""
        self._checkpoints_dir = settings.checkpoints_dir
        self._launcher = FencedLauncher(dsn, self._checkpoints_dir, runner)
        self._host = QueryHost(self._launcher, settings.driver.stop_timeout_ms / 1000, self._rung.put, lambda: runner.is_alive)
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
        self._beaten_at = float("-inf")
        self._beaten_phase = ""
        self._drains_until: float | None = None
        self._all_at = float("-inf")
        """When all queries are looked at next, whatever is heard."""
        self._is_empty = False
        self._uneven_since: float | None = None

    def run(self) -> int:
        """Loop until drained. Returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        threading.Thread(target=self._open_runner, name="open-runner", daemon=True).start()
        bell = (self._dsn, (DESIRED_STATES,), self._wake, LONGEST_PAUSE_S)
        threading.Thread(target=listen_forever, args=bell, name="bell", daemon=True).start()
        self._collecting.start()
        log.info("driver_started", driver_id=str(self._identity.driver_id), pid=os.getpid())
        while not self._is_over():
            heard = self._heard()
            begun = time.monotonic()
            self._round(heard)
            time.sleep(min(LONGEST_REST_S, (time.monotonic() - begun) * REST_SHARE))
        self._end()
        return self._exit_code

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        # Nothing else here: the main thread may hold any lock at this moment.
        self._phase = "draining"
        self._rung.put(None)

    def _wake(self, query_id: str | None) -> None:
        heard: UUID | None = None
        with suppress(ValueError):  # anybody may notify: what names no query may mean any
            heard = None if query_id is None else UUID(query_id)
        self._rung.put(heard)

    def _heard(self) -> set[UUID] | None:
        """Wait until something was heard of queries, and return of which; None: of any, or it is time to look at all.

        Empty: only to say that this driver lives.
        """
        heard: set[UUID | None] = set()
        with suppress(queue.Empty):
            heard.add(self._rung.get(timeout=min(self._pause_s, max(0.0, self._all_at - time.monotonic()))))
            while True:
                heard.add(self._rung.get_nowait())
        named = {query_id for query_id in heard if query_id is not None}
        is_all = None in heard or self._phase == "draining" or time.monotonic() >= self._all_at
        return None if is_all else named

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
        self._rung.put(None)

    def _watch(self) -> None:
        """Notice what ends a driver."""
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
        """Between two rounds."""
        settings = self._settings
        due_s = (LONGEST_PAUSE_S, settings.heartbeat_ms / 1000, settings.lease_ttl_ms / 3000)
        return max(LEAST_PAUSE_S, min(due_s))

    def _round(self, heard: set[UUID] | None) -> None:
        """One round. A database that is away costs the leases after their time to live, and with them the queries.

        Args:
            heard: the queries to look at, perhaps none; None: all.
        """
        begun = time.monotonic()
        self._watch()
        if heard is not None:
            heard |= self._host.ended()
        try:
            connection = self._connect()
            if self._beat(connection):
                heard = None
            if self._phase != "draining":
                self._delivering.keep(connection)
            if heard is None or heard:
                self._look(connection, heard, begun)
        except DATABASE_AWAY as error:
            log.warning("database_unavailable", error=str(error))
            self._disconnect()
            if self._phase == "draining" or not self._leases.is_trusted:
                self._reconciler.stop_everything()
            self._is_empty = True
            self._all_at = begun + LONGEST_PAUSE_S

    def _look(self, connection: psycopg.Connection[Any], heard: set[UUID] | None, begun: float) -> None:
        """Look at queries.

        What a look costs does not depend on how many there are, where few were heard of; and where all are at rest, it is not for all so often.
        """
        if heard is None or not self._leases.knows(heard):
            claimed = self._claim(connection)
            heard = None if heard is None else {*heard, *claimed}
        poll_s = self._settings.poll_ms / 1000
        pause_s = min(poll_s, LONGEST_PAUSE_S)
        if self._leases.is_trusted:
            due_ms = self._reconciler.reconcile(connection, heard)
            if self._reconciler.is_at_rest:
                pause_s = poll_s
            if due_ms is not None:
                pause_s = min(pause_s, max(LEAST_PAUSE_S, due_ms / 1000))
        self._is_empty = not self._leases.leased_queries(connection) if self._phase == "draining" else False
        self._all_at = begun + pause_s if heard is None else min(self._all_at, begun + pause_s)

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            # A lock that is held for longer than a lease lives would be found out too late; and should this process be frozen, its
            # own locks must not outlive its leases.
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
            # It may have been put back while it was away; nothing is launched before that is known.
            notice(self._connection, self._root.last_mark())
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _beat(self, connection: psycopg.Connection[Any]) -> bool:
        """Say that this driver lives, where it is time to; returns whether there is something to do then."""
        phase = self._phase
        # Three renewals per time to live: two may fail before a lease is lost.
        interval_ms = min(self._settings.heartbeat_ms, self._settings.lease_ttl_ms / 3)
        if phase == self._beaten_phase and (time.monotonic() - self._beaten_at) * 1000 < interval_ms:
            return False
        is_new = phase != self._beaten_phase
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
        self._beaten_at, self._beaten_phase = time.monotonic(), phase
        return (phase == "ready" and self._rebalance(connection)) or is_new or self._phase != phase

    def _leave_newer_schema(self, connection: psycopg.Connection[Any]) -> None:
        """Stop every query where a newer version has changed the schema meanwhile; whoever starts this driver again finds it waiting."""
        schema = look_at_schema(connection)
        if schema.is_unknown and self._phase != "draining":
            log.error("schema_unknown", detail=schema.problem)
            self._drain(EXIT_SCHEMA)

    def _claim(self, connection: psycopg.Connection[Any]) -> list[UUID]:
        """Take what is free, and return that. Not before queries can be started: until then another driver may do better."""
        return self._leases.claim(connection) if self._phase == "ready" else []

    def _rebalance(self, connection: psycopg.Connection[Any]) -> bool:
        """Hand queries over to drivers that have had room for a while: moving one costs it a restart, so not for every flicker.

        Returns:
            Whether any are to be handed over.
        """
        surplus = {is_internal: self._leases.surplus(connection, is_internal=is_internal) for is_internal in (True, False)}
        if not any(surplus.values()):
            self._uneven_since = None
            return False
        self._uneven_since = self._uneven_since or time.monotonic()
        if (time.monotonic() - self._uneven_since) * 1000 < self._settings.rebalance_after_ms:
            return False
        for is_internal, number in surplus.items():
            if number:
                self._reconciler.hand_over(connection, number, is_internal=is_internal)
        self._uneven_since = None
        return True

    def _was_busy(self, leased: LeasedQuery) -> bool:
        if leased.status.state is State.STARTING:
            return transitions.has_taken_fence(self._connect(), leased)
        return self._runner.is_unfinished(leased.query_id, leased.checkpoint_id, leased.status.epoch)

    def _purge(self, connection: psycopg.Connection[Any], leased: LeasedQuery) -> None:
        """Remove a deleted query: its directory first, since the row is all that remembers it."""
        discard_query(self._checkpoints_dir, leased.query_id)
        transitions.purge(connection, self._identity.driver_id, leased, self._root.id)

    def _end(self) -> None:
        """Say goodbye. With something still alive the row stays: only the end of the process makes an end of that."""
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
