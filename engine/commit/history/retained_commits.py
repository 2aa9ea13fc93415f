"""Retained commits: earlier commits of a query to which it can be rewound (``engine.commit.history.rewinding``).

The last statements of the sink's transaction make one: inside Postgres they copy position, cursor, clocks, counters and the manifests of all
tasks. This is too costly for every commit, so a sink makes one each ``Retaining.every_ms``. A launch retains the commit from which it
resumes, which is the last one of the definition before. Older ones are thinned out. Their number and the size of their data are bounded: the
collector drops the oldest if their segments are too large (``engine.commit.history.segment_collector``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import class_row, tuple_row

from engine.commit.task_states import Place
from engine.postgres.postgres import Connection
from engine.sources.log.replay_reader import replay_feed

OF_LAUNCHES: Final = 10
"""The newest commits from which launches resumed stay at any age, up to the retention, because edits come with launches."""

DENSE, SPARSE, COARSE = 10, 100, 60
"""Up to an age of ``DENSE`` intervals each is kept; up to ``SPARSE`` one per ten; then one per ``COARSE``, or per 24th of the retention."""

# A commit from the future was retained before the clock was set back, so its age is unknown.
_RETAIN: Final = """
WITH kept AS (
    INSERT INTO log.retained_commit (query_id, batch_id, checkpoint_id, is_of_launch, committed_at, position, stream_time_ms, detail,
        cursor, layout, counters, next_sequence, reached_ms, replayed_to, last_late_id)
    SELECT c.query_id, c.batch_id, c.checkpoint_id, %(is_of_launch)s, c.committed_at, c.position, c.stream_time_ms, c.detail, c.cursor, c.layout,
        coalesce((SELECT jsonb_agg(jsonb_build_array(n.input, n.reason, n.count)) FROM log.counter n WHERE n.owner = c.query_id), '[]'),
        f.next_sequence, f.reached_ms,
        (SELECT h.next_offset FROM log.feed r JOIN log.head h ON h.feed_id = r.id WHERE r.name = %(replays)s AND h.partition = 0),
        (SELECT max(l.id) FROM log.late_record l WHERE l.query_id = c.query_id)
    FROM log.commit c JOIN log.feed f ON f.name = %(feed)s
    WHERE c.query_id = %(query)s AND c.batch_id IS NOT NULL AND c.cursor IS NOT NULL AND c.layout IS NOT NULL
        AND f.next_sequence IS NOT NULL AND (%(is_of_launch)s OR NOT EXISTS (
            SELECT FROM log.retained_commit r
            WHERE r.query_id = c.query_id AND r.retained_at BETWEEN now() - %(every_ms)s * interval '1 millisecond' AND now()
        ))
    ON CONFLICT (query_id, batch_id) DO UPDATE SET is_of_launch = true WHERE excluded.is_of_launch
    RETURNING query_id, batch_id, xmax = 0 AS is_new
)
INSERT INTO log.retained_state (query_id, batch_id, stage, task, manifest)
SELECT k.query_id, k.batch_id, s.stage, s.task, s.manifest FROM kept k JOIN log.task_state s ON s.query_id = k.query_id WHERE k.is_new
ON CONFLICT DO NOTHING
"""
# The newest commit, not the clock, defines ages: a query without new commits keeps all it has.
_THIN: Final = """
WITH aged AS (
    SELECT r.batch_id, r.retained_at, r.checkpoint_id = c.checkpoint_id AS is_own, extract(epoch FROM r.retained_at) * 1000 AS at_ms,
        extract(epoch FROM c.committed_at - r.retained_at) * 1000 AS age_ms,
        r.is_of_launch AND row_number() OVER (PARTITION BY r.is_of_launch ORDER BY r.batch_id DESC) <= %(of_launches)s AS is_spared
    FROM log.retained_commit r JOIN log.commit c ON c.query_id = r.query_id WHERE r.query_id = %(query)s
), ranked AS (
    SELECT batch_id, is_own, age_ms, is_spared, age_ms < %(dense_ms)s AS is_dense,
        row_number() OVER (PARTITION BY age_ms < %(sparse_ms)s,
            floor(at_ms / CASE WHEN age_ms < %(sparse_ms)s THEN %(dense_ms)s ELSE %(coarse_ms)s END) ORDER BY batch_id) AS place
    FROM aged
)
DELETE FROM log.retained_commit r USING ranked a WHERE r.query_id = %(query)s AND r.batch_id = a.batch_id
    AND (NOT a.is_own OR a.age_ms >= %(keep_ms)s OR NOT (a.is_dense OR a.is_spared OR a.place = 1))
