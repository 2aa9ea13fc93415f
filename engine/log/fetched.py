"""Data for the small batches of a cycle, prefetched at once: separate statements would each cost more than their records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg.rows import tuple_row

from engine.log.storage import Head, feed_heads
from engine.postgres.postgres import Connection

MOST_BYTES: Final = 256 * 1024
"""Bound of one split: larger ones are read in the query's own part, so that a cycle holds little more than its current batch."""

MOST_TOGETHER: Final = 64 << 20
"""Bound of all splits: those of two hundred queries that catch up, each with dozens of partitions, were gigabytes in one worker."""

_BATCHES_SQL: Final = """
SELECT w.place, array_agg(b.base_offset ORDER BY b.base_offset), array_agg(b.payload ORDER BY b.base_offset)
FROM unnest(%(feeds)s::text[], %(partitions)s::integer[], %(starts)s::bigint[], %(ends)s::bigint[])
    WITH ORDINALITY AS w (feed, partition, first, last, place)
JOIN log.feed f ON f.name = w.feed
CROSS JOIN LATERAL (
    SELECT base_offset, payload FROM log.batch
    WHERE feed_id = f.id AND partition = w.partition AND base_offset < w.last AND base_offset >= (
        SELECT coalesce(max(base_offset), 0) FROM log.batch
        WHERE feed_id = f.id AND partition = w.partition AND base_offset <= w.first
    )
) b
GROUP BY w.place HAVING sum(octet_length(b.payload)) <= %(most)s
"""

_STATES_SQL: Final = """
SELECT c.query_id, c.detail -> 'times', s.stage, s.task, s.token
FROM log.commit c LEFT JOIN log.task_state s ON s.query_id = c.query_id WHERE c.query_id = ANY(%s)
"""
"""Tokens and times as of one commit: one statement, so one snapshot. A batch that only brings time leaves the tokens as they are."""


class LogSplit(NamedTuple):
    """Records ``[start, end)`` of a partition of a source's log."""

    feed: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The prefetched data.

    Attributes:
        queries: those whose tokens are known.
        tokens: of their tasks, by query, stage and task; absent: the task has no state.
        batches: the batches that overlap a split, (base offset, payload) in order; absent: it has to be read later.
        heads: of the feeds, read after their batches.
        times: of the queries (``engine.operators.tasks.query_times``); None before the first batch.
    """

    queries: frozenset[UUID]
    tokens: Mapping[tuple[UUID, int, int], str]
    batches: Mapping[LogSplit, Sequence[tuple[int, bytes]]]
    heads: Mapping[str, Sequence[Head]]
    times: Mapping[UUID, Mapping[str, Any] | None]


def fetch(connection: Connection, queries: Collection[UUID], splits: Sequence[LogSplit]) -> Fetched:
    """Read the tokens of queries' tasks, and the batches of small splits, in one exchange with the database.

    Args:
        connection: in autocommit mode: heads are read after the batches, so they show whether batches were removed before.
        queries: whose tasks.
        splits: which are to be read.
    """
    feeds, partitions, starts, ends = (list(values) for values in zip(*splits, strict=True)) if splits else ([], [], [], [])
    with (
        connection.cursor(row_factory=tuple_row) as states,
        connection.cursor(binary=True, row_factory=tuple_row) as batches,
    ):
        with connection.pipeline():
            states.execute(_STATES_SQL, (list(queries),))
            most = min(MOST_BYTES, MOST_TOGETHER // max(len(splits), 1))
            params = {"feeds": feeds, "partitions": partitions, "starts": starts, "ends": ends, "most": most}
            batches.execute(_BATCHES_SQL, params)
            heads = feed_heads(connection, set(feeds))
        found = states.fetchall()
        return Fetched(
            frozenset(queries),
            {(query, stage, task): token for query, _, stage, task, token in found if token is not None},
            {splits[place - 1]: list(zip(bases, payloads, strict=True)) for place, bases, payloads in batches},
            heads,
            {query: times for query, times, *_ in found},
        )
