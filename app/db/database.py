"""The database: its migrations, and the connection pools of the service.

Control-plane transactions are synchronous and run in FastAPI's worker threads. They share one transaction with the connectors' synchronous
DDL (views, feeds), so each statement exists only once. Reads and appends, the hot paths, are asynchronous.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import psycopg
import psycopg_pool
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

import app
from app.db.admission import Turns
from app.db.schema_version import SchemaVersion, refuse_unknown
from app.settings.settings import Settings
from engine.deliveries.deliveries import DeliveryContext
from engine.postgres.links import LinkedAsyncConnection, LinkedConnection, is_usable
from engine.postgres.postgres import DATABASE_AWAY
from engine.postgres.schemas import schemas_of
from engine.sources.control import ServiceContext

# Any number, the same in every process: two processes that start at the same time must not migrate at the same time.
MIGRATION_LOCK = 0x51AC
_DIALECT = "postgresql+psycopg://"
CONNECT_TIMEOUT_SECONDS = 10

# A client waits behind each of these. It should learn within seconds that the database is unreachable, and no pool should pause between
# attempts once the database is back.
LINK_OPTIONS = {"connect_timeout": 4, "patience_s": 2.0}
POOL_PATIENCE_SECONDS = 6.0
# A connection that died in a transaction keeps its locks until the database notices; an append's lock blocks its whole feed.
APPEND_OPTIONS = {"options": "-c idle_in_transaction_session_timeout=15000"}
TRANSACTION_OPTIONS = {"options": "-c idle_in_transaction_session_timeout=60000"}


AWAY = (*DATABASE_AWAY, psycopg_pool.PoolTimeout)
"""The database or the connection to it failed: the same request succeeds once the database is back."""


def migrate(dsn: str) -> SchemaVersion:
    """Migrate the schema to this version. Several processes may call it at once; it does nothing for a current schema.

    Returns:
        The schema's version before.

    Raises:
        SchemaVersionUnknown: another version made the schema.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(app.__file__).resolve().parent.parent / "migrations"))
    config.attributes["dsn"] = dsn
    with LinkedConnection.connect(dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS) as lock:
        lock.execute("SELECT pg_advisory_lock(%s)", (lock.schemas.lock(MIGRATION_LOCK),))
        schema = refuse_unknown(lock)
        if schema.is_behind:
            command.upgrade(config, "head")
        return schema


def engine_for(dsn: str, options: Mapping[str, Any] | None = None, **pooling: Any) -> sa.Engine:
    """Build an engine whose connections are opened from the DSN and the options of a connection.

    SQLAlchemy would let the options replace those of the DSN.
    """
    return sa.create_engine(_DIALECT, creator=lambda: LinkedConnection.connect(dsn, **(options or {})), **pooling)


def async_engine_for(dsn: str, options: Mapping[str, Any] | None = None, **pooling: Any) -> AsyncEngine:
    return create_async_engine(_DIALECT, async_creator=lambda: LinkedAsyncConnection.connect(dsn, **(options or {})), **pooling)


@contextmanager
def single_transaction(dsn: str) -> Iterator[sa.Connection]:
    """Open a connection for one transaction, for commands, which have no pools."""
    engine = engine_for(dsn, poolclass=sa.NullPool)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@dataclass(frozen=True, slots=True)
