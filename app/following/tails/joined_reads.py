"""Reads of the same thing that wait for a connection at the same moment, done once.

Whoever comes before a read has begun gets what it finds: that is of a later moment. Once it has begun, the next one begins another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar

from app.catalog.stored.log_pages import Connection

T = TypeVar("T")


class JoinedReads:
    """Reads through one pool.

    Args:
        lend: lends a connection for a moment.
    """

    def __init__(self, lend: Callable[[], AbstractAsyncContextManager[Connection]]) -> None:
        self._lend = lend
        self._waiting: dict[Hashable, asyncio.Task[Any]] = {}

    async def read(self, wanted: Hashable, how: Callable[[Connection], Awaitable[T]]) -> T:
        """Return what is read; a reader that leaves does not break it off.

        Args:
            wanted: tells what is read from everything else.
            how: reads it.

        Raises:
            Exception: whatever ``how`` raises.
        """
        reading = self._waiting.get(wanted)
        if reading is None:
            reading = self._waiting[wanted] = asyncio.create_task(self._read(wanted, how))
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())  # all readers may have left
        found: T = await asyncio.shield(reading)
        return found

    async def _read(self, wanted: Hashable, how: Callable[[Connection], Awaitable[T]]) -> T:
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(self._lend())
            finally:
                del self._waiting[wanted]
            return await how(connection)
