"""Turns at a pool of connections: as many as it has, and only half of them for work that may take long.

Who has no turn does not ask the pool. So a worker thread never waits for a connection while those who have one need a thread to go on,
and what is slow always leaves connections to what is quick.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.errors.app_errors import Unavailable

PATIENCE_SECONDS = 10.0
"""Longer than a hundred edits at once take; while the database is away those who wait shall not wait for each other's timeouts."""


class Turns:
    """Turns of one event loop.

    Args:
        size: connections of the pool.
    """

    def __init__(self, size: int) -> None:
        self._all = asyncio.Semaphore(size)
        self._long = asyncio.Semaphore(max(1, size // 2))

    @asynccontextmanager
    async def taken(self, *, is_long: bool = False) -> AsyncIterator[None]:
        """Have a turn for the length of the block.

        Raises:
            Unavailable: ``database_busy``: others have all of them for too long.
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
    """Return the refusal of a request for which no connection is free, as opposed to a database that cannot be reached."""
    return Unavailable(
        "database_busy",
        "other requests use every connection of this process that this one could have; try again in a moment, with fewer at once "
        "(SLACKWATER_POOL_SIZE)",
        headers={"Retry-After": "1"},
    )
