"""Restoring one of a query's retained commits: result, log, state, position, counters, late records, replays.

Works in the caller's transaction, while the query does not run. Nothing here commits. Everything written after that commit is deleted, and its
numbers are used again: of batches, and of rows of the log. So the log gets a mark (``log.feed.rewound``) that ends its followers' cursors,
and tasks get tokens that no worker knows. A late sink of an older launch is refused by its batch number.

Rejects stay: they are kept with the source, once for all queries that read it.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from engine.commit.history.restored_rows import STEP_ROWS, RestorePoint, restore_rows
from engine.commit.history.retained_commits import RetainedCommit, forget_retained
from engine.commit.removed_records import as_unread
from engine.commit.task_states import NEW_TOKEN
from engine.errors import InvariantBroken
from engine.log.storage import find_feed
from engine.plan.catalog import result_feed
from engine.plan.model import Output
from engine.postgres.postgres import Connection
from engine.sources.log.replay_reader import replay_feed

_HOLD: Final = "SELECT stream_time_ms FROM log.commit WHERE query_id = %s FOR UPDATE"
_LOCK_FEED: Final = "SELECT FROM log.feed WHERE id = %s FOR NO KEY UPDATE"
_LOG_BYTES: Final = """
SELECT coalesce(sum(octet_length(payload)), 0)::bigint FROM log.batch WHERE feed_id = (SELECT id FROM log.feed WHERE name = %s)
"""
# The first deleted offset of a partition becomes the next one; a partition without deletions keeps its own.
_HEADS: Final = """
UPDATE log.head h SET next_offset = b.first, start_offset = least(h.start_offset, b.first)
FROM (SELECT partition, min(base_offset) AS first FROM log.batch WHERE feed_id = %(feed)s AND sequence >= %(sequence)s GROUP BY partition) b
WHERE h.feed_id = %(feed)s AND h.partition = b.partition
"""
_CUT: Final = "DELETE FROM log.batch WHERE feed_id = %(feed)s AND sequence >= %(sequence)s"
_FEED: Final = """
UPDATE log.feed SET next_sequence = %(sequence)s, start_sequence = least(start_sequence, %(sequence)s), reached_ms = %(reached)s,
    last_mark_ms = %(last_mark)s, rewound = gen_random_uuid()
WHERE id = %(feed)s
"""
_MARKS: Final = (
    "DELETE FROM log.mark WHERE feed_id = %(feed)s AND (%(last_mark)s::bigint IS NULL OR time_ms > %(last_mark)s::bigint)"
)
_COMMIT: Final = """
UPDATE log.commit SET batch_id = %(batch)s, committed_at = %(at)s, position = %(position)s, stream_time_ms = %(time)s, detail = %(detail)s,
    cursor = %(cursor)s, layout = %(layout)s
WHERE query_id = %(query)s
"""
_STATES: Final = (
    "DELETE FROM log.task_state WHERE query_id = %(query)s",
    f"""
    INSERT INTO log.task_state (query_id, stage, task, token, manifest)
    SELECT query_id, stage, task, {NEW_TOKEN}, manifest FROM log.retained_state WHERE query_id = %(query)s AND batch_id = %(batch)s
    """,  # noqa: S608 - made of constants
    "DELETE FROM log.counter WHERE owner = %(query)s",
    """
    INSERT INTO log.counter (owner, input, reason, count)
    SELECT %(query)s, c ->> 0, c ->> 1, (c ->> 2)::bigint FROM jsonb_array_elements(%(counters)s::jsonb) AS c
    """,
    "DELETE FROM log.late_record WHERE query_id = %(query)s AND id > coalesce(%(late)s::bigint, -1)",
)
# A request for a replay appends its records and marks them in one transaction, so both have one time.
_REPLAYS: Final = """
WITH gone AS (
    DELETE FROM log.batch WHERE feed_id = %(feed)s AND base_offset >= %(end)s RETURNING appended_at
), unmarked AS (
    UPDATE log.late_record SET replayed_at = NULL, replay_id = NULL
    WHERE query_id = %(query)s AND replayed_at IN (SELECT appended_at FROM gone)
)
UPDATE log.head SET next_offset = %(end)s, start_offset = least(start_offset, %(end)s) WHERE feed_id = %(feed)s AND partition = 0
"""


def change_log_bytes(connection: Connection, output: Output) -> int:
    """Return how many bytes of the log are read to restore the rows of a result; a stream has no rows."""
    if output.kind == "stream":
        return 0
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(_LOG_BYTES, (result_feed(output),)).fetchone()
    return 0 if row is None else int(row[0])


def rewind(connection: Connection, query_id: UUID, output: Output, commit: RetainedCommit, step_rows: int = STEP_ROWS) -> int:
    """Rewind a query to a retained commit; return the number of rows deleted from its result's log.

    Args:
        connection: in a transaction.
        query_id: the query; it does not run.
        output: its result, as it is now.
        commit: the retained one.
        step_rows: of the change log, read at once.

    Raises:
        RowsUnknown: the log does not show the rows of the result at that commit.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        held: tuple[Any, ...] | None = cursor.execute(_HOLD, (query_id,)).fetchone()
    feed = find_feed(connection, result_feed(output))
    if held is None or feed is None or feed.next_sequence is None:
        raise InvariantBroken(f"query {query_id} has committed nothing")
    connection.execute(_LOCK_FEED, (feed.id,))
    if output.kind == "table":
        restore_rows(connection, output, feed, RestorePoint(commit.next_sequence, commit.stream_time_ms, held[0]), step_rows)
    last_mark_ms = commit.detail.get("last_mark_ms")
    names = {"feed": feed.id, "sequence": commit.next_sequence, "reached": commit.reached_ms, "last_mark": last_mark_ms}
    for statement in (_HEADS, _CUT, _MARKS, _FEED):
        connection.execute(statement, names)
    _put_back(connection, query_id, commit)
    _cut_replays(connection, query_id, commit.replayed_to or 0)
    forget_retained(connection, query_id, commit.batch_id)
    return feed.next_sequence - commit.next_sequence


def _put_back(connection: Connection, query_id: UUID, commit: RetainedCommit) -> None:
    values = {
        "query": query_id, "batch": commit.batch_id, "at": commit.committed_at, "position": Jsonb(commit.position),
        "time": commit.stream_time_ms, "detail": Jsonb(commit.detail), "cursor": Jsonb(as_unread(commit.cursor)),
        "layout": Jsonb(commit.layout), "counters": Jsonb(commit.counters), "late": commit.last_late_id,
    }  # fmt: skip
    for statement in (_COMMIT, *_STATES):
        connection.execute(statement, values)


def _cut_replays(connection: Connection, query_id: UUID, end: int) -> None:
    """Undo requests for replays that came after the commit: users have to repeat them."""
    feed = find_feed(connection, replay_feed(query_id))
    if feed is not None:
        connection.execute(_REPLAYS, {"feed": feed.id, "query": query_id, "end": end})