class Database:
    """The pools of one service. Slow work and fast work have separate pools.

    Attributes:
        dsn: for separate connections (LISTEN).
        control: synchronous; one ``begin()`` is one transaction that changes relations or queries.
        control_turns: permits to take before ``control``.
        inspection: synchronous; one ``begin()`` is one read-only transaction about relations or queries.
        inspection_turns: permits to take before ``inspection``.
        reads: asynchronous; API keys, statuses, metrics, and pages.
        page_turns: permits to take before pages are read through ``reads``.
        appends: asynchronous psycopg connections of the appender, which opens a transaction if it needs several statements.
        lookups: the same for rows by key: one statement each, so without transactions, and read only.
        scans: the same for reads that may scan many rows.
    """

    dsn: str
    control: sa.Engine
    control_turns: Turns
    inspection: sa.Engine
    inspection_turns: Turns
    reads: AsyncEngine
    page_turns: Turns
    appends: psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection]
    lookups: psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection]
    scans: psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection]

    @classmethod
    def create(cls, dsn: str, pool_size: int, read_timeout_ms: int) -> Self:
        """Build the pools without connecting; ``open`` connects."""
        read_options = bounded_reads(read_timeout_ms)
        autocommit_reads = {**read_options, "autocommit": True}
        return cls(
            dsn=dsn,
            control=_engine(dsn, pool_size, TRANSACTION_OPTIONS),
            control_turns=Turns(pool_size),
            inspection=_engine(dsn, pool_size, read_options),
            inspection_turns=Turns(pool_size),
            reads=async_engine_for(
                dsn,
                {**LINK_OPTIONS, **bounded_reads(read_timeout_ms, is_read_only=False)},  # the last use of a key is recorded
                pool_pre_ping=True,
                **_sizes(pool_size),
            ),
            page_turns=Turns(pool_size),
            appends=linked_pool(dsn, {**APPEND_OPTIONS, "autocommit": True}, max_size=pool_size),
            lookups=linked_pool(dsn, autocommit_reads, max_size=pool_size),
            scans=linked_pool(dsn, autocommit_reads, max_size=pool_size),
        )

    async def open(self) -> None:
        """Open the pools of the hot paths; the others connect on their first use."""
        for pool in (self.appends, self.lookups, self.scans):
            await pool.open()

    async def close(self) -> None:
        for pool in (self.appends, self.lookups, self.scans):
            await pool.close()
        await self.reads.dispose()
        self.inspection.dispose()
        self.control.dispose()

    @asynccontextmanager
    async def paging(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection of ``reads`` for a page, which may be slow; at most half of the connections serve pages.

        Raises:
            Unavailable: ``database_busy``.
        """
        async with self.page_turns.taken(is_long=True), self.reads.connect() as connection:
            yield connection


def bounded_reads(timeout_ms: int, *, is_read_only: bool = True) -> dict[str, str]:
    """Return connection options for reads: the database cancels statements that take too long, or half as long for a lock."""
    read_only = "-c default_transaction_read_only=on " if is_read_only else ""
    limits = f"-c statement_timeout={timeout_ms} -c lock_timeout={max(1, timeout_ms // 2)} -c idle_in_transaction_session_timeout=60000"
    return {"options": read_only + limits}


def _engine(dsn: str, pool_size: int, options: Mapping[str, Any]) -> sa.Engine:
    return engine_for(dsn, {**LINK_OPTIONS, **options}, pool_pre_ping=True, **_sizes(pool_size))


def _sizes(pool_size: int) -> dict[str, Any]:
    return {"pool_size": pool_size, "max_overflow": 0, "pool_timeout": POOL_PATIENCE_SECONDS}


class PoolBusy(psycopg_pool.PoolTimeout):
    """Every connection of a pool is in use; the database itself may be reachable."""


class LinkedPool(psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection]):
    """A pool that never returns a connection which the database has closed.

    The pool's own check asks the database each time, and pauses longer after each dead connection.
    """

    _borrowed = 0

    async def getconn(self, timeout: float | None = None) -> psycopg.AsyncConnection:
        """See ``AsyncConnectionPool``. It replaces dead connections at once.

        Raises:
            PoolBusy: all connections were in use for the whole time.
            psycopg_pool.PoolTimeout: the database gives no connection.
        """
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            try:
                connection = await super().getconn(max(0.0, deadline - time.monotonic()))
            except psycopg_pool.PoolTimeout as error:
                if self._borrowed >= self.max_size:
                    raise PoolBusy(str(error)) from error
                raise
            self._borrowed += 1
            if is_usable(connection):
                return connection
            await connection.close()
            await self.putconn(connection)

    async def putconn(self, connection: psycopg.AsyncConnection) -> None:
        self._borrowed -= 1
        await super().putconn(connection)


def linked_pool(dsn: str, options: Mapping[str, Any] | None = None, *, min_size: int = 1, **pooling: Any) -> LinkedPool:
    """Build a pool, not open yet. Its connections notice a lost database, and it tries to connect for each request."""
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


# Any number, the same in every process. Such edits are rare and touch names, catalogs and readers, so one at a time is simple and correct.
EDIT_LOCK = 0x51AE


def lock_edits(connection: sa.Connection) -> None:
    """Lock against other edits of relations, queries and their readers; the lock lasts until the transaction ends."""
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(schemas_of(raw(connection)).lock(EDIT_LOCK))))


@contextmanager
def edit_of_one_moment(engine: sa.Engine, *, is_frozen: bool) -> Iterator[sa.Connection]:
    """Open the transaction of an edit that copies what queries have committed.

    The lock is taken before the transaction begins. A snapshot from before the wait for the lock would not show the previous edit.

    Args:
        engine: of edits.
        is_frozen: every statement sees the database as of the first one (REPEATABLE READ). It may fail with ``SerializationFailure``.
    """
    with engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(sa.select(sa.func.pg_advisory_lock(schemas_of(raw(connection)).lock(EDIT_LOCK))))
        connection.commit()
        try:
            connection.execution_options(isolation_level="REPEATABLE READ" if is_frozen else "READ COMMITTED")
            with connection.begin():
                yield connection
        finally:
            if not connection.invalidated:  # otherwise the session has ended, and its lock too
                connection.execution_options(isolation_level="AUTOCOMMIT")
                connection.execute(sa.select(sa.func.pg_advisory_unlock(schemas_of(raw(connection)).lock(EDIT_LOCK))))
                connection.commit()


def raw(connection: sa.Connection) -> psycopg.Connection[Any]:
    """Return the psycopg connection inside, for the connectors' statements in the same transaction."""
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)


def service_context_of(settings: Settings) -> ServiceContext:
    return ServiceContext(files_root=settings.files_root, dsn=settings.dsn)


def delivery_context_of(settings: Settings) -> DeliveryContext:
    """Return the context of outputs.

    Raises:
        ValueError: there is no database URL.
    """
    if (dsn := settings.dsn) is None:
        raise ValueError("outputs need a database_url")
    return DeliveryContext(dsn, settings.delivery_root, settings.secret_sources)
