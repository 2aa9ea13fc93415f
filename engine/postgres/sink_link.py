"""The connection for commits of results: one for each slot, whose queries use it one after another."""

from __future__ import annotations

import threading
from typing import Any, Final

import psycopg

from engine.postgres.fence import SINK
from engine.postgres.links import is_usable
from engine.postgres.postgres import connect

PREPARED: Final = 2_000
"""Prepared statements that are kept: each query has a few of its own."""


class SinkLink:
    """A connection that is opened on first use. May be closed from any thread.

    Args:
        dsn: the database.
        lock_s: how long a statement waits for a foreign lock; None: without limit.
    """

    def __init__(self, dsn: str, lock_s: float | None = None) -> None:
        self._dsn, self._lock_s = dsn, lock_s
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None

    def connection(self) -> psycopg.Connection[Any]:
        """Return the connection, a new one if it is broken."""
        with self._lock:
            found = self._connection
        if found is not None and not is_usable(found):
            self.close()
            found = None
        if found is None:
            found = connect(self._dsn, SINK)
            found.prepared_max = PREPARED
            if self._lock_s is not None:
                found.execute("SELECT set_config('lock_timeout', %s, false)", (f"{self._lock_s:g}s",))
            with self._lock:
                self._connection = found
        return found

    @property
    def is_lost(self) -> bool:
        """Whether there is no working connection."""
        with self._lock:
            return self._connection is None or self._connection.closed

    def close(self) -> None:
        """Close it; the next use opens another one."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
