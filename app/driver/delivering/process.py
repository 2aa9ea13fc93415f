"""The loop of the process that delivers: take deliveries that nobody has, keep their leases, tell their threads what is new.

It ends in order on SIGTERM, when the driver that started it is gone, and when there has been nothing to deliver for a while.
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
from app.db.service_context import delivery_context_of
from app.driver.delivering.connections import Lender
from app.driver.delivering.worker import UNAVAILABLE, Worker
from app.driver.notifications import DESIRED_STATES, listen_forever
from app.driver.schema_fit import has_parent
from app.settings.settings import Settings
from engine.commit.written import COMMIT_CHANNEL
from engine.connections.s3 import forget_own_credentials
from engine.postgres.postgres import DATABASE_AWAY, Connection, connect

CHANNELS: Final = (DESIRED_STATES, COMMIT_CHANNEL)
LOOK_S: Final = 0.5
"""Between two looks where nothing rings."""

LEAST_S: Final = 0.02
"""Between two looks where it rings all the time."""

CLAIM_S: Final = 1.0
CLAIMED_AT_ONCE: Final = 8
"""So that several processes that start together share what there is."""

CONNECTIONS: Final = 4
"""For the threads of all deliveries together; the loop and the bell have one each."""

EMPTY_S: Final = 60.0
HANGS_S: Final = 90.0
"""Longer than any step of a target takes by itself before it gives up."""

END_S: Final = 5.0
log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _LeasedWorker:
    """A worker, and whether it is noted that it hangs."""

    worker: Worker
    is_noted: bool = False


class DeliveryProcess:
    """Delivers until told to end. Everything that can hang is in other threads.

    Args:
        settings: with a ``database_url``.
        owner: name of its leases: the driver's.
        parent_pid: the process whose end ends this one; None: nobody watches over it.
    """

    def __init__(self, settings: Settings, owner: UUID, parent_pid: int | None) -> None:
        self._site = delivery_context_of(settings)
        self._ttl_ms = settings.driver.lease_ttl_ms
        self._owner, self._parent_pid = owner, parent_pid
        self._lender = Lender(self._site.dsn, CONNECTIONS)
        self._wake = threading.Event()
        self._is_ending = False
        self._connection: Connection | None = None
        self._held: dict[DeliveryLease, _LeasedWorker] = {}
        self._claimed_at = self._renewed_at = float("-inf")
        self._is_clean = False
        self._busy_at = time.monotonic()

    def run(self) -> None:
        """Loop. Call it from the main thread. Threads may still hang behind it: leave with ``os._exit``."""
        forget_own_credentials()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        bell = (self._site.dsn, CHANNELS, lambda _query: self._wake.set(), LOOK_S)
        threading.Thread(target=listen_forever, args=bell, name="bell", daemon=True).start()
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
        is_idle = not self._held and time.monotonic() - self._busy_at > EMPTY_S
        return self._is_ending or is_idle or not has_parent(self._parent_pid)

    def _tick(self) -> None:
        """One round. A database that is away costs the leases after their time to live; what is under way goes on, and is judged later."""
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
        """Let there be a worker for each delivery that is held, and none for others."""
        seen = {each.lease: each for each in deliveries.look(connection, self._owner)}
        for held, own in list(self._held.items()):
            found = seen.pop(held, None)
            if not own.worker.is_alive:
                del self._held[held]
                deliveries.release(connection, held)
            elif found is None or not found.is_wanted:
                own.worker.end()
            else:
                own.worker.show(found)
                self._note_hanging(connection, held, own)
        for held, each in seen.items():
            if each.is_wanted:
                worker = Worker(self._site, self._lender, each, self._wake.set)
                self._held[held] = _LeasedWorker(worker)
                worker.start()
            else:
                deliveries.release(connection, held)
        if self._held:
            self._busy_at = time.monotonic()

    def _note_hanging(self, connection: Connection, held: DeliveryLease, own: _LeasedWorker) -> None:
        hangs_s = own.worker.hangs_for_s
        if hangs_s < HANGS_S:
            own.is_noted = False
        elif not own.is_noted:
            own.is_noted = True
            with suppress(DeliveryLost):
                deliveries.note_failed(connection, held, UNAVAILABLE, f"the target has not answered for {hangs_s:.0f} s", 0)

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
        """Let what is under way end, for a while, and give the leases back; what hangs keeps its own until that runs out."""
        for own in self._held.values():
            own.worker.end()
        until = time.monotonic() + END_S
        ended = [held for held, own in self._held.items() if own.worker.join(max(0.0, until - time.monotonic()))]
        with suppress(psycopg.Error):
            for held in ended:
                deliveries.release(self._connect(), held)
        self._disconnect()
        self._lender.close()
        log.info("delivering_ended", hanging=len(self._held) - len(ended))
