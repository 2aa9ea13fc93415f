"""The leases of one driver, and the time from which it must not rely on them.

A lease is valid while the last successful renewal is younger than its time to live, by this process's own clock. A driver that cannot reach the
database must stop its queries before another driver may claim them. The fence (``claim_epoch``) protects against clocks that differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

import psycopg
import structlog

from app.catalog.drivers import sql as drivers
from app.catalog.drivers import transitions
from app.catalog.drivers.lifecycle import Action
from app.catalog.drivers.placement import ReadyDrivers
from app.catalog.drivers.transitions import Claimant, LeasedQuery
from app.driver.state_root import StateRoot

log = structlog.stdlib.get_logger(__name__)


class Leases:
    """Claims, renews and releases leases.

    Args:
        driver_id: owner of the leases.
        ttl_ms: lifetime of a lease without renewal.
        root: state root of the queries that it may claim.
    """

    def __init__(self, driver_id: UUID, ttl_ms: int, root: StateRoot, clock: Callable[[], float] = time.monotonic) -> None:
        self._driver_id = driver_id
        self._ttl_ms = ttl_ms
        self._root = root
        self._clock = clock
        self._renewed_at: float | None = None
        self._known: set[UUID] = set()

    def knows(self, query_ids: Collection[UUID]) -> bool:
        """Whether all of these were this driver's at the last check; otherwise some may be free."""
        return self._known.issuperset(query_ids)

    @property
    def is_trusted(self) -> bool:
        """Whether the leases are certainly still this driver's."""
        return self._renewed_at is not None and (self._clock() - self._renewed_at) * 1000 < self._ttl_ms

    def renew(self, connection: psycopg.Connection[Any]) -> None:
        started_at = self._clock()
        transitions.renew(connection, self._driver_id, self._ttl_ms)
        self._renewed_at = started_at

    def claim(self, connection: psycopg.Connection[Any]) -> list[UUID]:
        """Claim queries without a driver, and return their ids: all that are to stop, and this driver's fair share of the others."""
        claimant = self._claimant()
        claimed = transitions.claim_errands(connection, claimant)
        for is_internal in (True, False):
            if waiting := transitions.unplaced(connection, claimant, is_internal=is_internal):
                room = self.ready_drivers(connection, waiting, is_internal=is_internal).room(self._driver_id)
                if room > 0:
                    claimed += transitions.claim(connection, claimant, room, is_internal=is_internal)
        if claimed:
            log.info("queries_claimed", queries=[str(query_id) for query_id in claimed])
            self._known.update(claimed)
        return claimed

    def surplus(self, connection: psycopg.Connection[Any], *, is_internal: bool) -> int:
        """Return how many of this driver's queries (users' or internal ones) other drivers have room for."""
        waiting = transitions.unplaced(connection, self._claimant(), is_internal=is_internal)
        return self.ready_drivers(connection, waiting, is_internal=is_internal).surplus(self._driver_id)

    def ready_drivers(self, connection: psycopg.Connection[Any], unplaced: int, *, is_internal: bool) -> ReadyDrivers:
        """Return the drivers that share the queries: those of this root with a heartbeat within the lifetime of a lease.

        Users' queries and internal ones are balanced separately: users' queries up to each driver's maximum, internal ones without a limit.
        """
        return drivers.load_ready_drivers(connection, unplaced, self._ttl_ms, self._root.id, is_internal=is_internal)

    def leased_queries(self, connection: psycopg.Connection[Any], only: Collection[UUID] | None = None) -> list[LeasedQuery]:
        """Return the queries that this driver leases now; only those in ``only`` if it is set."""
        queries = transitions.load_leased(connection, self._driver_id, only)
        if only is None:
            self._known = {leased.query_id for leased in queries}
        return queries

    def save(self, connection: psycopg.Connection[Any], leased: LeasedQuery, action: Action) -> LeasedQuery | None:
        """Write a transition; None if the lease was lost or the row has changed."""
        saved = transitions.save(connection, self._claimant(), leased, action)
        if saved is not None and action.is_lease_released:
            self._known.discard(leased.query_id)
        return saved

    def note_phase(self, connection: psycopg.Connection[Any], leased: LeasedQuery, phase: str | None) -> None:
        transitions.note_phase(connection, self._driver_id, leased, phase)

    def _claimant(self) -> Claimant:
        return Claimant(self._driver_id, self._ttl_ms, self._root.id)

    def release(self, connection: psycopg.Connection[Any], query_id: UUID) -> None:
        transitions.release(connection, self._driver_id, query_id)
        self._known.discard(query_id)
