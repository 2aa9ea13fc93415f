"""Copying a query's commits to another one: result, log, state of tasks, position, counters, late records, replays.

Everything is read in the caller's transaction and must be of one commit: in one snapshot (REPEATABLE READ), or with the row of
``log.commit`` locked. No data passes through this process: Postgres copies rows from table to table. Nothing here commits.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from engine.commit.removed_records import UNREAD_SQL
from engine.commit.task_states import NEW_TOKEN
from engine.commit.views import IS_DELETED, RESULT_TIME, history_identifier, table_bytes, tables_of
from engine.log.storage import ensure_feed, find_feed
from engine.plan.catalog import result_feed
from engine.plan.model import Output
from engine.postgres.column_names import columns
from engine.sources.log.replay_reader import replay_feed

Connection = psycopg.Connection[Any]

_FEED_SQL: Final = """
UPDATE log.feed t SET partitions = greatest(t.partitions, s.partitions), start_sequence = s.start_sequence,
    next_sequence = s.next_sequence, reached_ms = s.reached_ms, last_mark_ms = s.last_mark_ms
FROM log.feed s WHERE s.name = %s AND t.name = %s RETURNING s.id, t.id
"""
_HEADS_SQL: Final = """
INSERT INTO log.head (feed_id, partition, start_offset, next_offset)
SELECT %(target)s, partition, start_offset, next_offset FROM log.head WHERE feed_id = %(source)s
ON CONFLICT (feed_id, partition) DO UPDATE SET start_offset = excluded.start_offset, next_offset = excluded.next_offset
"""
_BATCHES_SQL: Final = """
INSERT INTO log.batch (feed_id, partition, base_offset, rows, min_ts, max_ts, payload, appended_at, marks, sequence, sequence_rows, head_ms)
SELECT %(target)s, partition, base_offset, rows, min_ts, max_ts, payload, appended_at, marks, sequence, sequence_rows, head_ms
FROM log.batch WHERE feed_id = %(source)s
"""
_MARKS_SQL: Final = """
INSERT INTO log.mark (feed_id, time_ms, first, last, head_ms, wait_ms, cut, payload, appended_at)
SELECT %(target)s, time_ms, first, last, head_ms, wait_ms, cut, payload, appended_at FROM log.mark WHERE feed_id = %(source)s
"""
# In positions, the feed of replays has the query's id as its name.
_COMMIT_SQL: Final = f"""
INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, stream_time_ms, detail, cursor, layout)
SELECT %(target)s, %(checkpoint)s, 0, batch_id, committed_at, replace(position::text, %(was)s, %(is)s)::jsonb, stream_time_ms,
    replace(detail::text, %(was)s, %(is)s)::jsonb, replace(({UNREAD_SQL})::text, %(was)s, %(is)s)::jsonb, layout
FROM log.commit WHERE query_id = %(source)s
"""  # noqa: S608 - made of constants
# A worker keeps a task under its token together with the source's directory, so the copy has its own token.
_STATES_SQL: Final = f"""
INSERT INTO log.task_state (query_id, stage, task, token, manifest)
SELECT %(target)s, stage, task, {NEW_TOKEN}, manifest FROM log.task_state WHERE query_id = %(source)s
"""  # noqa: S608 - made of constants
# Refused rows of a result are counted by the result's name.
_COUNTERS_SQL: Final = """
INSERT INTO log.counter (owner, input, reason, count)
SELECT %(target)s, CASE WHEN reason = 'null_key' AND input = %(source_name)s THEN %(target_name)s ELSE input END, reason, sum(count)
FROM log.counter WHERE owner = %(source)s GROUP BY 2, 3
"""
_LATE_SQL: Final = """
INSERT INTO log.late_record (query_id, input, reason, event_time_ms, stream_time_ms, "offset", record, at, replayed_at, replay_id)
SELECT %(target)s, input, reason, event_time_ms, stream_time_ms, "offset", record, at, replayed_at, replay_id
FROM log.late_record WHERE query_id = %(source)s ORDER BY id
"""
_LOG_BYTES_SQL: Final = """
SELECT coalesce(sum(octet_length(payload)), 0)::bigint FROM log.batch WHERE feed_id = (SELECT id FROM log.feed WHERE name = %s)
"""


def result_bytes(connection: Connection, output: Output) -> int:
    """Return the approximate size of a result in the database: its tables with their indexes, and its log."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(_LOG_BYTES_SQL, (result_feed(output),)).fetchone()
    return (0 if row is None else int(row[0])) + sum(table_bytes(connection, table) for table in tables_of(output))


def copy_result(connection: Connection, source: Output, target: Output) -> None:
    """Copy the rows and the log of one result to a new, empty one.

    Args:
        connection: in a transaction, see above.
        source: the result to copy; its columns are among those of ``target``, whose other columns are null.
        target: the new result.
    """
    for one, other in zip(tables_of(source), tables_of(target), strict=True):
        names = [*source.columns.names, RESULT_TIME]
        shown = columns([*names, IS_DELETED] if one == history_identifier(source.name) else names)
        connection.execute(sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(other, shown, shown, one))
    _copy_feed(connection, result_feed(source), result_feed(target))


def copy_commits(connection: Connection, source: UUID, target: UUID, checkpoint_id: UUID, renamed: tuple[str, str]) -> None:
    """Copy a query's commits, without its result, to a new query.

    Args:
        connection: in a transaction, see above.
        source: the query to copy.
        target: the new query.
        checkpoint_id: of ``target``.
        renamed: names of the results, the source's and the target's.
    """
    names = {
        "source": source,
        "target": target,
        "checkpoint": checkpoint_id,
        "was": replay_feed(source),
        "is": replay_feed(target),
    }
    names |= {"source_name": renamed[0], "target_name": renamed[1]}
    with connection.cursor() as cursor:
        for statement in (_COMMIT_SQL, _STATES_SQL, _COUNTERS_SQL, _LATE_SQL):
            cursor.execute(statement, names)
    replays = find_feed(connection, replay_feed(source))
    if replays is not None:
        ensure_feed(connection, replay_feed(target), replays.partitions, replays.retention_ms)
        _copy_feed(connection, replay_feed(source), replay_feed(target))


def _copy_feed(connection: Connection, source: str, target: str) -> None:
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(_FEED_SQL, (source, target)).fetchone()
        if row is not None:
            ids = {"source": row[0], "target": row[1]}
            cursor.execute(_HEADS_SQL, ids)
            cursor.execute(_BATCHES_SQL, ids)
            cursor.execute(_MARKS_SQL, ids)
