"""Permits for a pool of connections: as many as the pool has, and at most half of them for slow work.

A request without a permit does not wait for a connection. So a worker thread never waits for a connection while the owners of all connections
need a thread to continue. Slow work always leaves connections for fast work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.errors.app_errors import Unavailable

PATIENCE_SECONDS = 10.0
"""Longer than a hundred simultaneous edits take. While the database is unreachable, requests must not wait for each other's timeouts."""


class Turns:
    """Permits of one event loop."""

    def __init__(self, size: int) -> None:
        self._all = asyncio.Semaphore(size)
        self._long = asyncio.Semaphore(max(1, size // 2))

    @asynccontextmanager
    async def taken(self, *, is_long: bool = False) -> AsyncIterator[None]:
        """Hold a permit for the duration of the block.

        Raises:
            Unavailable: ``database_busy``: no permit was free for ``PATIENCE_SECONDS``.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                if is_long:
                    await self._long.acquire()
                try:
                    await self._all.acquire()
                except BaseException:
                    if is_long:
                        self._long.release()
                    raise
        except TimeoutError as error:
            raise database_busy() from error
        try:
            yield
        finally:
            self._all.release()
            if is_long:
                self._long.release()


def database_busy() -> Unavailable:
    """Return the error for a request without a free connection, as opposed to an unreachable database."""
    return Unavailable(
        "database_busy",
        "other requests use every connection of this process that this request may use; try again in a moment, with fewer requests at once "
        "(SLACKWATER_POOL_SIZE)",
        headers={"Retry-After": "1"},
    )
