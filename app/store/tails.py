"""The newest part of every log that somebody follows, read once for all its followers.

A ``Tail`` is one task per followed log, however many clients follow it: it is woken by the bell, looks by itself now and then, reads
what is new and keeps a bounded part of it. A follower that is further behind reads from the database itself until it has caught up.
An idle follower is an object that waits; it holds no connection.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Protocol
from uuid import UUID

import anyio
import psycopg
import psycopg_pool
import structlog

from app.errors import Unavailable
from app.store.bell import Bell
from app.store.change_log import Connection, Item, Stretch
from app.store.database import bounded_reads, linked_pool

KEPT_ITEMS = 20_000
KEPT_CHARS = 8 << 20
"""Bounds of a tail's memory: followers that are further behind read from the database."""

LOOK_AGAIN_SECONDS = 2.0
"""Of a log whose commits ring the bell: a notification can be lost."""

POLL_SECONDS = 0.25
"""Of a log that is appended to without ringing: sources, to which a notification per append would cost more than it is worth."""

RETRY_SECONDS = 1.0
POOL_SIZE = 4
"""Connections for all followers of a process. They are used for moments; the rest of the service has its own."""

log = structlog.stdlib.get_logger(__name__)


class Source(Protocol):
    """A log that can be followed: partitions of items with rising offsets."""

    @property
    def id(self) -> Hashable:
        """Equal for sources that can share a tail."""

    @property
    def rings(self) -> UUID | None:
        """The query whose ring announces something new; None: nothing does."""

    async def heads(self, connection: Connection) -> list[tuple[int, int]]:
        """Return (oldest offset, next offset) by partition; nothing where the log is gone."""

    async def stretch(self, connection: Connection, partition: int, start: int, end: int) -> Stretch:
        """Return what lies from ``start`` on, up to ``end`` or less far where it is much."""


class Tail:
    """The newest items of one source.

    Attributes:
        is_gone: the log was dropped; nothing comes any more.
        followers: how many use this tail.
    """

    def __init__(self, source: Source, ends: Sequence[int]) -> None:
        self._source = source
        self._items: list[list[Item]] = [[] for _ in ends]
        self._begins = list(ends)
        self._ends = list(ends)
        self._chars = 0
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self.is_gone = False
        self.followers = 0

    def take(self, partition: int, offset: int, limit: int) -> Stretch | None:
        """Return items from ``offset`` on; None where they are not kept here (any more)."""
        if not self._begins[partition] <= offset <= self._ends[partition]:
            return None
        kept = self._items[partition]
        first = bisect_left(kept, offset, key=lambda item: item.offset)
        found = kept[first : first + limit]
        is_all = first + len(found) == len(kept)
        return Stretch(found, self._ends[partition] if is_all else found[-1].offset + 1)

    async def wait(self, seconds: float) -> None:
        """Wait until something is new or over, at most so long.

        Raises:
            BaseException: what ended the task behind this tail; a follower must not wait for it in vain.
        """
        if self._failure is not None:
            raise self._failure
        changed = self._changed
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            return

    def wake(self) -> None:
        """Wake every follower."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self, pool: psycopg_pool.AsyncConnectionPool[Connection], bell: Bell) -> None:
        """Keep up with the source until cancelled, or until it is gone."""
        query_id = self._source.rings
        seconds = POLL_SECONDS if query_id is None else LOOK_AGAIN_SECONDS
        try:
            with nullcontext(asyncio.Event()) if query_id is None else bell.listening(query_id) as rung:
                while not self.is_gone:
                    try:
                        await self._look(pool)
                    except (psycopg.OperationalError, psycopg_pool.PoolTimeout) as error:
                        log.warning("tail_interrupted", error=str(error))
                        await asyncio.sleep(RETRY_SECONDS)
                        continue
                    try:
                        async with asyncio.timeout(seconds):
                            await rung.wait()
                    except TimeoutError:
                        continue
                    rung.clear()
        except Unavailable as error:  # followers come again, to another tail
            self._failure = error
            self.wake()
        except Exception as error:
            self._failure = error
            self.wake()
            raise

    async def _look(self, pool: psycopg_pool.AsyncConnectionPool[Connection]) -> None:
        async with pool.connection() as connection:
            found = await self._source.heads(connection)
            is_put_back = any(next_offset < end for (_, next_offset), end in zip(found, self._ends, strict=False))
            if not found or is_put_back:
                self.is_gone = True
                self.wake()
                return
            for partition, (_, next_offset) in enumerate(found):
                if next_offset - self._ends[partition] > KEPT_ITEMS:
                    self._skip(partition, next_offset - KEPT_ITEMS)
                while self._ends[partition] < next_offset:
                    stretch = await self._source.stretch(connection, partition, self._ends[partition], next_offset)
                    self._keep(partition, stretch)
                    self.wake()

    def _skip(self, partition: int, offset: int) -> None:
        self._chars -= sum(len(item.json) for item in self._items[partition])
        self._items[partition] = []
        self._begins[partition] = self._ends[partition] = offset

    def _keep(self, partition: int, stretch: Stretch) -> None:
        kept = self._items[partition]
        kept.extend(stretch.items)
        self._chars += sum(len(item.json) for item in stretch.items)
        self._ends[partition] = stretch.end
        surplus = max(len(kept) - KEPT_ITEMS, 0)
        chars = self._chars - sum(len(item.json) for item in kept[:surplus])
        while chars > KEPT_CHARS and surplus < len(kept):
            chars -= len(kept[surplus].json)
            surplus += 1
        if surplus:
            self._begins[partition] = kept[surplus - 1].offset + 1
            del kept[:surplus]
            self._chars = chars


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
        self._bell = bell
        self._tails: dict[Hashable, tuple[Tail, asyncio.Task[None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_closing = False
        self.streams = 0
        self._pool: psycopg_pool.AsyncConnectionPool[Connection] = linked_pool(
            dsn,
            {"options": f"-c timezone=UTC {bounded_reads(read_timeout_ms)['options']}", "application_name": "slackwater-push"},
            min_size=0,
            max_size=POOL_SIZE,
            configure=_consistent,
        )

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
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        tasks = [task for _, task in self._tails.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close()

    def close(self) -> None:
        """Let every follower end. Safe to call from a signal handler or another thread."""
        self.is_closing = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for tail, _ in self._tails.values():
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
                ends = [next_offset for _, next_offset in await source.heads(connection)]
            if source.id not in self._tails:  # another follower can have come while we looked
                tail = Tail(source, ends)
                tail.is_gone = not ends
                self._tails[source.id] = tail, asyncio.create_task(tail.run(self._pool, self._bell))
        tail, task = self._tails[source.id]
        tail.followers += 1
        try:
            yield tail
        finally:
            tail.followers -= 1
            if not tail.followers and self._tails.get(source.id) == (tail, task):
                del self._tails[source.id]
                task.cancel()


async def _consistent(connection: Connection) -> None:
    """A transaction sees one moment: a position must be that of the rows beside it."""
    await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
    await connection.set_read_only(True)
