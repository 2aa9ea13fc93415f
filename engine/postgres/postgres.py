"""One connection per process, database and purpose: for readers, in Spark's workers too, and for launches.

Workers are short-lived processes that serve many queries; a pool in each would be many connections for little use.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from engine.errors import SourceUnavailable
from engine.postgres.fence import SINK
from engine.postgres.links import LinkedConnection, is_usable

Connection = psycopg.Connection[Any]

CONNECT_TIMEOUT_SECONDS = 10

IDLE_SECONDS = 60
"""Idle limit for connections that hold locks for which queries wait, see ``connect``."""

PATIENCE_SECONDS = 10.0
"""After this time without an answer the database is asked whether it still works on the statement. A failed batch is repeated as a whole,
so this time is long."""

READER: Final = "slackwater-reader"
LAUNCHES: Final = "slackwater-launch"

ENDED_BY_POSTGRES: Final = (psycopg.errors.IdleInTransactionSessionTimeout, psycopg.errors.TransactionTimeout)
"""Postgres ended the transaction, and the connection with it, for its age. psycopg does not count these as operational errors."""

DATABASE_AWAY: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    *ENDED_BY_POSTGRES,
)
"""Errors of a database that is away, restarts, or accepts no writes for now. It recovers by itself."""

_IDLE: dict[tuple[int, str, str], Connection] = {}
"""By process id too, because a forked worker must not use its parent's socket. Then by database and name."""


def connect(dsn: str, application_name: str, idle_s: int | None = None) -> Connection:
    """Open a connection in autocommit mode, named for ``pg_stat_activity``; see ``engine.postgres.links``.

    Args:
        dsn: the database.
        application_name: its name.
        idle_s: after this many seconds without a statement Postgres ends a transaction, with its locks, because this process or its network
            may be gone without a message. None: never.
    """
    options = {} if idle_s is None else {"options": f"-c idle_in_transaction_session_timeout={idle_s * 1000}"}
    return LinkedConnection.connect(
        dsn,
        **options,
        autocommit=True,
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        application_name=application_name,
        patience_s=PATIENCE_SECONDS,
    )


@contextmanager
def borrowed_connection(dsn: str, application_name: str) -> Iterator[Connection]:
    """Borrow this process's connection of that name, in autocommit mode; while it is borrowed, others get one that is closed afterwards."""
    key = (os.getpid(), dsn, application_name)
    connection = _IDLE.pop(key, None)
    try:
        if connection is not None and not is_usable(connection):
            connection.close()
            connection = None
        if connection is None:
            connection = connect(dsn, application_name)
        yield connection
    finally:
        if connection is not None:
            _take_back(key, connection)


@contextmanager
def shared_connection(dsn: str) -> Iterator[Connection]:
    """Borrow this process's connection for reading. The look-ahead thread may have it: see ``borrowed_connection``.

    Raises:
        SourceUnavailable: the database cannot be reached, or went away.
    """
    try:
        with borrowed_connection(dsn, READER) as connection:
            yield connection
    except DATABASE_AWAY as error:
        raise SourceUnavailable(f"the database cannot be read: {error}") from error


@atexit.register
def close_shared_connections() -> None:
    """Close this process's shared connections; the next reader opens another."""
    for key in [key for key in _IDLE if key[0] == os.getpid()]:
        _IDLE.pop(key).close()


def _take_back(key: tuple[int, str, str], connection: Connection) -> None:
    """Keep a returned connection, unless it is broken, busy, or another one is kept already."""
    is_idle = connection.info.transaction_status == TransactionStatus.IDLE
    if not is_idle or _IDLE.setdefault(key, connection) is not connection:
        connection.close()


PREPARED: Final = 2_000
"""Prepared statements that are kept: each query has a few of its own."""


class SinkLink:
    """The connection for commits of results: one for each slot. It is opened on first use, and may be closed from any thread.

    Args:
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
