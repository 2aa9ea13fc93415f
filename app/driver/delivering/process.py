"""The loop of the process that delivers: it claims free deliveries, renews their leases, and passes news to their threads.

It ends in order on SIGTERM, when the driver that started it has exited, and when there has been nothing to deliver for a while.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final
from uuid import UUID

import psycopg
import structlog

from app.catalog.deliveries import sql as deliveries
from app.catalog.deliveries.sql import DeliveryLease, DeliveryLost
from app.db.database import delivery_context_of
from app.driver.database import DESIRED_STATES, has_parent, listen_forever
from app.driver.delivering.worker import UNAVAILABLE, Lender, Worker
from app.settings.settings import Settings
from engine.commit.written import COMMIT_CHANNEL
from engine.connections.s3 import forget_own_credentials
from engine.postgres.postgres import DATABASE_AWAY, Connection, connect

CHANNELS: Final = (DESIRED_STATES, COMMIT_CHANNEL)
LOOK_S: Final = 0.5
"""Between two checks without a notification."""

LEAST_S: Final = 0.02
"""Between two checks with many notifications."""

CLAIM_S: Final = 1.0
CLAIMED_AT_ONCE: Final = 8
"""Limited, so that several processes that start together share the deliveries."""

CONNECTIONS: Final = 4
"""For the threads of all deliveries together; the loop and the listener have one each."""

EMPTY_S: Final = 60.0
HANGS_S: Final = 90.0
"""Longer than any step of a target takes before it gives up."""

END_S: Final = 5.0
log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _LeasedWorker:
    """A worker, and whether it was reported that it hangs."""

    worker: Worker
    is_reported: bool = False


class DeliveryProcess:
    """Delivers until it is asked to stop. Everything that can hang is in other threads.

    Args:
        owner: of its leases: the driver's id.
        parent_pid: this process ends when that one has exited; None: it has no parent to watch.
    """

    def __init__(self, settings: Settings, owner: UUID, parent_pid: int | None) -> None:
        self._site = delivery_context_of(settings)
        self._ttl_ms = settings.driver.lease_ttl_ms
        self._owner, self._parent_pid = owner, parent_pid
        self._lender = Lender(self._site.dsn, CONNECTIONS)
        self._wake = threading.Event()
        self._is_ending = False
        self._connection: Connection | None = None
        self._workers: dict[DeliveryLease, _LeasedWorker] = {}
        self._claimed_at = self._renewed_at = float("-inf")
        self._is_clean = False
        self._busy_at = time.monotonic()

    def run(self) -> None:
        """Run the loop in the main thread. Threads may still hang after it: exit with ``os._exit``."""
        forget_own_credentials()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        listener = (self._site.dsn, CHANNELS, lambda _query: self._wake.set(), LOOK_S)
        threading.Thread(target=listen_forever, args=listener, name="listener", daemon=True).start()
        log.info("delivering_started", owner=str(self._owner))
        while not self._is_over():
            self._wake.wait(LOOK_S)
            self._wake.clear()
            self._tick()
            time.sleep(LEAST_S)
        self._end()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._is_ending = True
        self._wake.set()

    def _is_over(self) -> bool:
        is_idle = not self._workers and time.monotonic() - self._busy_at > EMPTY_S
        return self._is_ending or is_idle or not has_parent(self._parent_pid)

    def _tick(self) -> None:
        """Run one cycle. While the database is unreachable the leases expire; running deliveries continue, and are checked later."""
        try:
            connection = self._connect()
            if not self._is_clean:
                deliveries.release_all(connection, self._owner)
                self._is_clean = True
            now = time.monotonic()
            if now - self._renewed_at >= self._ttl_ms / 3000:
                deliveries.renew(connection, self._owner, self._ttl_ms)
                self._renewed_at = now
            if now - self._claimed_at >= CLAIM_S:
                deliveries.claim(connection, self._owner, self._ttl_ms, CLAIMED_AT_ONCE)
                self._claimed_at = now
            self._follow(connection)
        except DATABASE_AWAY as error:
            log.warning("database_unavailable", error=str(error))
            self._disconnect()

    def _follow(self, connection: Connection) -> None:
        """Run a worker for each leased delivery, and end the others."""
        current = {each.lease: each for each in deliveries.look(connection, self._owner)}
        for lease, leased in list(self._workers.items()):
            delivery = current.pop(lease, None)
            if not leased.worker.is_alive:
                del self._workers[lease]
                deliveries.release(connection, lease)
            elif delivery is None or not delivery.is_wanted:
                leased.worker.end()
            else:
                leased.worker.show(delivery)
                self._note_hanging(connection, lease, leased)
        for lease, each in current.items():
            if each.is_wanted:
                worker = Worker(self._site, self._lender, each, self._wake.set)
                self._workers[lease] = _LeasedWorker(worker)
                worker.start()
            else:
                deliveries.release(connection, lease)
        if self._workers:
            self._busy_at = time.monotonic()

    def _note_hanging(self, connection: Connection, lease: DeliveryLease, leased: _LeasedWorker) -> None:
        hangs_s = leased.worker.hangs_for_s
        if hangs_s < HANGS_S:
            leased.is_reported = False
        elif not leased.is_reported:
            leased.is_reported = True
            with suppress(DeliveryLost):
                deliveries.note_failed(connection, lease, UNAVAILABLE, f"the target has not answered for {hangs_s:.0f} s", 0)

    def _connect(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._site.dsn, "slackwater-deliveries")
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _end(self) -> None:
        """Wait a short time until running deliveries end, and release their leases; a hanging delivery keeps its lease until it expires."""
        for leased in self._workers.values():
            leased.worker.end()
        until = time.monotonic() + END_S
        ended = [lease for lease, leased in self._workers.items() if leased.worker.join(max(0.0, until - time.monotonic()))]
        with suppress(psycopg.Error):
            for lease in ended:
                deliveries.release(self._connect(), lease)
        self._disconnect()
        self._lender.close()
        log.info("delivering_ended", hanging=len(self._workers) - len(ended))
