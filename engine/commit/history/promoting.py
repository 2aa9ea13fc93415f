"""Moving a query's commits to another one, which loses its own: results are renamed, rows change their owner.

Works in the caller's transaction, which has fenced both queries and deleted the other's own rows. Nothing here commits.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from engine.commit.task_states import NEW_TOKEN
from engine.commit.views import rename_view
from engine.plan.catalog import result_feed
from engine.plan.model import Output
from engine.sources.log.replay_reader import replay_feed

Connection = psycopg.Connection[Any]

_FENCE_SQL: Final = "SELECT query_id FROM log.commit WHERE query_id = ANY(%s) ORDER BY query_id FOR UPDATE"
_FENCE_IS_THERE_SQL: Final = """
INSERT INTO log.commit (query_id, checkpoint_id, epoch) VALUES (%s, %s, 0) ON CONFLICT (query_id) DO NOTHING
"""
_FEED_SQL: Final = "UPDATE log.feed SET name = %s, producer = %s WHERE name = %s"
_COMMITTED_SQL: Final = """
SELECT batch_id, committed_at, replace(position::text, %(was)s, %(is)s)::jsonb, stream_time_ms,
    replace(detail::text, %(was)s, %(is)s)::jsonb, replace(cursor::text, %(was)s, %(is)s)::jsonb, layout
FROM log.commit WHERE query_id = %(query)s AND checkpoint_id = %(checkpoint)s
"""
_COMMIT_SQL: Final = """
INSERT INTO log.commit AS c (query_id, checkpoint_id, epoch, batch_id, committed_at, position, stream_time_ms, detail, cursor, layout)
VALUES (%s, %s, 0, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (query_id) DO UPDATE SET checkpoint_id = excluded.checkpoint_id, batch_id = excluded.batch_id,
    committed_at = excluded.committed_at, position = excluded.position, stream_time_ms = excluded.stream_time_ms,
    detail = excluded.detail, cursor = excluded.cursor, layout = excluded.layout
"""
"""The epoch of an existing row stays: it is the fence."""

_COUNTERS_SQL: Final = """
UPDATE log.counter SET owner = %(target)s, input = CASE WHEN reason = 'null_key' AND input = %(source_name)s THEN %(target_name)s ELSE input END
WHERE owner = %(source)s
"""
_OWNED: Final = (
    f"UPDATE log.task_state SET query_id = %(target)s, token = {NEW_TOKEN} WHERE query_id = %(source)s",  # noqa: S608 - made of constants
    _COUNTERS_SQL,
    "UPDATE log.late_record SET query_id = %(target)s WHERE query_id = %(source)s",
)


def hold_commits(connection: Connection, source: tuple[UUID, UUID], target: tuple[UUID, UUID]) -> None:
    """Wait for running commits of two queries. Until the transaction ends, neither commits, and no launch begins.

    Args:
        connection: in a transaction.
        source: id and checkpoint of the query whose commits are moved.
        target: id and checkpoint of the query that gets them; it may never have begun.
    """
    connection.execute(_FENCE_IS_THERE_SQL, target)
    connection.execute(_FENCE_SQL, ([source[0], target[0]],))


def rename_result(connection: Connection, source: Output, target: Output, producer: UUID) -> None:
    """Rename a result to an unused name.

    Args:
        connection: in a transaction.
        source: the result under its old name.
        target: the result under its new name.
        producer: the query that writes it from now on.
    """
    if source.kind == "table":
        rename_view(connection, source, target.name)
    connection.execute(_FEED_SQL, (result_feed(target), producer, result_feed(source)))


def move_commits(connection: Connection, source: tuple[UUID, UUID], target: tuple[UUID, UUID], renamed: tuple[str, str]) -> None:
    """Move a query's commits, without its result, to another query, which has none of its own any more.

    Args:
        connection: in a transaction.
        source: id and checkpoint of the query that has them.
        target: id and new checkpoint of the query that gets them.
        renamed: names of the results, the source's and the target's.
    """
    names = {"query": source[0], "checkpoint": source[1], "was": replay_feed(source[0]), "is": replay_feed(target[0])}
    with connection.cursor(row_factory=tuple_row) as cursor:
        row: tuple[Any, ...] | None = cursor.execute(_COMMITTED_SQL, names).fetchone()
        if row is None:
            return
        cursor.execute(_COMMIT_SQL, (*target, *(Jsonb(value) if isinstance(value, dict) else value for value in row)))
        owners = {"source": source[0], "target": target[0], "source_name": renamed[0], "target_name": renamed[1]}
        for statement in _OWNED:
            cursor.execute(statement, owners)
        cursor.execute(_FEED_SQL, (replay_feed(target[0]), None, replay_feed(source[0])))
