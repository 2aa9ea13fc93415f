"""Which database owns a query's state: its collector may remove segments that it does not name, other databases' must not.

A dump restored into another database has the same queries, and may find their state in the same object store or directory. Each
of the two databases names segments that the other does not know. So the owner writes a claim beside a query's state at intervals, and other
databases remove nothing while the claim is fresh. A database takes over if there was no claim for ``OTHERS_S``: the original is gone.
A promoted standby is the same database.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog

from engine.postgres.postgres import Connection
from engine.state.segments.ports import StateStore

SAID_FOR_S: Final = 3_600.0
"""Interval of claims: long enough to cost nothing, and many times within ``OTHERS_S``."""

OTHERS_S: Final = 24 * 3_600.0
"""A service that stops for longer, while a copy of it works in the same place, loses its claim."""

_LOOK: Final = """
SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()), (SELECT oid FROM pg_database WHERE datname = current_database()),
    'log.commit'::regclass::oid), extract(epoch FROM now())::double precision
"""
"""Cluster, database and table: a restored dump has a new table. The clock is the database's, as for the retention."""

log = structlog.stdlib.get_logger(__name__)


class StateOwners:
    """One process's view of the claims.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, store: StateStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._said_at: dict[UUID, float] = {}

    def is_own(self, connection: Connection, query_id: UUID) -> bool:
        """Whether this database owns the state of a query; it writes a claim if no other database has a fresh one.

        Args:
            connection: in autocommit mode.
            query_id: whose.

        Raises:
            ExternalError: the place cannot be reached now.
        """
        said_at = self._said_at.get(query_id)
        if said_at is not None and self._clock() - said_at < SAID_FOR_S:
            return True
        database, now_s = _database(connection)
        who, at_s = _said(self._store.owner(str(query_id)))
        if who not in (None, database) and now_s - at_s < OTHERS_S:
            self._said_at.pop(query_id, None)
            log.warning("state_is_another_databases", query_id=str(query_id), place=str(self._store), owner=who)
            return False
        self._store.note_owner(str(query_id), json.dumps({"database": database, "at": now_s}).encode())
        self._said_at[query_id] = self._clock()
        return True


def _database(connection: Connection) -> tuple[str, float]:
    row = connection.execute(_LOOK).fetchone()
    assert row is not None  # noqa: S101 - one row
    return str(row[0]), float(row[1])


def _said(content: bytes | None) -> tuple[str | None, float]:
    """Return the owner, and the time of its claim; no owner if the claim cannot be read."""
    try:
        said = json.loads(content or b"")
        return str(said["database"]), float(said["at"])
    except (ValueError, KeyError, TypeError):
        return None, 0.0
