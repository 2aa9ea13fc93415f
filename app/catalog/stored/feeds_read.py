"""The feeds of a query, where feeds end, and the size of one read of a feed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.catalog.stored.relations import ROWS, RelationRow, entry_of_row
from app.db.tables import feed, head, query_read, relation
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


Connection = psycopg.AsyncConnection[Any]

_SIZES_SQL = """
SELECT base_offset, rows, octet_length(payload) FROM log.batch
WHERE feed_id = %(feed_id)s AND partition = %(partition)s AND base_offset + rows > %(start)s AND base_offset >= (
    SELECT coalesce(max(base_offset), 0) FROM log.batch
    WHERE feed_id = %(feed_id)s AND partition = %(partition)s AND base_offset <= %(start)s
)
ORDER BY base_offset LIMIT %(rows)s
"""


_NUMBERED_SIZES_SQL = """
SELECT sequence, max(sequence_rows), sum(octet_length(payload))::bigint FROM log.batch
WHERE feed_id = %(feed_id)s AND sequence > %(start)s - sequence_rows AND sequence >= (
    SELECT coalesce(max(sequence), 0) FROM log.batch WHERE feed_id = %(feed_id)s AND sequence <= %(start)s
)
GROUP BY sequence ORDER BY sequence LIMIT %(rows)s
"""


async def end_within(connection: Connection, wanted: Mapping[str, int], most_bytes: int, *, is_numbered: bool) -> int:
    """Return the end of a read of a feed within so many rows and, approximately, so many bytes; at least one row.

    Args:
        connection: to the database.
        wanted: ``feed_id``, ``partition``, ``start``, ``rows``.
        most_bytes: of batches as stored, which is uncompressed.
        is_numbered: whether to read by row numbers, over all partitions.
    """
    start, rows = wanted["start"], wanted["rows"]
    end, room = start, float(most_bytes)
    sizes = _NUMBERED_SIZES_SQL if is_numbered else _SIZES_SQL
    for base, batch_rows, size in await (await connection.execute(sizes, dict(wanted))).fetchall():
        row_bytes = size / batch_rows
        take = min(base + batch_rows - end, start + rows - end, max(int(room / row_bytes), 0 if end > start else 1))
        end += take
        room -= take * row_bytes
        if end < base + batch_rows:
            break
    return end
