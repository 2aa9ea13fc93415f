"""What the small batches of a round need of the database, asked for at once: statements of its own would cost each more than its records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from psycopg.rows import tuple_row

from engine.log.storage import Head, feed_heads
from engine.postgres.postgres import Connection

MOST_BYTES: Final = 256 * 1024
"""Of one split: what is larger is read in its turn, so that a round holds little more than the batch that it works on."""

MOST_TOGETHER: Final = 64 << 20
"""Of all splits: of two hundred queries that catch up, each with dozens of partitions, they were gigabytes in one worker."""

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

_TOKENS_SQL: Final = "SELECT query_id, stage, task, token FROM log.task_state WHERE query_id = ANY(%s)"


class LogSplit(NamedTuple):
    """Records ``[start, end)`` of a partition of a source's log."""

    feed: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was found.

    Attributes:
        queries: whose tokens are known.
        tokens: of their tasks, by query, stage and task; absent: it has no state.
        batches: the batches that meet a split, (base offset, payload) in order; absent: it is to be read in its turn.
        heads: of the feeds, as they were after their batches had been read.
    """

    queries: frozenset[UUID]
    tokens: Mapping[tuple[UUID, int, int], str]
    batches: Mapping[LogSplit, Sequence[tuple[int, bytes]]]
    heads: Mapping[str, Sequence[Head]]


def fetch(connection: Connection, queries: Collection[UUID], splits: Sequence[LogSplit]) -> Fetched:
    """Ask for the tokens of queries' tasks, and for what splits hold where that is little, in one exchange with the database.

    Args:
        connection: in autocommit mode: heads are looked at behind the batches, so that nothing of these was removed before.
        queries: whose tasks.
        splits: which are to be read.
    """
    feeds, partitions, starts, ends = (list(values) for values in zip(*splits, strict=True)) if splits else ([], [], [], [])
    with (
        connection.cursor(row_factory=tuple_row) as tokens,
        connection.cursor(binary=True, row_factory=tuple_row) as batches,
    ):
        with connection.pipeline():
            tokens.execute(_TOKENS_SQL, (list(queries),))
            most = min(MOST_BYTES, MOST_TOGETHER // max(len(splits), 1))
            params = {"feeds": feeds, "partitions": partitions, "starts": starts, "ends": ends, "most": most}
            batches.execute(_BATCHES_SQL, params)
            heads = feed_heads(connection, set(feeds))
        return Fetched(
            frozenset(queries),
            {(query, stage, task): token for query, stage, task, token in tokens},
            {splits[place - 1]: list(zip(bases, payloads, strict=True)) for place, bases, payloads in batches},
            heads,
        )
