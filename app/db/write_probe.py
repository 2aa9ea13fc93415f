"""Whether the database takes writes now. A database that only answers may be a replica, read only, or have a full disk."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

REUSED_S: Final = 1.0
"""`/readyz` asks for no key: however often it is asked, the database does this work once a second."""

TIMEOUT_MS: Final = 2_000
"""Of each statement, by the database."""

ATTEMPT_S: Final = 5.0
"""Of the whole attempt: no time-out of the database bounds a commit that waits for its disk or a replica."""

_SQL: Final = f"""
SET LOCAL statement_timeout = {TIMEOUT_MS};
SET LOCAL work_mem = '64kB';
SELECT count(*) FROM (SELECT md5(n::text) FROM generate_series(1, 8192) AS n ORDER BY 1 OFFSET 0) AS sorted;
UPDATE slackwater.query SET name = name WHERE false;
SELECT pg_current_xact_id()
"""  # noqa: S608 - made of a constant
"""The sort does not fit into its memory, so Postgres writes about half a megabyte to its disk and removes it again: no table grows. The
update of no row is refused where transactions are read only. The identifier makes the commit write to the log; a replica refuses it."""


class WriteProbe:
    """Tries a write, at most once a second; callers at the same time share one attempt.

    Args:
        engine: where it is tried.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._lock = asyncio.Lock()
        self._tried_at = -REUSED_S
        self._error: Exception | None = None

    async def check(self) -> None:
        """Return when the database takes writes.

        Raises:
            TimeoutError: it took longer than ``TIMEOUT_MS``.
            SQLAlchemyError, psycopg.Error, OSError: what the database, or the way to it, refused the write with.
        """
        async with self._lock:
            if time.monotonic() - self._tried_at >= REUSED_S:
                self._error = await self._try()
                self._tried_at = time.monotonic()
        if self._error is not None:
            raise self._error

    async def _try(self) -> Exception | None:
        try:
            async with asyncio.timeout(ATTEMPT_S), self._engine.begin() as connection:
                await connection.exec_driver_sql(_SQL)
        except TimeoutError:
            return TimeoutError(f"a small write was not answered within {ATTEMPT_S:g} s")
        except (sa.exc.SQLAlchemyError, psycopg.Error, OSError) as error:
            if isinstance(error, sa.exc.DBAPIError) and isinstance(error.orig, psycopg.errors.QueryCanceled):
                return TimeoutError(f"a small write took longer than {TIMEOUT_MS} ms")
            return error
        return None
