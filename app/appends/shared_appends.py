"""Appends to different feeds, committed together by one statement, which is one transaction and waits for the disk once.

Only appends of one small batch of one relation take part. The statement waits for no lock. It skips a relation that is being edited, and a
partition to which another transaction appends. A skipped append uses its own transaction. So no append waits for the lock of another feed, and
statements of several services cannot wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
import psycopg_pool

MOST_APPENDS: Final = 256
MOST_BYTES: Final = 64 * 1024
"""Of one append: a larger one is faster by itself, and would delay the others."""

_APPEND_SQL: Final = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest(
        %(relations)s::uuid[], %(versions)s::bigint[], %(feeds)s::bigint[], %(partitions)s::int[],
        %(rows)s::int[], %(min_ts)s::bigint[], %(max_ts)s::bigint[], %(payloads)s::bytea[]
    ) WITH ORDINALITY AS w (relation_id, version, feed_id, partition, rows, min_ts, max_ts, payload, place)
), same AS MATERIALIZED (
    SELECT id, version FROM slackwater.relation WHERE id = ANY(%(relations)s::uuid[]) FOR SHARE SKIP LOCKED
), free AS MATERIALIZED (
    SELECT w.place, h.feed_id, h.partition
    FROM wanted w JOIN same s ON s.id = w.relation_id AND s.version = w.version
    JOIN log.head h ON h.feed_id = w.feed_id AND h.partition = w.partition
    FOR NO KEY UPDATE OF h SKIP LOCKED
), head AS (
    UPDATE log.head h SET next_offset = h.next_offset + w.rows
    FROM free f JOIN wanted w ON w.place = f.place
    WHERE h.feed_id = f.feed_id AND h.partition = f.partition
    RETURNING w.place, h.next_offset - w.rows AS base
), batch AS (
    INSERT INTO log.batch (feed_id, partition, base_offset, rows, min_ts, max_ts, payload)
    SELECT w.feed_id, w.partition, head.base, w.rows, w.min_ts, w.max_ts, w.payload FROM head JOIN wanted w ON w.place = head.place
)
SELECT place, base FROM head
"""
"""Each pair of feed and partition may occur once. Returns the base offset of each appended batch, by place."""


@dataclass(frozen=True, slots=True)
class SmallAppend:
    """One batch of one relation.

    Attributes:
        version: of the relation, by which the records were validated; if it has another one now, nothing is appended.
    """

    relation_id: UUID
    version: int
    feed_id: int
    partition: int
    rows: int
    min_ts: int
    max_ts: int
    payload: bytes


class SharedAppends:
    """Commits concurrent small appends together.

    Args:
        pool: connections in autocommit mode.
        tasks: runs the commits; ends when all are done.
    """

    def __init__(self, pool: psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection], tasks: asyncio.TaskGroup) -> None:
        self._pool = pool
        self._tasks = tasks
        self._waiting: list[tuple[SmallAppend, asyncio.Future[int | None]]] = []
        self._is_committing = False

    async def append(self, small_append: SmallAppend) -> int | None:
        """Append, and return the offset of the first record after the commit.

        At most one append to a feed may run at a time.

        Returns:
            None: nothing was appended, because a lock was not free, the relation changed, or the statement failed, perhaps because of another
                append in it.

        Raises:
            psycopg.Error: it is unknown whether the records were appended.
            psycopg_pool.PoolTimeout: nothing was appended.
        """
        answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((small_append, answer))
        if not self._is_committing:
            self._is_committing = True
            self._tasks.create_task(self._commit_all())
        return await answer

    async def _commit_all(self) -> None:
        """Commit groups until the queue is empty. No await follows the last check of the queue, so no append is forgotten."""
        try:
            while group := self._waiting[:MOST_APPENDS]:
                del self._waiting[:MOST_APPENDS]
                await self._commit(group)
        finally:
            self._is_committing = False
            for _, answer in self._waiting:
                answer.cancel()
            self._waiting.clear()

    async def _commit(self, group: Sequence[tuple[SmallAppend, asyncio.Future[int | None]]]) -> None:
        try:
            async with self._pool.connection() as connection:
                bases = await _append(connection, [small_append for small_append, _ in group])
        except (psycopg.IntegrityError, psycopg.DataError):
            bases = {}  # nothing was appended; each append is retried alone, so that only the bad one fails
        except Exception as error:  # noqa: BLE001 - every waiting append gets the error
            for _, answer in group:
                if not answer.done():
                    answer.set_exception(error)
            return
        for place, (_, answer) in enumerate(group, start=1):
            if not answer.done():
                answer.set_result(bases.get(place))


async def _append(connection: psycopg.AsyncConnection[Any], appends: Sequence[SmallAppend]) -> dict[int, int]:
    params = {
        "relations": [each.relation_id for each in appends],
        "versions": [each.version for each in appends],
        "feeds": [each.feed_id for each in appends],
        "partitions": [each.partition for each in appends],
        "rows": [each.rows for each in appends],
        "min_ts": [each.min_ts for each in appends],
        "max_ts": [each.max_ts for each in appends],
        "payloads": [each.payload for each in appends],
    }
    return dict(await (await connection.execute(_APPEND_SQL, params)).fetchall())


GATHER_S: Final = 0.02
"""Longest wait of an append for others. A commit takes a few milliseconds, an event of a row some hundred."""

MANY_FEEDS: Final = 8
"""If at least so many feeds had recent appends, others are likely to come within ``GATHER_S``."""

LATELY_S: Final = 0.25
VAIN_TURNS: Final = 3
"""After so many waits in a row without another append, no append waits for ``REST_S``."""

REST_S: Final = 1.0


class Gathering:
    """Batches appends of many writers to different feeds: they continue together, a moment later.

    A single append costs twice as much as one among four, here and in Postgres: other processes use the caches in between, and each append has
    its own transaction. So where appends to many feeds arrive, each one waits for others. It does not wait if no other can come. Writers that
    wait for their answers before they send more continue as soon as all of them wait. A single writer that writes to many feeds in turn soon
    does not wait.

    Args:
        gather_s: longest wait of an append.
    """

    def __init__(self, gather_s: float = GATHER_S) -> None:
        self._gather_s = gather_s
        self._recent: dict[int, float] = {}
        self._pending: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._lone_waits = 0
        self._rests_until = 0.0

    async def turn(self, feed_id: int) -> None:
        """Wait until it is time to append to a feed; do not wait if few feeds have appends."""
        loop = asyncio.get_running_loop()
        self._note(feed_id, now := loop.time())
        if len(self._recent) < MANY_FEEDS or now < self._rests_until:
            return
        released: asyncio.Future[None] = loop.create_future()
        self._pending.append(released)
        if len(self._pending) >= len(self._recent):  # all recent writers wait
            self._let_go()
        elif self._timer is None:
            self._timer = loop.call_later(self._gather_s, self._let_go)
        await released

    def _note(self, feed_id: int, now: float) -> None:
        """Record an append. The oldest are first, so they can be removed without a look at the others."""
        self._recent.pop(feed_id, None)
        self._recent[feed_id] = now
        while self._recent[oldest := next(iter(self._recent))] < now - LATELY_S:
            del self._recent[oldest]

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        self._lone_waits = self._lone_waits + 1 if len(pending) == 1 else 0
        if self._lone_waits == VAIN_TURNS:
            self._lone_waits, self._rests_until = 0, asyncio.get_running_loop().time() + REST_S
        for released in pending:
            if not released.done():
                released.set_result(None)
