"""The leases one driver holds, and the moment from which it must not trust them any more.

A lease is good while the last successful renewal is younger than its time to live, by this process's own clock: a driver that
cannot reach the database must stop its queries no later than another one may take them. The fence (``claim_epoch``) holds where
clocks do not.
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
    """Claims, renews, loses.

    Args:
        driver_id: the holder.
        ttl_ms: how long a lease lives without being renewed.
        root: where the state of the queries is that it may take.
        clock: monotonic seconds.
    """

    def __init__(self, driver_id: UUID, ttl_ms: int, root: StateRoot, clock: Callable[[], float] = time.monotonic) -> None:
        self._driver_id = driver_id
        self._ttl_ms = ttl_ms
        self._root = root
        self._clock = clock
        self._renewed_at: float | None = None
        self._known: set[UUID] = set()

    def knows(self, query_ids: Collection[UUID]) -> bool:
        """Whether all of these were this driver's when they were looked at last; else some may be free."""
        return self._known.issuperset(query_ids)

    @property
    def is_trusted(self) -> bool:
        """Whether what was leased is certainly still this driver's."""
        return self._renewed_at is not None and (self._clock() - self._renewed_at) * 1000 < self._ttl_ms

    def renew(self, connection: psycopg.Connection[Any]) -> None:
        """Prolong every lease that is still this driver's."""
        asked_at = self._clock()
        transitions.renew(connection, self._driver_id, self._ttl_ms)
        self._renewed_at = asked_at

    def claim(self, connection: psycopg.Connection[Any]) -> list[UUID]:
        """Take what has no driver, and return that: everything that is to be brought to rest, and this driver's fair share of the rest."""
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
        """Say how many of this driver's queries (users' or internal ones) others have room for."""
        waiting = transitions.unplaced(connection, self._claimant(), is_internal=is_internal)
        return self.ready_drivers(connection, waiting, is_internal=is_internal).surplus(self._driver_id)

    def ready_drivers(self, connection: psycopg.Connection[Any], unplaced: int, *, is_internal: bool) -> ReadyDrivers:
        """Return the drivers among which queries are spread: those of this root that were heard of within the life of a lease.

        Users' queries and internal ones are spread apart: the first up to each driver's cap, the others without one.
        """
        return drivers.load_ready_drivers(connection, unplaced, self._ttl_ms, self._root.id, is_internal=is_internal)

    def leased_queries(self, connection: psycopg.Connection[Any], only: Collection[UUID] | None = None) -> list[LeasedQuery]:
        """Return the queries whose leases are this driver's now; ``only`` of these, where it is given."""
        found = transitions.load_leased(connection, self._driver_id, only)
        if only is None:
            self._known = {leased.query_id for leased in found}
        return found

    def save(self, connection: psycopg.Connection[Any], leased: LeasedQuery, action: Action) -> LeasedQuery | None:
        """Write a transition; None where the lease was lost or the row has changed."""
        saved = transitions.save(connection, self._claimant(), leased, action)
        if saved is not None and action.is_lease_released:
            self._known.discard(leased.query_id)
        return saved

    def note_phase(self, connection: psycopg.Connection[Any], leased: LeasedQuery, phase: str | None) -> None:
        """Write how far a launch is."""
        transitions.note_phase(connection, self._driver_id, leased, phase)

    def _claimant(self) -> Claimant:
        return Claimant(self._driver_id, self._ttl_ms, self._root.id)

    def release(self, connection: psycopg.Connection[Any], query_id: UUID) -> None:
        """Give one lease back."""
        transitions.release(connection, self._driver_id, query_id)
        self._known.discard(query_id)
