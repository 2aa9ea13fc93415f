"""Reading a stream's records by partition and offset, straight from the built-in log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import polars as pl
import psycopg

from app.catalog.stored.log_pages import end_within
from app.db.page_bounds import Most
from app.errors.app_errors import Conflict, Gone, NotFound
from app.reads.replay_marks import with_marks
from engine.commit.sink import REPLAYED
from engine.expressions.expressions import compile_scalar
from engine.log.sequences import READ_SEQUENCE_SQL, blocks
from engine.log.storage import FIND_FEED_SQL, HEADS_SQL, READ_SQL, cut_batch
from engine.plan.catalog import CatalogEntry
from engine.records.canonical import LOGGED, canonicalise

# A relation that shares its feed may have few of its records; one answer looks through so many pages for them at most.
PAGES_PER_ANSWER = 20

Connection = psycopg.AsyncConnection[Any]


@dataclass(frozen=True, slots=True)
class RecordsPage:
    """A stretch of one partition, or of a derived stream as a whole.

    Attributes:
        partition: which; None: of all, by the numbers of the rows (``engine.log.sequences``).
        partition_count: how many partitions there are to read; None where ``partition`` is.
        frame: canonical records with ``_offset`` and the mark ``$replayed``; those of other relations in the same feed are left out.
        next_offset: where to go on.
        end_offset: the partition's present end.
    """

    partition: int | None
    partition_count: int | None
    frame: pl.DataFrame
    next_offset: int
    end_offset: int


async def read_records(
    connection: Connection, entry: CatalogEntry, partition: int | None, offset: int | None, most: Most, now_ms: int
) -> RecordsPage:
    """Read up to so many records from ``offset`` on; None begins with the oldest there is.

    Without a partition: of a source partition 0, of a derived stream all of them in the order of emission.

    Raises:
        Conflict: ``not_readable``: the relation is not kept in the built-in log.
        NotFound: ``partition_not_found``.
        Gone: ``offset_expired``: retention removed it.
    """
    is_numbered = partition is None and entry.feed.is_derived
    place = _sequence(connection, entry) if is_numbered else _partition(connection, entry, partition or 0)
    feed_id, start_offset, end_offset, partition_count = await place
    start = start_offset if offset is None else offset
    if start < start_offset:
        raise Gone("offset_expired", f"records before {start_offset} were removed by the retention; the oldest is {start_offset}")
    member = None if entry.relation.where is None else compile_scalar(entry.relation.where, entry.relation.columns).expr
    rows = most.of_rows(entry.relation.columns)
    for _ in range(PAGES_PER_ANSWER):
        end = start
        if start < end_offset:
            wanted = {"feed_id": feed_id, "partition": partition or 0, "start": start, "rows": min(rows, end_offset - start)}
            end = await end_within(connection, wanted, most.bytes, is_numbered=is_numbered)
        found = []
        params = {"feed_id": feed_id, "partition": partition or 0, "start": start, "end": end}
        async for raw in _numbered(connection, params) if is_numbered else _frames(connection, params):
            accepted, _ = canonicalise(raw, entry.relation, now_ms, LOGGED, member)
            found.append(with_marks(accepted, raw).select("_offset", "_ts", "_op", REPLAYED, *entry.relation.columns.names))
        start = end
        if start >= end_offset or any(frame.height for frame in found):
            break
    own = None if is_numbered else partition or 0
    return RecordsPage(own, partition_count, pl.concat(found) if found else pl.DataFrame(), start, end_offset)


async def _sequence(connection: Connection, entry: CatalogEntry) -> tuple[int, int, int, int | None]:
    feed = await (await connection.execute(FIND_FEED_SQL, {"name": entry.feed.log_feed})).fetchone()
    if feed is None:
        raise NotFound("relation_not_found", f"'{entry.relation.name}' was deleted")
    return feed[0], feed[3], feed[4], None


async def _numbered(connection: Connection, params: dict[str, int]) -> AsyncIterator[pl.DataFrame]:
    """Yield the rows of a derived stream with these numbers as ``_offset``."""
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(READ_SEQUENCE_SQL, params)
        for frame in blocks(iter(await cursor.fetchall()), params["start"], params["end"]):
            yield frame


async def _partition(connection: Connection, entry: CatalogEntry, partition: int) -> tuple[int, int, int, int | None]:
    name = entry.relation.name
    feed = await (await connection.execute(FIND_FEED_SQL, {"name": entry.feed.log_feed})).fetchone()
    if not entry.feed.traits.is_kept_here or feed is None:
        raise Conflict(
            "not_readable", f"'{name}' reads {entry.feed.traits.holds}; only records in the built-in log can be read by offset"
        )
    heads = await (await connection.execute(HEADS_SQL, {"feed_id": feed[0]})).fetchall()
    for found, start_offset, next_offset in heads:
        if found == partition:
            return feed[0], start_offset, next_offset, len(heads)
    raise NotFound("partition_not_found", f"'{name}' has {len(heads)} partitions, numbered from 0")


async def _frames(connection: Connection, params: dict[str, int]) -> AsyncIterator[pl.DataFrame]:
    """Yield the batches that meet the stretch, cut to it, with ``_offset``."""
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(READ_SQL, params)
        async for base, payload in cursor:
            first, frame = cut_batch(base, payload, params["start"], params["end"])
            if frame.height:
                yield frame.with_columns(pl.int_range(first, first + frame.height, dtype=pl.Int64).alias("_offset"))
