"""A small connection pool for many deliveries. A delivery borrows one for a step in the database, never while it waits for a target."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from engine.postgres.postgres import Connection, connect


class Lender:
    """Lends connections to threads; a thread waits if none is free.

    Args:
        dsn: of the database.
        most: maximum of connections. It also bounds the batches of results in memory, because each batch is read through one.
    """

    def __init__(self, dsn: str, most: int) -> None:
        self._dsn = dsn
        self._free = threading.BoundedSemaphore(most)
        self._idle: list[Connection] = []

    @contextmanager
    def borrowed(self) -> Iterator[Connection]:
        """Yield a connection in autocommit mode. It is closed if the block raises.

        Raises:
            psycopg.OperationalError: the database cannot be reached.
        """
        with self._free:
            # append and pop of a list need no lock.
            connection = self._idle.pop() if self._idle else connect(self._dsn, "slackwater-delivery")
            try:
                yield connection
            except BaseException:
                with suppress(psycopg.Error):
                    connection.close()
                raise
            self._idle.append(connection)

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            with suppress(psycopg.Error):
                self._idle.pop().close()
