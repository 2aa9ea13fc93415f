"""The rows that batches write beside their tables: collected, then sent with one statement of each kind for any number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import psycopg

from engine.commit.task_states import Place, TaskState
from engine.errors import InvariantBroken
from engine.frames.compact_json import compact
from engine.log.marks import Marks, encode_marks
from engine.log.sequences import Advance
from engine.log.storage import Batch, append_batches

COMMIT_CHANNEL: Final = "slackwater_commit"

LIGHT_BYTES: Final = 256 * 1024
"""Bound of the payload of a log batch that is sent with others: a larger one is sent alone, because arrays cost a copy on each side."""

Cursor = psycopg.Cursor[Any]
Json = dict[str, Any]

_ADVANCE_SQL: Final = """
UPDATE log.feed f SET next_sequence = g.next, reached_ms = g.reached, last_mark_ms = greatest(f.last_mark_ms, g.last_mark),
    producer = g.producer, partitions = greatest(f.partitions, g.partitions)
FROM unnest(%b::integer[], %b::bigint[], %b::bigint[], %b::bigint[], %b::uuid[], %b::integer[])
    AS g (feed, next, reached, last_mark, producer, partitions)
WHERE f.id = g.feed
"""
_APPEND_SQL: Final = """
WITH given AS (
    SELECT * FROM unnest(%b::integer[], %b::integer[], %b::integer[], %b::bigint[], %b::bigint[], %b::bytea[], %b::bigint[], %b::integer[],
        %b::bigint[]) AS g (feed_id, partition, rows, min_ts, max_ts, payload, sequence, sequence_rows, head_ms)
), head AS (
    UPDATE log.head h SET next_offset = h.next_offset + g.rows FROM given g
    WHERE h.feed_id = g.feed_id AND h.partition = g.partition
    RETURNING h.feed_id, h.partition, h.next_offset - g.rows AS base
)
INSERT INTO log.batch (feed_id, partition, base_offset, rows, min_ts, max_ts, payload, sequence, sequence_rows, head_ms)
SELECT feed_id, partition, base, rows, min_ts, max_ts, payload, sequence, sequence_rows, head_ms FROM given JOIN head USING (feed_id, partition)
RETURNING 1
"""
_MARKS_SQL: Final = """
INSERT INTO log.mark (feed_id, time_ms, first, last, head_ms, wait_ms, payload)
SELECT * FROM unnest(%b::integer[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
"""
_COUNT_SQL: Final = """
INSERT INTO log.counter AS c (owner, input, reason, count) SELECT * FROM unnest(%b::uuid[], %b::text[], %b::text[], %b::bigint[])
ON CONFLICT (owner, input, reason) DO UPDATE SET count = c.count + excluded.count
"""
_COMMIT_SQL: Final = """
UPDATE log.commit c SET batch_id = g.batch_id, committed_at = clock_timestamp(), position = g.position::jsonb,
    stream_time_ms = g.stream_time_ms, detail = g.detail::jsonb, cursor = coalesce(g.cursor::jsonb, c.cursor)
FROM unnest(%b::uuid[], %b::bigint[], %b::text[], %b::bigint[], %b::text[], %b::text[])
    AS g (query_id, batch_id, position, stream_time_ms, detail, cursor)
WHERE c.query_id = g.query_id
"""
_STATES_SQL: Final = """
INSERT INTO log.task_state (query_id, stage, task, token, manifest)
SELECT * FROM unnest(%b::uuid[], %b::integer[], %b::integer[], %b::text[], %b::text[])
ON CONFLICT (query_id, stage, task) DO UPDATE SET token = excluded.token, manifest = excluded.manifest
"""
_NOTIFY_SQL: Final = "SELECT pg_notify('slackwater_commit', query::text) FROM unnest(%b::uuid[]) AS query"


@dataclass(slots=True)
class SharedRows:
    """Rows for the tables that all queries share. Each row belongs to one query, so the order between queries is free."""

    _advances: dict[int, Advance] = field(default_factory=dict)
    _batches: dict[int, list[tuple[int, Batch]]] = field(default_factory=dict)
    _marks: list[tuple[int, int, int, int, int, int, bytes]] = field(default_factory=list)
    _counts: list[tuple[UUID, str, str, int]] = field(default_factory=list)
    _commits: list[tuple[UUID, int, str, int | None, str, str | None]] = field(default_factory=list)
    _states: list[tuple[UUID, int, int, str, str]] = field(default_factory=list)

    def append(self, advance: Advance, batches: Iterable[tuple[int, Batch]]) -> None:
        """Append ``(partition, batch)`` pairs to a feed, which has these partitions, and record its progress."""
        before = self._advances.get(advance.feed, advance)
        last_mark_ms = before.last_mark_ms if advance.last_mark_ms is None else advance.last_mark_ms
        self._advances[advance.feed] = advance._replace(
            last_mark_ms=last_mark_ms, partitions=max(before.partitions, advance.partitions)
        )
        self._batches.setdefault(advance.feed, []).extend(batches)

    def tell(self, feed: int, marks: Marks) -> None:
        """Write the marks of a batch of a feed, if there are any."""
        if len(marks.numbers):
            first, last, time_ms, head_ms = (
                int(each) for each in (marks.numbers[0], marks.numbers[-1], marks.times[-1], marks.heads[-1])
            )
            self._marks.append((feed, time_ms, first, last, head_ms, marks.wait_ms, encode_marks(marks)))

    def count(self, owner: UUID, name: str, reason: str, count: int) -> None:
        """Add to a counter; called once for each."""
        self._counts.append((owner, name, reason, count))

    def commit(self, query_id: UUID, batch_id: int, after: tuple[Json, int | None, Json, Json | None]) -> None:
        """Record a commit, with the values after it: position, stream time, detail, cursor."""
        position, stream_time_ms, detail, cursor = after
        ends_at = None if cursor is None else compact(cursor)
        self._commits.append((query_id, batch_id, compact(position), stream_time_ms, compact(detail), ends_at))

    def state(self, query_id: UUID, place: Place, state: TaskState) -> None:
        """Record the state of a task."""
        self._states.append((query_id, *place, state.token, state.manifest))

    def send(self, cursor: Cursor) -> None:
        """Write all of it, inside the sink's transaction.

        Raises:
            InvariantBroken: a feed lacks a partition.
        """
        _put(cursor, _ADVANCE_SQL, list(self._advances.values()))
        light = []
        for feed_id, batches in sorted(self._batches.items()):
            if _is_light(batches):
                light += [_row(feed_id, *each) for each in batches]
            else:
                append_batches(cursor.connection, feed_id, batches)
        _put(cursor, _MARKS_SQL, self._marks)
        _put(cursor, _COUNT_SQL, sorted(self._counts))
        _put(cursor, _STATES_SQL, self._states)
        _put(cursor, _COMMIT_SQL, self._commits)
        _put(cursor, _NOTIFY_SQL, [(commit[0],) for commit in self._commits])
        if light:
            # On a separate cursor: in a pipeline another cursor may hold the result of an earlier statement.
            with cursor.connection.cursor() as appending:
                _put(appending, _APPEND_SQL, light)
                found = len(appending.fetchall())
            if found != len(light):
                raise InvariantBroken(f"of {len(light)} batches {found} found the partition of their feed")


def _is_light(batches: Sequence[tuple[int, Batch]]) -> bool:
    """Whether batches of a feed can be sent with those of others: one for each partition, none of them large."""
    is_one_each = len({partition for partition, _ in batches}) == len(batches)
    return is_one_each and all(len(batch.payload) <= LIGHT_BYTES for _, batch in batches)


def _put(cursor: Cursor, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        cursor.execute(statement, [list(column) for column in zip(*rows, strict=True)])


def _row(feed_id: int, partition: int, batch: Batch) -> tuple[Any, ...]:
    return (
        feed_id, partition, batch.rows, batch.min_ts, batch.max_ts, batch.payload, batch.sequence, batch.sequence_rows, batch.head_ms,
    )  # fmt: skip
