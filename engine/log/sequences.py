"""The logs of derived relations: a partition for each task, and one number for every row across them (P1, P6; ``engine.log.sequence``).

Rows are appended in *blocks* of consecutive numbers, with one batch in each partition that has some of them. ``_sequence`` is a row's number
counted from its block's first one; a batch that is a whole block leaves it out. ``_head`` is how far the merge of the producer's inputs had
come with the row, in event time; it never falls along the numbers. For readers these numbers are the offsets of one partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np
import polars as pl
from psycopg.rows import tuple_row

from engine.errors import InvariantBroken
from engine.frames.arrow_frames import decode_frame
from engine.frames.frames import HEAD, with_series, without
from engine.frames.row_bytes import RowBytes
from engine.frames.slicing import ends_within
from engine.log.sequence import Numbered
from engine.log.storage import BATCH_BYTES, BATCH_ROWS, TRIM_STEP_BATCHES, Batch, FeedRow, encode_batch, ensure_feed
from engine.postgres.postgres import Connection

SEQUENCE = "_sequence"

PLACE_COLUMNS = ("_partition", "_partition_offset")
"""The place where a row of a block is stored."""

LANE_PARTITION = 0
"""The partition of a derived feed in positions: its numbers are the offsets of this one partition."""

_BEHIND_ALL = (1 << 63) - 1

READ_SEQUENCE_SQL = """
SELECT sequence, sequence_rows, partition, base_offset, payload FROM log.batch
WHERE feed_id = %(feed_id)s AND sequence < %(end)s AND sequence >= (
    SELECT coalesce(max(sequence), 0) FROM log.batch WHERE feed_id = %(feed_id)s AND sequence <= %(start)s
)
ORDER BY sequence, partition
"""
"""Batches of the blocks that overlap ``[start, end)``; ``join_block`` joins them."""

BLOCKS_SQL = """
SELECT sequence, max(sequence_rows), sum(octet_length(payload))::bigint, max(head_ms) FROM log.batch
WHERE feed_id = %(feed_id)s AND sequence >= (
    SELECT coalesce(max(sequence), 0) FROM log.batch WHERE feed_id = %(feed_id)s AND sequence <= %(start)s
)
GROUP BY sequence ORDER BY sequence LIMIT %(blocks)s
"""
"""The next blocks from the one that contains ``start`` or is before it: number of the first row, rows, stored bytes, head at the end."""

_OPEN_SQL = """
SELECT name, id, partitions, next_sequence, reached_ms, last_mark_ms FROM log.feed WHERE name = ANY(%s) AND next_sequence IS NOT NULL
ORDER BY id FOR NO KEY UPDATE
"""
_FLOOR_SQL = "SELECT max(max_ts) FROM log.batch WHERE feed_id = %s"
_ADD_HEADS_SQL = (
    "INSERT INTO log.head (feed_id, partition) SELECT %s, generate_series(%s::int, %s::int - 1) ON CONFLICT DO NOTHING"
)
_TRIM_SQL = """
UPDATE log.feed SET start_sequence = greatest(start_sequence, least(coalesce((
    SELECT min(sequence) FROM (
        SELECT sequence, appended_at FROM log.batch WHERE feed_id = %(feed)s AND sequence IS NOT NULL
        ORDER BY sequence LIMIT %(step)s + 1
    ) oldest WHERE appended_at >= now() - %(retention_ms)s * interval '1 millisecond'
), next_sequence), coalesce((
    SELECT max(sequence) FROM log.batch
    WHERE feed_id = %(feed)s AND sequence <= %(keep_from)s::bigint AND sequence_rows > %(keep_from)s::bigint - sequence
), %(keep_from)s::bigint), (
    SELECT sequence FROM log.batch WHERE feed_id = %(feed)s AND sequence IS NOT NULL ORDER BY sequence OFFSET %(step)s LIMIT 1
)))
WHERE id = %(feed)s
RETURNING start_sequence
"""
_TRIM_DELETE_SQL = "DELETE FROM log.batch WHERE feed_id = %s AND sequence < %s"
_TRIM_MARKS_SQL = """
WITH old AS (
    SELECT time_ms FROM log.mark WHERE feed_id = %(feed)s AND (last < %(start)s OR (
        last = %(start)s AND %(start)s < %(keep_from)s::bigint AND appended_at < now() - %(retention_ms)s * interval '1 millisecond'
    ))
)
DELETE FROM log.mark WHERE feed_id = %(feed)s AND time_ms IN (SELECT time_ms FROM old) AND time_ms < (SELECT max(time_ms) FROM old)
"""
_TRIM_HEADS_SQL = """
UPDATE log.head h SET start_offset = coalesce((
    SELECT min(b.base_offset) FROM log.batch b WHERE b.feed_id = h.feed_id AND b.partition = h.partition
), next_offset) WHERE h.feed_id = %s
"""


@dataclass(frozen=True, slots=True)
class SequencedFeed:
    """A derived feed in its producer's transaction.

    Attributes:
        next_sequence: number of the next row.
        reached_ms: how far the merge of the producer's inputs has come; None before the first record.
        last_mark_ms: the time of the last mark (``engine.log.marks``); None: there is none.
    """

    id: int
    partitions: int
    next_sequence: int
    reached_ms: int | None
    last_mark_ms: int | None


class Advance(NamedTuple):
    """The progress of a producer in its feed.

    Attributes:
        last_mark_ms: the time of the batch's last mark (``engine.log.marks``); None: it has none.
        producer: the query that writes the feed.
        partitions: the least number that it has.
    """

    feed: int
    next_sequence: int
    reached_ms: int | None
    last_mark_ms: int | None
    producer: UUID | None
    partitions: int


def open_sequences(connection: Connection, names: Collection[str]) -> dict[str, SequencedFeed]:
    """Lock derived feeds for their producers' transaction, in the order of their ids; missing ones are left out."""
    feeds = {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        for name, feed_id, partitions, next_sequence, reached_ms, last_mark_ms in cursor.execute(
            _OPEN_SQL, (list(names),)
        ).fetchall():
            floor_ms = reached_ms
            if reached_ms is None and next_sequence:
                found = cursor.execute(_FLOOR_SQL, (feed_id,)).fetchone()
                floor_ms = None if found is None else found[0]
            feeds[name] = SequencedFeed(feed_id, partitions, next_sequence, floor_ms, last_mark_ms)
    return feeds


def add_partitions(connection: Connection, feed: SequencedFeed, partitions: int) -> None:
    """Add missing partitions to a feed, in its producer's transaction."""
    if partitions > feed.partitions:
        with connection.cursor() as cursor:
            cursor.execute(_ADD_HEADS_SQL, (feed.id, feed.partitions, partitions))


def blocks_of(feed: SequencedFeed, tasks: Sequence[pl.DataFrame], numbers: Numbered, now_ms: int) -> Iterator[tuple[int, Batch]]:
    """Cut a batch's rows into blocks, and yield their batches with partitions, each task's rows in its own.

    Args:
        feed: as returned by ``open_sequences``.
        tasks: each task's rows in the order of emission, by ordinal.
        numbers: of these rows.
        now_ms: the batch's wall clock.
    """
    if any(frame.height for frame in tasks):
        yield from _batches(tasks, numbers, feed.next_sequence, now_ms)


def _batches(tasks: Sequence[pl.DataFrame], numbers: Numbered, first: int, now_ms: int) -> Iterator[tuple[int, Batch]]:
    for start, end in pairwise([0, *_block_ends(tasks, numbers)]):
        size = end - start
        parts: list[tuple[int, pl.DataFrame, int]] = []
        for ordinal, (frame, sequences, heads) in enumerate(zip(tasks, numbers.sequences, numbers.heads, strict=True)):
            low, high = np.searchsorted(sequences, (start, start + size))
            if low == high:
                continue
            part = with_series(frame.slice(int(low), int(high - low)), pl.Series(HEAD, heads[low:high]))
            if part.height < size:
                part = with_series(part, pl.Series(SEQUENCE, (sequences[low:high] - start).astype(np.int32)))
            parts.append((ordinal, part, int(heads[high - 1])))
        head_ms = max(head for _, _, head in parts)
        for ordinal, part, _ in parts:
            batch = encode_batch(part, now_ms)
            yield ordinal, replace(batch, marks=None, sequence=first + start, sequence_rows=size, head_ms=head_ms)


def _block_ends(tasks: Sequence[pl.DataFrame], numbers: Numbered) -> list[int]:
    """Return the numbers at which blocks end: a block, which is read whole, has the rows and the bytes of one batch."""
    rows = sum(frame.height for frame in tasks)
    if sum(frame.estimated_size() for frame in tasks) <= BATCH_BYTES:
        return [*range(BATCH_ROWS, rows, BATCH_ROWS), rows]
    sizes = np.zeros(rows, np.int64)
    for frame, sequences in zip(tasks, numbers.sequences, strict=True):
        sizes[sequences] = RowBytes(frame.schema).of(frame)
    return ends_within(sizes, BATCH_ROWS, BATCH_BYTES)


def join_block(parts: Sequence[tuple[int, int, bytes]], sequence: int, rows: int) -> pl.DataFrame:
    """Join the batches of a block in the order of their numbers.

    Args:
        parts: partition, base offset and payload of each batch.
        sequence: the block's first number.
        rows: how many it has.

    Returns:
        The appended columns, with ``_offset`` (the row's number), ``_head``, ``_partition`` and ``_partition_offset``.
    """
    frames = []
    for partition, base, payload in parts:
        frame = decode_frame(payload)
        count = frame.height
        own = frame.get_column(SEQUENCE).to_numpy() if SEQUENCE in frame.columns else np.arange(count)
        frames.append(
            with_series(
                without(frame, SEQUENCE),
                pl.Series("_offset", own.astype(np.int64) + sequence),
                pl.Series(PLACE_COLUMNS[0], np.full(count, partition, np.int32)),
                pl.Series(PLACE_COLUMNS[1], np.arange(base, base + count, dtype=np.int64)),
            )
        )
    if len(frames) == 1:
        return frames[0]
    joined = pl.concat(frames)
    places = joined.get_column("_offset").to_numpy() - sequence
    if len(places) > rows:
        raise InvariantBroken(f"a block of {rows} rows has {len(places)}")
    return joined[np.argsort(places, kind="stable")]


def read_sequence(connection: Connection, feed_id: int, start: int, end: int) -> Iterator[pl.DataFrame]:
    """Yield the rows numbered ``[start, end)`` in order, a frame per block (``join_block``)."""
    params = {"feed_id": feed_id, "start": start, "end": end}
    with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        yield from blocks(cursor.stream(READ_SEQUENCE_SQL, params), start, end)


def blocks(rows: Iterator[tuple[Any, ...]], start: int, end: int) -> Iterator[pl.DataFrame]:
    """Join the rows of ``READ_SEQUENCE_SQL``, cut to ``[start, end)``."""
    parts: list[tuple[int, int, bytes]] = []
    block: tuple[int, int] | None = None
    for sequence, count, partition, base, payload in rows:
        if block is not None and block != (sequence, count):
            yield from _cut(join_block(parts, *block), start, end)
            parts = []
        block = (sequence, count)
        parts.append((partition, base, payload))
    if block is not None:
        yield from _cut(join_block(parts, *block), start, end)


def _cut(frame: pl.DataFrame, start: int, end: int) -> Iterator[pl.DataFrame]:
    low, high = np.searchsorted(frame.get_column("_offset").to_numpy(), (start, end))
    if low < high:
        yield frame if high - low == frame.height else frame.slice(int(low), int(high - low))


def make_result_feed(
    connection: Connection, name: str, tasks: int, producer: UUID | None, retention_ms: int | None = None
) -> FeedRow:
    """Create the feed of a derived relation, with a partition for each task of its producer (P1). An existing feed keeps its data.

    Args:
        connection: in the transaction that creates the relation.
        name: of the feed.
        tasks: of the producer.
        producer: the query that will write it.
        retention_ms: how long its rows are kept; None: for ever, or as changes are (``app.catalog.relations.change_retention``).
    """
    feed = ensure_feed(connection, name, tasks, retention_ms)
    start, following = feed.start_sequence or 0, feed.next_sequence or 0
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE log.feed SET start_sequence = %s, next_sequence = %s, producer = %s WHERE id = %s",
            (start, following, producer, feed.id),
        )
    return replace(feed, start_sequence=start, next_sequence=following)


