"""Wait until a result includes earlier appends, for readers that expect to find what they wrote."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.catalog.stored.feeds_read import feeds_read, log_ends
from app.db.log_tables import commit
from app.db.tables import query, query_status
from app.http.parameters import Services
from engine.statements.context.session import Session, SqlRelation

LOOK_EVERY_S = 0.1


async def wait_until_current(services: Services, session: Session, relation: SqlRelation, most_s: float) -> None:
    """Wait until every query upstream of a relation has read the current end of its feeds, the furthest upstream first; at most this long.

    Queries that do not run are skipped.
    """
    deadline = time.monotonic() + most_s
    for name in _upstream(session, relation):
        async with services.database.reads.connect() as connection:
            query_id = await _query(connection, name)
            ends = {} if query_id is None else await _ends(connection, query_id)
        if query_id is None:
            continue
        while time.monotonic() < deadline:
            async with services.database.reads.connect() as connection:
                if await _has_read(connection, query_id, ends):
                    break
            await asyncio.sleep(LOOK_EVERY_S)


def _upstream(session: Session, relation: SqlRelation) -> Iterator[str]:
    """Yield the queries upstream of a relation, each after the queries whose results it reads."""
    by_name = {each.definition_name: each for each in session.relations.values()}
    visited: set[str] = set()

    def walk(each: SqlRelation) -> Iterator[str]:
        for writer in each.writers:
            if writer in visited:
                continue
            visited.add(writer)
            for read in sorted(each.entry.reads):
                if read in by_name:
                    yield from walk(by_name[read])
            yield writer

    yield from walk(relation)


async def _query(connection: AsyncConnection, name: str) -> UUID | None:
    statement = (
        sa.select(query.c.id)
        .join_from(query, query_status)
        .where(
            query.c.name == name,
            query.c.deleted_at.is_(None),
            query.c.desired_state == "running",
            query_status.c.state != "failed",
        )
    )
    query_id: UUID | None = (await connection.execute(statement)).scalar_one_or_none()
    return query_id


async def _ends(connection: AsyncConnection, query_id: UUID) -> dict[str, dict[int, int]]:
    feeds = [feed for feed in await feeds_read(connection, query_id) if feed.traits.is_kept_here]
    ends = await log_ends(connection, [feed.log_feed for feed in feeds])
    return {feed.name: ends.get(feed.log_feed, {}) for feed in feeds}


async def _has_read(connection: AsyncConnection, query_id: UUID, ends_by_feed: dict[str, dict[int, int]]) -> bool:
    position = (
        await connection.execute(sa.select(commit.c.position).where(commit.c.query_id == query_id))
    ).scalar_one_or_none() or {}
    return all(
        position.get(feed, {}).get(str(part), 0) >= end for feed, ends in ends_by_feed.items() for part, end in ends.items()
    )
