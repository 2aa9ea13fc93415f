"""Read a stream's records by partition and offset from the built-in log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import psycopg

from app.catalog.stored.feeds_read import end_within
from app.db.page_bounds import Most
from app.errors.app_errors import Conflict, Gone, NotFound
from engine.commit.sink import REPLAYED
from engine.expressions.expressions import compile_scalar
from engine.frames.frames import with_series
from engine.log.sequences import READ_SEQUENCE_SQL, blocks
from engine.log.storage import FIND_FEED_SQL, HEADS_SQL, READ_SQL, cut_batch
from engine.plan.catalog import CatalogEntry
from engine.records.canonical import LOGGED, canonicalise

# A relation that shares its feed may have few of its records; one answer reads at most this number of pages for them.
PAGES_PER_ANSWER = 20

Connection = psycopg.AsyncConnection[Any]


@dataclass(frozen=True, slots=True)
class RecordsPage:
    """A range of one partition, or of a derived stream as a whole.

    Attributes:
        partition: which; None: all, by the numbers of the rows (``engine.log.sequences``).
        partition_count: number of partitions; None if ``partition`` is None.
        frame: canonical records with ``_offset`` and the mark ``$replayed``; without those of other relations in the feed.
        next_offset: where to continue.
        end_offset: the partition's current end.
    """

    partition: int | None
    partition_count: int | None
    frame: pl.DataFrame
    next_offset: int
    end_offset: int


async def read_records(
    connection: Connection, entry: CatalogEntry, partition: int | None, offset: int | None, most: Most, now_ms: int
) -> RecordsPage:
    """Read up to ``most`` records from ``offset`` on; None begins with the oldest.

    Without a partition: for a source partition 0, for a derived stream all records in the order of emission.

    Raises:
        Conflict: ``not_readable``: the relation is not in the built-in log.
        NotFound: ``partition_not_found``.
        Gone: ``offset_expired``: retention removed the records.
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
            range_params = {
                "feed_id": feed_id,
                "partition": partition or 0,
                "start": start,
                "rows": min(rows, end_offset - start),
            }
            end = await end_within(connection, range_params, most.bytes, is_numbered=is_numbered)
        frames = []
        params = {"feed_id": feed_id, "partition": partition or 0, "start": start, "end": end}
        async for raw in _numbered(connection, params) if is_numbered else _frames(connection, params):
            accepted, _ = canonicalise(raw, entry.relation, now_ms, LOGGED, member)
            frames.append(with_marks(accepted, raw).select("_offset", "_ts", "_op", REPLAYED, *entry.relation.columns.names))
        start = end
        if start >= end_offset or any(frame.height for frame in frames):
            break
    partition_read = None if is_numbered else partition or 0
    return RecordsPage(partition_read, partition_count, pl.concat(frames) if frames else pl.DataFrame(), start, end_offset)


async def _sequence(connection: Connection, entry: CatalogEntry) -> tuple[int, int, int, int | None]:
    feed = await (await connection.execute(FIND_FEED_SQL, {"name": entry.feed.log_feed})).fetchone()
    if feed is None:
        raise NotFound("relation_not_found", f"'{entry.relation.name}' was deleted")
    return feed[0], feed[3], feed[4], None


async def _numbered(connection: Connection, params: dict[str, int]) -> AsyncIterator[pl.DataFrame]:
    """Yield the rows of a derived stream with their numbers as ``_offset``."""
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
    for number, start_offset, next_offset in heads:
        if number == partition:
            return feed[0], start_offset, next_offset, len(heads)
    raise NotFound("partition_not_found", f"'{name}' has {len(heads)} partitions, numbered from 0")


async def _frames(connection: Connection, params: dict[str, int]) -> AsyncIterator[pl.DataFrame]:
    """Yield the batches of a range, cut to it, with ``_offset``."""
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(READ_SQL, params)
        async for base, payload in cursor:
            first, frame = cut_batch(base, payload, params["start"], params["end"])
            if frame.height:
                yield frame.with_columns(pl.int_range(first, first + frame.height, dtype=pl.Int64).alias("_offset"))


def with_marks(records: pl.DataFrame, raw: pl.DataFrame) -> pl.DataFrame:
    """Add the column ``$replayed`` to records of the log.

    Args:
        records: with ``_offset``.
        raw: the batch of these records, with ``_offset``; without replayed results it lacks the column.
    """
    if REPLAYED not in raw.columns:
        return with_series(records, pl.Series(REPLAYED, np.zeros(records.height, np.bool_)))
    offsets = raw.filter(pl.col(REPLAYED))["_offset"]
    return records.with_columns(pl.col("_offset").is_in(offsets.implode()).alias(REPLAYED))