def leave_orphaned(connection: Connection, producer: UUID) -> None:
    """Record that no query writes a query's feeds any more: they are kept, and nobody waits for more rows."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE log.feed SET producer = NULL WHERE producer = %s", (producer,))


def trim_sequence(connection: Connection, feed_id: int, retention_ms: int, keep_from: int | None = None) -> int:
    """Remove the oldest of a derived feed's blocks that are older than the retention, in the caller's transaction.

    Returns:
        The number of batches removed; 0: no old ones are left.

    Args:
        connection: in a transaction.
        feed_id: the feed.
        retention_ms: age of the blocks to remove.
        keep_from: keep the row of this number and later ones at any age; None: no row.
    """
    params = {"feed": feed_id, "retention_ms": retention_ms, "keep_from": _BEHIND_ALL if keep_from is None else keep_from}
    params["step"] = TRIM_STEP_BATCHES
    with connection.cursor(row_factory=tuple_row) as cursor:
        # Waits for a running commit: the next statement's snapshot must see the batches of this commit.
        cursor.execute("SELECT 1 FROM log.feed WHERE id = %s FOR NO KEY UPDATE", (feed_id,))
        row = cursor.execute(_TRIM_SQL, params).fetchone()
        removed = 0 if row is None else cursor.execute(_TRIM_DELETE_SQL, (feed_id, row[0])).rowcount
        if removed:
            cursor.execute(_TRIM_HEADS_SQL, (feed_id,))
        if row is not None:  # a relation without rows has marks all the same
            cursor.execute(_TRIM_MARKS_SQL, {**params, "start": row[0]})
    return removed


LAST_MARK: Final = "last_mark"
"""Stands beside a derived feed's partition for the time of its last mark, which rises also without rows (``engine.log.marks``)."""

_ENDS_SQL = """
SELECT f.name, h.partition, coalesce(f.next_sequence, h.next_offset), f.last_mark_ms
FROM log.feed f LEFT JOIN log.head h ON h.feed_id = f.id AND f.next_sequence IS NULL WHERE f.name = ANY(%b::text[])
"""


def feed_ends(connection: Connection, names: Collection[str]) -> dict[str, Mapping[str, int]]:
    """Return partition (as positions have it) → next offset, by feed, and ``LAST_MARK``; missing feeds are left out.

    One statement, because hundreds of queries need the ends at once to find new data.

    Args:
        connection: in autocommit mode.
        names: of log feeds.
    """
    ends: dict[str, dict[str, int]] = {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        for name, partition, end, last_mark_ms in cursor.execute(_ENDS_SQL, (list(names),)):
            own = ends.setdefault(name, {})
            if end is not None:
                own[str(LANE_PARTITION if partition is None else partition)] = end
            if last_mark_ms is not None:
                own[LAST_MARK] = last_mark_ms
    return dict(ends)
