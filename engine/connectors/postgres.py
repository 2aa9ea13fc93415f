"""One connection per process and database, for readers that run in Spark's workers.

Workers are processes that come and go and serve many queries; a pool each would be many connections for little.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from engine.connectors.links import LinkedConnection, is_usable
from engine.errors import SourceUnavailable

Connection = psycopg.Connection[Any]

CONNECT_TIMEOUT_SECONDS = 10

IDLE_SECONDS = 60
"""For those who hold locks that queries wait for, see ``connect``."""

PATIENCE_SECONDS = 10.0
"""After this time without an answer the database is asked whether it still works on it. A batch that is given up is repeated as a whole,
so there is no haste."""

_IDLE: dict[tuple[int, str], Connection] = {}
"""Keyed by process id too: a forked worker must not speak on its parent's socket."""


def connect(dsn: str, application_name: str, idle_s: int | None = None) -> Connection:
    """Open a connection in autocommit mode, named for ``pg_stat_activity``; see ``engine.connectors.links``.

    Args:
        dsn: the database.
        application_name: its name.
        idle_s: after so many seconds without a statement Postgres ends a transaction, with its locks: this process, or the way to it, may be
            gone without a word. None: never.
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
def shared_connection(dsn: str) -> Iterator[Connection]:
    """Lend this process's connection for reading; who asks while it is lent (the thread that looks ahead) gets one that is closed afterwards.

    Raises:
        SourceUnavailable: the database cannot be reached, or went away.
    """
    key = (os.getpid(), dsn)
    connection = _IDLE.pop(key, None)
    try:
        if connection is not None and not is_usable(connection):
            connection.close()
            connection = None
        if connection is None:
            connection = connect(dsn, "slackwater-reader")
        yield connection
    except psycopg.OperationalError as error:
        raise SourceUnavailable(f"the database cannot be read: {error}") from error
    finally:
        if connection is not None:
            _take_back(key, connection)


@atexit.register
def close_shared_connections() -> None:
    """Close this process's shared connections; the next reader opens another."""
    for key in [key for key in _IDLE if key[0] == os.getpid()]:
        _IDLE.pop(key).close()


def _take_back(key: tuple[int, str], connection: Connection) -> None:
    """Keep a connection, unless it is broken, in the middle of something, or one is kept already."""
    is_idle = connection.info.transaction_status == TransactionStatus.IDLE
    if not is_idle or _IDLE.setdefault(key, connection) is not connection:
        connection.close()
