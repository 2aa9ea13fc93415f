"""The database: its migrations, and the pools the service speaks through.

Control-plane transactions are synchronous and run in FastAPI's worker threads: they share one transaction with the connectors'
synchronous DDL (views, feeds), and each statement then exists once. Reads and appends, the hot paths, are asynchronous.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg
import psycopg_pool
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import app
from app.store.schema_version import refuse_newer
from engine.connectors.links import LinkedAsyncConnection, LinkedConnection, is_usable

# Any number, the same in every process: two processes that start together must not migrate together.
MIGRATION_LOCK = 0x51AC
CONNECT_TIMEOUT_SECONDS = 10

# A client waits behind each of these: it shall hear within seconds that the database is away, and when it is back find no pool that still
# pauses between attempts.
LINK_OPTIONS = {"connect_timeout": 4, "patience_s": 2.0}
POOL_PATIENCE_SECONDS = 6.0
# A connection that died in the middle of a transaction holds its locks until the database notices; an append's lock stops its whole feed.
APPEND_OPTIONS = {"options": "-c idle_in_transaction_session_timeout=15000"}
TRANSACTION_OPTIONS = {"options": "-c idle_in_transaction_session_timeout=60000"}


def migrate(dsn: str) -> None:
    """Bring the schema to this version. Safe to call from several processes at once; does nothing when it is current, or newer and fits.

    Raises:
        SchemaTooNew: a newer version has upgraded it.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(app.__file__).resolve().parent.parent / "migrations"))
    config.set_main_option("sqlalchemy.url", sqlalchemy_url(dsn).render_as_string(hide_password=False).replace("%", "%%"))
    with psycopg.connect(dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS) as lock:
        lock.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
        schema = refuse_newer(lock)
        if schema.is_behind:
            command.upgrade(config, "head")


def sqlalchemy_url(dsn: str) -> sa.URL:
    """Return the DSN as SQLAlchemy wants it: the same, with psycopg 3 named as driver."""
    return sa.make_url(dsn).set(drivername="postgresql+psycopg")


@dataclass(frozen=True, slots=True)
class Database:
    """The pools of one service.

    Attributes:
        dsn: for connections of their own (LISTEN).
        control: synchronous; one ``begin()`` is one control-plane transaction.
        turns: to be taken before ``control`` is: as many as it has connections. A worker thread that waited for a connection would be
            missing to those who have one and need a thread to go on.
        reads: asynchronous; pull reads and pages.
        appends: asynchronous psycopg connections of the appender.
        pulls: the same for reads of rows: one statement each, so without transactions, and read only.
    """

    dsn: str
    control: sa.Engine
    turns: asyncio.Semaphore
    reads: AsyncEngine
    appends: psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection]
    pulls: psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection]

    @classmethod
    def create(cls, dsn: str, pool_size: int) -> Self:
        """Build the pools without connecting; ``open`` connects."""
        url = sqlalchemy_url(dsn)
        sizes = {"pool_size": pool_size, "max_overflow": pool_size, "pool_timeout": POOL_PATIENCE_SECONDS}
        given = {**LINK_OPTIONS, **TRANSACTION_OPTIONS}
        linked = {**given, "async_creator_fn": LinkedAsyncConnection.connect}
        control = sa.create_engine(url, pool_pre_ping=True, connect_args=given, **sizes)
        event.listen(control, "do_connect", lambda _dialect, _record, args, options: LinkedConnection.connect(*args, **options))
        return cls(
            dsn=dsn,
            control=control,
            turns=asyncio.Semaphore(2 * pool_size),
            reads=create_async_engine(url, pool_pre_ping=True, connect_args=linked, **sizes),
            appends=linked_pool(dsn, APPEND_OPTIONS, max_size=pool_size),
            pulls=linked_pool(dsn, {"autocommit": True}, max_size=pool_size, configure=_read_only),
        )

    async def open(self) -> None:
        """Open the pools of the hot paths; the others connect on first use."""
        await self.appends.open()
        await self.pulls.open()

    async def close(self) -> None:
        """Close every connection."""
        await self.appends.close()
        await self.pulls.close()
        await self.reads.dispose()
        self.control.dispose()


class LinkedPool(psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection]):
    """A pool that gives no connection which the database has ended.

    The pool's own check asks the database each time, and pauses longer and longer between one dead connection and the next.
    """

    async def getconn(self, timeout: float | None = None) -> psycopg.AsyncConnection:
        """See ``AsyncConnectionPool``. Dead ones give way to new ones at once."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            connection = await super().getconn(max(0.0, deadline - time.monotonic()))
            if is_usable(connection):
                return connection
            await connection.close()
            await self.putconn(connection)


def linked_pool(dsn: str, options: Mapping[str, Any] | None = None, *, min_size: int = 1, **pooling: Any) -> LinkedPool:
    """Build a pool, not open yet, whose connections notice a database that is gone, and that tries anew for each who asks."""
    return LinkedPool(
        dsn,
        connection_class=LinkedAsyncConnection,
        kwargs={**LINK_OPTIONS, **(options or {})},
        min_size=min_size,
        timeout=POOL_PATIENCE_SECONDS,
        reconnect_timeout=POOL_PATIENCE_SECONDS,
        open=False,
        **pooling,
    )


async def _read_only(connection: psycopg.AsyncConnection) -> None:
    await connection.execute("SET default_transaction_read_only = on")
