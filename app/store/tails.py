"""The newest part of every log that somebody follows, read once for all its followers.

A ``Tail`` stands for a followed log, however many clients follow it, and keeps a bounded part of what is new. One task of the process, the
``Lookout``, looks for all: where the bell has rung, and by itself now and then. A follower that is further behind reads from the database
itself until it has caught up. An idle follower is an object that waits; it holds no connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import psycopg
import psycopg_pool

from app.errors import Unavailable
from app.store.bell import Bell
from app.store.change_log import Connection
from app.store.database import bounded_reads, linked_pool
from app.store.lookout import Lookout
from app.store.tail import Source, Tail

POOL_SIZE = 4
"""Connections for all followers of a process. They are used for moments; the rest of the service has its own."""


class Tails:
    """All tails of a process, and the connections through which followers read.

    Args:
        dsn: the database.
        bell: tells of commits.
        read_timeout_ms: after it the database ends a statement.

    Attributes:
        is_closing: the service stops; streams end.
        streams: how many streams are open.
    """

    def __init__(self, dsn: str, bell: Bell, read_timeout_ms: int) -> None:
        self._tails: dict[Hashable, Tail] = {}
        self._looking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_closing = False
        self.streams = 0
        options = {
            "options": f"-c timezone=UTC {bounded_reads(read_timeout_ms)['options']}",
            "application_name": "slackwater-push",
        }
        self._pool: psycopg_pool.AsyncConnectionPool[Connection] = linked_pool(
            dsn, options, min_size=0, max_size=POOL_SIZE, configure=_consistent
        )
        self._looks: psycopg_pool.AsyncConnectionPool[Connection] = linked_pool(
            dsn, {**options, "autocommit": True}, min_size=0, max_size=1
        )
        self._lookout = Lookout(self._looks, self._pool, bell)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count an open stream for the length of a block."""
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    @property
    def followed(self) -> int:
        """How many logs are followed."""
        return len(self._tails)

    async def __aenter__(self) -> Tails:
        self._loop = asyncio.get_running_loop()
        await self._pool.open()
        await self._looks.open()
        self._looking = asyncio.create_task(self._lookout.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self._looks.close()
        await self._pool.close()

    def close(self) -> None:
        """Let every follower end. Safe to call from a signal handler or another thread."""
        self.is_closing = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for tail in self._tails.values():
            tail.wake()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """Lend a connection for a moment, to be given back whole: a client that leaves does not break it off."""
        with anyio.CancelScope(shield=True):
            async with self._pool.connection() as connection:
                yield connection

    @asynccontextmanager
    async def following(self, source: Source) -> AsyncIterator[Tail]:
        """Yield the source's tail; it begins at the source's present end or earlier, and runs while somebody follows."""
        if source.id not in self._tails:
            async with self.reading() as connection:
                (heads,) = await source.heads_of(connection, [source])
            if isinstance(heads, Unavailable):
                raise heads
            if source.id not in self._tails:  # another follower can have come while we looked
                tail = self._tails[source.id] = Tail(source, [next_offset for _, next_offset in heads])
                tail.is_gone = not heads
                if not tail.is_gone:  # there is nothing to look for, and no end to look from
                    self._lookout.add(tail)
        tail = self._tails[source.id]
        tail.followers += 1
        try:
            yield tail
        finally:
            tail.followers -= 1
            if not tail.followers and self._tails.get(source.id) is tail:
                del self._tails[source.id]
                self._lookout.remove(tail)


async def _consistent(connection: Connection) -> None:
    """A transaction sees one moment: a position must be that of the rows beside it."""
    await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
    await connection.set_read_only(True)
