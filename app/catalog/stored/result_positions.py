"""The position of a derived relation's result; the answer of every read contains it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.catalog.stored.relations import RelationRow
from app.db.log_tables import commit
from app.db.tables import query, query_status


@dataclass(frozen=True, slots=True)
class ResultPosition:
    """Facts of the last commit.

    Attributes:
        position: feed → partition → next offset.
        is_stale: whether its query does not run.
    """

    position: dict[str, dict[str, int]]
    stream_time_ms: int | None
    committed_at: datetime | None
    is_stale: bool


IS_ALIVE = sa.and_(
    query_status.c.state == "running", sa.func.coalesce(query_status.c.lease_expires_at > sa.func.now(), sa.false())
)
"""The query runs, and its driver sends heartbeats: a killed driver leaves "running" behind."""

NOTHING_YET = ResultPosition({}, None, None, is_stale=True)


async def result_position(connection: AsyncConnection, row: RelationRow) -> ResultPosition:
    """Return the position of a relation's content. A source has none and is never stale; a result without its query is always stale."""
    if row.kept is not None:
        retained = row.kept
        committed_at = None if retained["committed_at"] is None else datetime.fromisoformat(retained["committed_at"])
        return ResultPosition(retained["position"], retained["stream_time_ms"], committed_at, is_stale=True)
    if row.produced_by is None:
        return ResultPosition({}, None, None, is_stale=False)
    statement = (
        sa.select(commit.c.position, commit.c.stream_time_ms, commit.c.committed_at, IS_ALIVE.label("is_alive"))
        .join_from(query, query_status)
        .join(commit, sa.and_(commit.c.query_id == query.c.id, commit.c.checkpoint_id == query.c.checkpoint_id), isouter=True)
        .where(query.c.name == row.produced_by, query.c.deleted_at.is_(None))
    )
    status_row = (await connection.execute(statement)).one_or_none()
    if status_row is None:
        return NOTHING_YET
    return ResultPosition(
        status_row.position or {}, status_row.stream_time_ms, status_row.committed_at, is_stale=not status_row.is_alive
    )
