"""Removes the data that a query has written about itself: position, counters, late records."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import sqlalchemy as sa

from app.db.log_tables import commit, counter, late_record, task_state
from app.db.tables import query_status
from app.db.transactions import raw
from engine.commit.history.retained_commits import forget_retained
from engine.log.dropped_feeds import drop_feed
from engine.log.sequences import leave_orphaned
from engine.sources.log.replay_reader import replay_feed

STEP_ROWS = 5_000
"""Late records to delete in one transaction: some megabytes."""

# One index look-up for each query with late records.
_OF_DELETED = """
    WITH RECURSIVE found AS (
        (SELECT query_id FROM log.late_record ORDER BY query_id LIMIT 1)
        UNION ALL
        SELECT (SELECT l.query_id FROM log.late_record l WHERE l.query_id > f.query_id ORDER BY l.query_id LIMIT 1)
        FROM found f WHERE f.query_id IS NOT NULL
    )
    SELECT f.query_id FROM found f WHERE f.query_id IS NOT NULL
    AND NOT EXISTS (SELECT FROM slackwater.query q WHERE q.id = f.query_id AND q.deleted_at IS NULL)
"""
_STEP = "DELETE FROM log.late_record WHERE ctid = ANY(ARRAY(SELECT ctid FROM log.late_record WHERE query_id = %s LIMIT %s))"


def forget_results(connection: sa.Connection, query_id: UUID, *, is_deleted: bool = False) -> None:
    """Remove counters, late records, their replays, retained commits and the state of tasks; empty the commit row.

    The query's result logs no longer wait for more rows.

    Late records of a deleted query stay for ``sweep_late_records``: no route shows them any more, and other edits wait for this transaction.

    The commit row itself stays, with an unused checkpoint id and the newest epoch. It is the fence: without it an earlier launch order could
    take the fence again. A sink locks this row before it writes, so it is updated first.
    """
    epoch = sa.select(query_status.c.epoch).where(query_status.c.query_id == query_id).scalar_subquery()
    connection.execute(
        sa.update(commit)
        .where(commit.c.query_id == query_id)
        .values(
            checkpoint_id=uuid4(),
            epoch=sa.func.greatest(commit.c.epoch, epoch),
            batch_id=None,
            committed_at=None,
            position={},
            stream_time_ms=None,
            detail={},
            cursor=None,
            layout=None,
        )
    )
    connection.execute(sa.delete(task_state).where(task_state.c.query_id == query_id))
    forget_retained(raw(connection), query_id)
    connection.execute(sa.delete(counter).where(counter.c.owner == query_id))
    if not is_deleted:
        connection.execute(sa.delete(late_record).where(late_record.c.query_id == query_id))
    drop_feed(raw(connection), replay_feed(query_id))
    leave_orphaned(raw(connection), query_id)


def sweep_late_records(connection: psycopg.Connection[Any], step_rows: int = STEP_ROWS) -> None:
    """Remove the late records of deleted queries.

    Args:
        connection: in autocommit mode; the rows of a finished step stay removed if a later step fails.
        step_rows: rows to delete in one transaction.
    """
    for (query_id,) in connection.execute(_OF_DELETED).fetchall():
        while connection.execute(_STEP, (query_id, step_rows)).rowcount:
            pass
