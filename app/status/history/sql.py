"""Read events and runs of queries, and rejects, page by page. A page's last row may be beyond the page (``page_bounds``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.log_tables import reject
from app.db.page_bounds import Most, bounded
from app.db.tables import query, query_event, query_run


async def find_query_id(connection: AsyncConnection, name: str) -> UUID | None:
    ids = await connection.execute(sa.select(query.c.id).where(query.c.name == name, query.c.deleted_at.is_(None)))
    return ids.scalar_one_or_none()


async def events_of(connection: AsyncConnection, query_id: UUID, most: Most, after: int | None) -> Sequence[sa.Row[Any]]:
    """Return events, oldest first."""
    statement = sa.select(query_event).where(query_event.c.query_id == query_id).order_by(query_event.c.id).limit(most.items)
    if after is not None:
        statement = statement.where(query_event.c.id > after)
    events: sa.CursorResult[Any] = await connection.execute(bounded(statement, ("detail",), most.bytes))
    return events.all()


async def runs_of(connection: AsyncConnection, query_id: UUID, most: Most, before: int | None) -> Sequence[sa.Row[Any]]:
    """Return launches, newest first."""
    statement = sa.select(query_run).where(query_run.c.query_id == query_id).order_by(query_run.c.epoch.desc()).limit(most.items)
    if before is not None:
        statement = statement.where(query_run.c.epoch < before)
    runs: sa.CursorResult[Any] = await connection.execute(bounded(statement, ("error",), most.bytes))
    return runs.all()


async def rejects_of(
    connection: AsyncConnection, owner: str, most: Most, before: int | None, reason: str | None
) -> Sequence[sa.Row[Any]]:
    """Return stored rejects of a relation, newest first."""
    statement = sa.select(reject).where(reject.c.owner == owner).order_by(reject.c.id.desc()).limit(most.items)
    if before is not None:
        statement = statement.where(reject.c.id < before)
    if reason is not None:
        statement = statement.where(reject.c.reason == reason)
    rejects: sa.CursorResult[Any] = await connection.execute(bounded(statement, ("detail", "excerpt"), most.bytes))
    return rejects.all()


async def rejects_by_reason(connection: AsyncConnection, owner: str) -> dict[str, int]:
    """Return the number of stored rejects of a relation by reason."""
    rows = await connection.execute(
        sa.select(reject.c.reason, sa.func.count())
        .where(reject.c.owner == owner)
        .group_by(reject.c.reason)
        .order_by(reject.c.reason)
    )
    return dict(rows.all())
