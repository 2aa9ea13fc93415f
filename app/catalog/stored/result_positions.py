"""How far a derived relation's result is: what every read's answer carries beside the rows."""

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
    """As of the last commit.

    Attributes:
        position: feed to partition to next offset.
        is_stale: the query that writes it does not run.
    """

    position: dict[str, dict[str, int]]
    stream_time_ms: int | None
    committed_at: datetime | None
    is_stale: bool


IS_ALIVE = sa.and_(
    query_status.c.state == "running", sa.func.coalesce(query_status.c.lease_expires_at > sa.func.now(), sa.false())
)
"""The query runs, and its driver has been heard of: a driver that was killed leaves "running" behind."""

NOTHING_YET = ResultPosition({}, None, None, is_stale=True)


async def result_position(connection: AsyncConnection, row: RelationRow) -> ResultPosition:
    """Return the position of a relation's content. A source has none and is never stale; a result without its query always is."""
    if row.kept is not None:
        kept = row.kept
        committed_at = None if kept["committed_at"] is None else datetime.fromisoformat(kept["committed_at"])
        return ResultPosition(kept["position"], kept["stream_time_ms"], committed_at, is_stale=True)
    if row.produced_by is None:
        return ResultPosition({}, None, None, is_stale=False)
    statement = (
        sa.select(commit.c.position, commit.c.stream_time_ms, commit.c.committed_at, IS_ALIVE.label("is_alive"))
        .join_from(query, query_status)
        .join(commit, sa.and_(commit.c.query_id == query.c.id, commit.c.checkpoint_id == query.c.checkpoint_id), isouter=True)
        .where(query.c.name == row.produced_by, query.c.deleted_at.is_(None))
    )
    found = (await connection.execute(statement)).one_or_none()
    if found is None:
        return NOTHING_YET
    return ResultPosition(found.position or {}, found.stream_time_ms, found.committed_at, is_stale=not found.is_alive)
