"""Few connections to the database for many deliveries: lent for a step in the database, never while a target is waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from engine.postgres.postgres import Connection, connect


class Lender:
    """Lends connections to threads; whoever finds none free waits for one.

    Args:
        dsn: the database.
        most: how many there are at most. Each also bounds a batch of results that is read at the same time.
    """

    def __init__(self, dsn: str, most: int) -> None:
        self._dsn = dsn
        self._free = threading.BoundedSemaphore(most)
        self._idle: list[Connection] = []

    @contextmanager
    def borrowed(self) -> Iterator[Connection]:
        """Lend a connection in autocommit mode for the length of the block. One in which anything was raised is closed.

        Raises:
            psycopg.OperationalError: the database cannot be reached.
        """
        with self._free:
            # Appending to a list and taking from it need no lock.
            connection = self._idle.pop() if self._idle else connect(self._dsn, "slackwater-delivery")
            try:
                yield connection
            except BaseException:
                with suppress(psycopg.Error):
                    connection.close()
                raise
            self._idle.append(connection)

    def close(self) -> None:
        """Close what is not lent."""
        while self._idle:
            with suppress(psycopg.Error):
                self._idle.pop().close()
