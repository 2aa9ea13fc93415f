"""Appends to different feeds that are committed together: by one statement, which is one transaction and waits for the disk once.

Only what is one small batch of one relation and nothing else takes part. The statement waits for no lock: a relation that is being edited, and
a partition to which somebody else appends, is passed over, and who wanted that takes a transaction of its own. So nobody waits for a lock on
what another one appends to, and statements of several services cannot wait for each other.
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
"""Of one append: what is larger is quicker alone, and would keep the others waiting."""

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
"""Each pair of feed and partition once. Returns the base offset of what was appended, by place."""


@dataclass(frozen=True, slots=True)
class SmallAppend:
    """One batch of one relation.

    Attributes:
        version: of the relation, by which the records were judged; where it has another one nothing is appended.
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
    """Commits together what is wanted at the same time.

    Args:
        pool: connections in autocommit mode.
        tasks: where it works; ended when all is committed.
    """

    def __init__(self, pool: psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection], tasks: asyncio.TaskGroup) -> None:
        self._pool = pool
        self._tasks = tasks
        self._waiting: list[tuple[SmallAppend, asyncio.Future[int | None]]] = []
        self._is_committing = False

    async def append(self, wanted: SmallAppend) -> int | None:
        """Append, and return the offset of the first record when it is committed.

        At most one append to a feed may be under way.

        Returns:
            None: nothing was appended, because a lock is held or the relation has changed, or because the statement was refused, perhaps for
                somebody else's sake.

        Raises:
            psycopg.Error: nothing is known to be appended.
            psycopg_pool.PoolTimeout: nothing was.
        """
        answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, answer))
        if not self._is_committing:
            self._is_committing = True
            self._tasks.create_task(self._commit_all())
        return await answer

    async def _commit_all(self) -> None:
        """Commit groups until nobody waits. Between the last look and the end there is no await, so nobody is forgotten."""
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
                bases = await _append(connection, [wanted for wanted, _ in group])
        except (psycopg.IntegrityError, psycopg.DataError):
            bases = {}  # nothing of it is there: the one that cannot be appended shall fail alone
        except Exception as error:  # noqa: BLE001 - whatever it is, each of those who wait gets it
            for _, answer in group:
                if not answer.done():
                    answer.set_exception(error)
            return
        for place, (_, answer) in enumerate(group, start=1):
            if not answer.done():
                answer.set_result(bases.get(place))


async def _append(connection: psycopg.AsyncConnection[Any], wanted: Sequence[SmallAppend]) -> dict[int, int]:
    params = {
        "relations": [each.relation_id for each in wanted],
        "versions": [each.version for each in wanted],
        "feeds": [each.feed_id for each in wanted],
        "partitions": [each.partition for each in wanted],
        "rows": [each.rows for each in wanted],
        "min_ts": [each.min_ts for each in wanted],
        "max_ts": [each.max_ts for each in wanted],
        "payloads": [each.payload for each in wanted],
    }
    return dict(await (await connection.execute(_APPEND_SQL, params)).fetchall())
