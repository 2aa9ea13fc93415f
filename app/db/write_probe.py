"""Checks whether the database accepts writes. A database that answers reads may be a replica, read only, or have a full disk."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

REUSED_S: Final = 1.0
"""`/readyz` needs no key: whatever its rate, the database does this work at most once a second."""

TIMEOUT_MS: Final = 2_000
"""Of each statement, by the database."""

ATTEMPT_S: Final = 5.0
"""Of the whole attempt: no timeout of the database limits a commit that waits for its disk or a replica."""

_SQL: Final = f"""
SET LOCAL statement_timeout = {TIMEOUT_MS};
SET LOCAL work_mem = '64kB';
SELECT count(*) FROM (SELECT md5(n::text) FROM generate_series(1, 8192) AS n ORDER BY 1 OFFSET 0) AS sorted;
UPDATE slackwater.query SET name = name WHERE false;
SELECT pg_current_xact_id()
"""  # noqa: S608 - made of a constant
"""The sort does not fit into its memory, so Postgres writes about half a megabyte to its disk and removes it again: no table grows. The
update of no row fails where transactions are read only. The identifier makes the commit write to the log, which a replica refuses."""


class WriteProbe:
    """Tries a write, at most once a second; concurrent callers share one attempt."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._lock = asyncio.Lock()
        self._tried_at = -REUSED_S
        self._error: Exception | None = None

    async def check(self) -> None:
        """Return if the database accepts writes.

        Raises:
            TimeoutError: it took longer than ``TIMEOUT_MS``.
            SQLAlchemyError, psycopg.Error, OSError: the database, or the way to it, refused the write.
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
