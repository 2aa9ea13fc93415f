"""Which database looks after the state of a query: what that does not name may be removed, and nothing for what another one names.

A dump that is put into another database has the same queries, and may find their state where it is: in an object store, or in a directory. Each
of the two names segments that the other does not know. So who looks after a query's state says so beside it, again and again, and another
database removes nothing for as long as that was said lately. It takes over where nobody has said so for ``OTHERS_S``: the original is gone.
A standby that was promoted is the same database.
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
"""How often it is said: seldom enough that it costs nothing, and often within ``OTHERS_S``."""

OTHERS_S: Final = 24 * 3_600.0
"""A service that stands still for longer, while a copy of it works in the same place, loses its claim."""

_LOOK: Final = """
SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()), (SELECT oid FROM pg_database WHERE datname = current_database()),
    'log.commit'::regclass::oid), extract(epoch FROM now())::double precision
"""
"""Cluster, database and table: a restored dump makes the table anew. The clock is the database's, as that of the retention is."""

log = structlog.stdlib.get_logger(__name__)


class StateOwners:
    """What one process knows of it.

    Args:
        store: the place of the state of all queries.
        clock: monotonic seconds.
    """

    def __init__(self, store: StateStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._said_at: dict[UUID, float] = {}

    def is_own(self, connection: Connection, query_id: UUID) -> bool:
        """Whether the state of a query is looked after by this database, which says so where nobody else has lately.

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
    """Return who looks after the state, and when that was said; nobody where it cannot be read."""
    try:
        said = json.loads(content or b"")
        return str(said["database"]), float(said["at"])
    except (ValueError, KeyError, TypeError):
        return None, 0.0
