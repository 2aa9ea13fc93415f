"""The newest part of every log that somebody follows, read once for all its followers.

A ``Tail`` stands for a followed log, however many clients follow it, and keeps a bounded part of what is new. One task of the process, the
``LogPoller``, looks for all: where the bell has rung, and by itself now and then. A follower that is further behind reads from the database
itself until it has caught up. An idle follower is an object that waits; it holds no connection.

Followers that begin at the same moment, as after a restart of the service, are one statement: where their logs end, and what each has still
to get where that is little.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import anyio
import psycopg
import psycopg_pool

from app.catalog.stored.log_pages import Connection
from app.db.database import bounded_reads, linked_pool
from app.db.notifications import Notifications
from app.db.shared_reads import SharedReads
from app.errors.app_errors import Unavailable
from app.following.tails.log_poller import LogPoller
from app.following.tails.new_entries import NewEntries
from app.following.tails.tail import Source, Tail

POOL_SIZE = 4
"""Connections for all followers of a process. They are used for moments; the rest of the service has its own."""

LOOKS = 2
"""Connections that only look for what is new, each with one statement: they wait for none of those that read much."""


@dataclass(frozen=True, slots=True)
class _FollowStart:
    """A log that somebody begins to follow, and from where."""

    source: Source
    start: tuple[int, ...] | None

    @property
    def id(self) -> Hashable:
        return self.source.id, self.start


class Tails:
    """All tails of a process, and the connections through which followers read.

    Args:
        dsn: the database.
        bell: tells of commits.
        read_timeout_ms: after it the database ends a statement.

    Attributes:
        is_closing: the service stops; streams end.
        streams: how many streams are open.
        reads: of followers that are at the same place.
    """

    def __init__(self, dsn: str, bell: Notifications, read_timeout_ms: int) -> None:
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
            dsn, {**options, "autocommit": True}, min_size=0, max_size=LOOKS
        )
        self._lookout = LogPoller(self._looks, self._pool, bell)
        self._asked: dict[type[Source], SharedReads] = {}
        self.reads = JoinedReads(self._pool.connection)

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

    async def look(self, source: Source, start: Sequence[int] | None = None) -> NewEntries:
        """Return where a log ends now; whoever asks at the same moment asks with the same statement.

        Args:
            source: the log.
            start: from there on, or from the oldest that there is, its items are wanted as well, where they are few; None: they are not.

        Raises:
            Unavailable: the source is being changed.
        """
        kind = type(source)
        asked = self._asked.get(kind)
        if asked is None:
            asked = self._asked[kind] = SharedReads(self._look_up)
        news: Any = await asked.read(_FollowStart(source, None if start is None else tuple(start)))
        if isinstance(news, Unavailable):
            raise news
        found: NewEntries = news
        return found

    async def _look_up(self, asked: list[_FollowStart]) -> tuple[NewEntries | Unavailable, ...]:
        distinct = {each.id: each for each in asked}
        sources, starts = [each.source for each in distinct.values()], [each.start for each in distinct.values()]
        async with self._looks.connection() as connection:
            found = await sources[0].new_entries_of(connection, sources, starts, from_oldest=True)
        told = {key: _read_once(news) for key, news in zip(distinct, found, strict=True)}
        return tuple(told[each.id] for each in asked)

    @asynccontextmanager
    async def following(self, source: Source, news: NewEntries) -> AsyncIterator[Tail]:
        """Yield the source's tail, which runs while somebody follows.

        Args:
            source: what is followed.
            news: of a moment ago: the tail begins at its end or earlier.
        """
        if source.id not in self._tails:
            tail = self._tails[source.id] = Tail(source, [next_offset for _, next_offset in news.heads])
            tail.is_gone = not news.heads
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


def _read_once(news: NewEntries | Unavailable) -> NewEntries | Unavailable:
    """Let all who get it read it as one."""
    return news if isinstance(news, Unavailable) or news.read is None else replace(news, read=cache(news.read))


async def _consistent(connection: Connection) -> None:
    """A transaction sees one moment: a position must be that of the rows beside it."""
    await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
    await connection.set_read_only(True)


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
