"""Throwing away what a query has written about itself: position, counters, late records."""

from __future__ import annotations

from uuid import UUID, uuid4

import sqlalchemy as sa

from app.store.log_tables import commit, counter, late_record
from app.store.tables import query_status
from app.store.transactions import raw
from engine.connectors.dropped_feeds import drop_feed
from engine.connectors.replay_reader import replay_feed
from engine.connectors.sequences import leave_orphaned


def forget_results(connection: sa.Connection, query_id: UUID) -> None:
    """Remove counters, late records and replays of them, and empty the commit row. Nobody waits for more in the logs it wrote.

    The row itself stays, with a checkpoint nobody has and the newest epoch: it is the fence, and without it a launch that was ordered
    before could take it again. A sink locks it before it writes, so it comes first.
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
        )
    )
    connection.execute(sa.delete(counter).where(counter.c.owner == query_id))
    connection.execute(sa.delete(late_record).where(late_record.c.query_id == query_id))
    drop_feed(raw(connection), replay_feed(query_id))
    leave_orphaned(raw(connection), query_id)
