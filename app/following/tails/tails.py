"""The newest entries of every followed log, read once for all its followers.

There is one ``Tail`` for a followed log, whatever the number of its clients. A tail keeps a bounded part of the new entries. One task of the
process, the ``LogPoller``, reads for all tails: after notifications, and from time to time. A follower that is further behind reads from the
database itself until it has caught up. An idle follower is an object that waits; it uses no connection.

Followers that begin at the same moment, for example after a restart of the service, share one statement. It reads where their logs end, and
the entries that each follower still needs, if they are few.
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

from app.catalog.stored.feeds_read import Connection
from app.db.database import bounded_reads, linked_pool
from app.db.notifications import Notifications
from app.db.shared_reads import SharedReads
from app.errors.app_errors import Unavailable
from app.following.tails.log_poller import LogPoller
from app.following.tails.new_entries import NewEntries
from app.following.tails.tail import Source, Tail

POOL_SIZE = 4
"""Connections for all followers of a process. Each use is short; the rest of the service has its own pools."""

LOOKS = 2
"""Connections of the poller alone, each with one statement: they never wait for long reads."""


@dataclass(frozen=True, slots=True)
class _FollowStart:
    """A log, and the position where a follower begins."""

    source: Source
    start: tuple[int, ...] | None

    @property
    def id(self) -> Hashable:
        return self.source.id, self.start


class Tails:
    """All tails of a process, and the connections for reads of followers.

    Attributes:
        is_closing: the service stops; streams end.
        reads: shared reads of followers at the same position.
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
        self._poller = LogPoller(self._looks, self._pool, bell)
        self._shared_reads: dict[type[Source], SharedReads] = {}
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
        return len(self._tails)

    async def __aenter__(self) -> Tails:
        self._loop = asyncio.get_running_loop()
        await self._pool.open()
        await self._looks.open()
        self._looking = asyncio.create_task(self._poller.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self._looks.close()
        await self._pool.close()

    def close(self) -> None:
        """End every follower. Safe to call from a signal handler or another thread."""
        self.is_closing = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for tail in self._tails.values():
            tail.wake()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """Yield a connection for a short read. A client that disconnects does not interrupt it."""
        with anyio.CancelScope(shield=True):
            async with self._pool.connection() as connection:
                yield connection

    async def look(self, source: Source, start: Sequence[int] | None = None) -> NewEntries:
        """Return where a log ends now. Concurrent calls share one statement.

        Args:
            source: the log.
            start: also read the entries from here, or from the oldest one, if they are few; None: do not read them.

        Raises:
            Unavailable: the source is being changed.
        """
        kind = type(source)
        shared = self._shared_reads.get(kind)
        if shared is None:
            shared = self._shared_reads[kind] = SharedReads(self._look_up)
        entries: Any = await shared.read(_FollowStart(source, None if start is None else tuple(start)))
        if isinstance(entries, Unavailable):
            raise entries
        found: NewEntries = entries
        return found

    async def _look_up(self, requests: list[_FollowStart]) -> tuple[NewEntries | Unavailable, ...]:
        distinct = {each.id: each for each in requests}
        sources, starts = [each.source for each in distinct.values()], [each.start for each in distinct.values()]
        async with self._looks.connection() as connection:
            entries = await sources[0].new_entries_of(connection, sources, starts, from_oldest=True)
        entries_by_id = {key: _read_once(news) for key, news in zip(distinct, entries, strict=True)}
        return tuple(entries_by_id[each.id] for each in requests)

    @asynccontextmanager
    async def following(self, source: Source, news: NewEntries) -> AsyncIterator[Tail]:
        """Yield the tail of a source. The tail exists as long as it has followers.

        Args:
            source: the log.
            news: a recent poll of the log: the tail begins at its end or earlier.
        """
        if source.id not in self._tails:
            tail = self._tails[source.id] = Tail(source, [next_offset for _, next_offset in news.heads])
            tail.is_gone = not news.heads
            if not tail.is_gone:  # the poller needs an end to begin at
                self._poller.add(tail)
        tail = self._tails[source.id]
        tail.followers += 1
        try:
            yield tail
        finally:
            tail.followers -= 1
            if not tail.followers and self._tails.get(source.id) is tail:
                del self._tails[source.id]
                self._poller.remove(tail)


def _read_once(news: NewEntries | Unavailable) -> NewEntries | Unavailable:
    """Let all followers share one read of the entries."""
    return news if isinstance(news, Unavailable) or news.read is None else replace(news, read=cache(news.read))


async def _consistent(connection: Connection) -> None:
    """Make a transaction see one snapshot: a position must belong to the rows read with it."""
    await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
    await connection.set_read_only(True)


T = TypeVar("T")


class JoinedReads:
    """Reads through one pool. Concurrent reads of the same request share one task."""

    def __init__(self, lend: Callable[[], AbstractAsyncContextManager[Connection]]) -> None:
        self._open_connection = lend
        self._waiting: dict[Hashable, asyncio.Task[Any]] = {}

    async def read(self, wanted: Hashable, how: Callable[[Connection], Awaitable[T]]) -> T:
        """Return the result of a read. A reader that leaves does not interrupt it.

        Raises:
            Exception: any error of ``how``.
        """
        reading = self._waiting.get(wanted)
        if reading is None:
            reading = self._waiting[wanted] = asyncio.create_task(self._read(wanted, how))
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())  # there may be no reader any more
        result: T = await asyncio.shield(reading)
        return result

    async def _read(self, wanted: Hashable, how: Callable[[Connection], Awaitable[T]]) -> T:
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(self._open_connection())
            finally:
                del self._waiting[wanted]
            return await how(connection)