"""
_LIST: Final = """
SELECT r.batch_id, r.is_of_launch, r.committed_at, r.position, r.stream_time_ms, r.detail, r.cursor, r.layout, r.counters, r.next_sequence,
    r.reached_ms, r.replayed_to, r.last_late_id
FROM log.retained_commit r JOIN log.commit c ON c.query_id = r.query_id AND c.checkpoint_id = r.checkpoint_id
WHERE r.query_id = %s ORDER BY r.batch_id DESC
"""
_MANIFESTS: Final = """
SELECT batch_id, stage, task, manifest FROM log.retained_state WHERE query_id = %s AND batch_id = ANY(%s) ORDER BY batch_id, stage, task
"""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Retaining:
    """The rules of retained commits.

    Attributes:
        every_ms: least time between two; 0: none are retained.
        keep_ms: for how long.
    """

    every_ms: int
    keep_ms: int


NOTHING_RETAINED: Final = Retaining(0, 0)


@dataclass(frozen=True, slots=True)
class RetainedCommit:
    """An earlier commit of a query, in its current checkpoint.

    Attributes:
        is_of_launch: a launch resumed from it.
        position: the input of its results, feed → partition → offset.
        cursor: where the next batch begins.
        layout: of its state.
        counters: [input, reason, count].
        next_sequence: number of the next row of the result's log.
        reached_ms: how far the merge of its inputs had come.
        replayed_to: next offset of the feed of replays; None: there was no such feed.
        last_late_id: of the late records that were kept; None: there were none.
    """

    batch_id: int
    is_of_launch: bool
    committed_at: datetime
    position: Json
    stream_time_ms: int | None
    detail: Json
    cursor: Json
    layout: Json
    counters: list[Any]
    next_sequence: int
    reached_ms: int | None
    replayed_to: int | None
    last_late_id: int | None

    def count_of(self, reason: str) -> int:
        """Return the count for a reason, over all inputs."""
        return sum(int(count) for _, counted, count in self.counters if counted == reason)


def retain(cursor: psycopg.Cursor[Any], query_id: UUID, feed: str, retaining: Retaining, *, is_of_launch: bool = False) -> None:
    """Retain the current commit, unless one was retained lately, and thin out older ones.

    Args:
        cursor: in the transaction that made the commit, or at the start of a launch; it may be in a pipeline.
        query_id: the query.
        feed: of its result.
        retaining: which are retained.
        is_of_launch: a launch resumes from it: it is retained however recent the one before is.
    """
    if not retaining.every_ms:
        return
    every, keep = retaining.every_ms, retaining.keep_ms
    bounds = {
        "dense_ms": DENSE * every,
        "sparse_ms": SPARSE * every,
        "coarse_ms": max(COARSE * every, keep // 24),
        "keep_ms": keep,
    }
    # First the commits of another checkpoint go, because their batches have the same numbers.
    cursor.execute(_THIN, {"query": query_id, "of_launches": OF_LAUNCHES, **bounds})
    names = {"query": query_id, "feed": feed, "replays": replay_feed(query_id), "every_ms": every}
    cursor.execute(_RETAIN, {**names, "is_of_launch": is_of_launch})


def retained_commits(connection: Connection, query_id: UUID) -> list[RetainedCommit]:
    """Return the retained commits of a query's current state, the newest first."""
    with connection.cursor(row_factory=class_row(RetainedCommit)) as cursor:
        return cursor.execute(_LIST, (query_id,)).fetchall()


def hold_retained(connection: Connection, query_id: UUID, batch_id: int) -> bool:
    """Lock a retained commit until the end of the transaction; return whether it exists: the collector may have dropped it."""
    held = connection.execute(
        "SELECT FROM log.retained_commit WHERE query_id = %s AND batch_id = %s FOR SHARE", (query_id, batch_id)
    ).rowcount
    return held == 1


def retained_manifests(connection: Connection, query_id: UUID, batch_ids: Sequence[int]) -> Iterator[tuple[int, Place, str]]:
    """Yield the manifests of retained commits, with batch and task, one after the other: those of many tasks are gigabytes together."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        for batch_id, stage, task, manifest in cursor.stream(_MANIFESTS, (query_id, list(batch_ids))):
            yield batch_id, (stage, task), manifest


def forget_retained(connection: Connection, query_id: UUID, behind: int | None = None) -> None:
    """Delete retained commits: those after a batch, or all."""
    bound = -1 if behind is None else behind
    connection.execute("DELETE FROM log.retained_commit WHERE query_id = %s AND batch_id > %s", (query_id, bound))
