"""The feeds of a query, and where feeds end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.catalog.stored.relations import ROWS, RelationRow
from app.catalog.stored.targets import entry_of_row
from app.db.log_tables import feed, head
from app.db.tables import query_read, relation
from engine.log.sequences import LANE_PARTITION
from engine.plan.model import Feed


async def feeds_read(connection: AsyncConnection, query_id: UUID) -> dict[Feed, list[str]]:
    """Return the feeds of a query, each with the relations that the query reads from it."""
    reads = sa.select(query_read.c.relation_id).where(query_read.c.query_id == query_id)
    rows = await connection.execute(ROWS.where(relation.c.id.in_(reads)).order_by(relation.c.name))
    feeds: dict[Feed, list[str]] = {}
    for row in rows:
        relation_row = RelationRow(*row)
        feeds.setdefault(entry_of_row(relation_row).feed, []).append(relation_row.name)
    return feeds


class FeedEnd(NamedTuple):
    """The end of a partition of a feed.

    Attributes:
        offset: the next one.
        open_records: offsets after it that open transactions hold back.
        open_since: when a transaction was first seen to hold the end back; None: none does.
        open_age: time since then.
    """

    offset: int
    open_records: int
    open_since: datetime | None
    open_age: timedelta | None


async def log_ends(connection: AsyncConnection, feeds: list[str]) -> dict[str, dict[int, int]]:
    """Return, for each of these log feeds, partition to next offset, as positions have them: a derived feed is one partition (P1)."""
    all_ends = await feed_ends(connection, feeds)
    return {name: {partition: end.offset for partition, end in ends.items()} for name, ends in all_ends.items()}


async def feed_ends(connection: AsyncConnection, feeds: list[str]) -> dict[str, dict[int, FeedEnd]]:
    """Return ``log_ends`` with the facts about open transactions."""
    is_derived = feed.c.next_sequence.is_not(None)
    rows = await connection.execute(
        sa.select(
            feed.c.name,
            head.c.partition,
            sa.func.coalesce(feed.c.next_sequence, head.c.next_offset),
            head.c.open_records,
            head.c.open_since,
            sa.func.clock_timestamp() - head.c.open_since,
        )
        .join_from(feed, head, feed.c.id == head.c.feed_id)
        .where(feed.c.name.in_(feeds), sa.or_(~is_derived, head.c.partition == LANE_PARTITION))
        .order_by(feed.c.name, head.c.partition)
    )
    ends: dict[str, dict[int, FeedEnd]] = {}
    for name, partition, *end in rows:
        ends.setdefault(name, {})[partition] = FeedEnd(*end)
    return ends
