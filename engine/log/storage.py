"""The built-in log: feeds of record batches in Postgres, with gap-free offsets per partition.

A batch is one row: an Arrow IPC stream of ``_ts``, ``_op``, ``_arrival`` and the columns of the relation it was posted to.
The head row gives offsets, and the same statement updates it: an append that rolls back leaves no gap, and appends to
one partition wait for each other. ``engine.log.sequences`` adds the parts that only logs of derived relations have.

Everything is plain SQL in constants, so that a synchronous writer (the sink) and an asynchronous one (the API's group commit)
share it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import polars as pl
from psycopg.rows import tuple_row

from engine.errors import InvariantBroken
from engine.frames.arrow_frames import decode_frame, encode_frame, split_by_ordinal
from engine.frames.frames import with_series, without
from engine.frames.hashing import key_hash
from engine.frames.slicing import slices
from engine.postgres.postgres import Connection

_APPEND = """
WITH {guard}head AS (
    UPDATE log.head SET next_offset = next_offset + %(rows)s
    WHERE feed_id = %(feed_id)s AND partition = %(partition)s{guarded}
    RETURNING next_offset - %(rows)s AS base
)
INSERT INTO log.batch (feed_id, partition, base_offset, rows, min_ts, max_ts, payload, marks, sequence, sequence_rows, head_ms)
SELECT %(feed_id)s, %(partition)s, base, %(rows)s, %(min_ts)s, %(max_ts)s, %(payload)s,
    %(marks)s::bigint[], %(sequence)s::bigint, %(sequence_rows)s::integer, %(head_ms)s::bigint FROM head
RETURNING base_offset
"""
APPEND_SQL = _APPEND.format(guard="", guarded="")
"""Parameters: ``append_params``. Returns the base offset, or no row if the feed or the partition does not exist."""


def append_behind(guard: str) -> str:
    """Return ``APPEND_SQL`` with a guard: it appends nothing and returns no row if the guard query returns none.

    Args:
        guard: the query. Its locks come before the lock of the partition's head, and last until the end of the transaction.
    """
    return _APPEND.format(guard=f"guard AS MATERIALIZED ({guard}), ", guarded=" AND EXISTS (SELECT FROM guard)")


CLAIM_KEY_SQL = """
INSERT INTO log.append_key AS kept (feed_id, key, digest, response, expires_at)
VALUES (%(feed_id)s, %(key)s, %(digest)s, 'null', now() + %(ttl_ms)s * interval '1 millisecond')
ON CONFLICT (feed_id, key) DO UPDATE SET
    digest = CASE WHEN kept.expires_at < now() THEN excluded.digest ELSE kept.digest END,
    response = CASE WHEN kept.expires_at < now() THEN excluded.response ELSE kept.response END,
    expires_at = CASE WHEN kept.expires_at < now() THEN excluded.expires_at ELSE kept.expires_at END
RETURNING digest, response
"""
"""Claim an idempotency key in the transaction of its append. It waits for a rival transaction with the same key. A null
response: the key is ours, append and then ``STORE_RESPONSE_SQL``. A response with our digest: answer it. Another digest: a
conflict. Claim keys in sorted order, each once per transaction."""

STORE_RESPONSE_SQL = "UPDATE log.append_key SET response = %(response)s WHERE feed_id = %(feed_id)s AND key = %(key)s"

READ_SQL = """
SELECT base_offset, payload FROM log.batch
WHERE feed_id = %(feed_id)s AND partition = %(partition)s AND base_offset < %(end)s AND base_offset >= (
    SELECT coalesce(max(base_offset), 0) FROM log.batch
    WHERE feed_id = %(feed_id)s AND partition = %(partition)s AND base_offset <= %(start)s
)
ORDER BY base_offset
"""
"""Batches that overlap ``[start, end)``; ``cut_batch`` cuts them."""

FIND_FEED_SQL = "SELECT id, partitions, retention_ms, start_sequence, next_sequence FROM log.feed WHERE name = %(name)s"
_FEED_HEADS_SQL = """
SELECT f.name, h.partition, h.start_offset, h.next_offset FROM log.feed f JOIN log.head h ON h.feed_id = f.id
WHERE f.name = ANY(%(names)s) ORDER BY f.name, h.partition
"""
HEADS_SQL = "SELECT partition, start_offset, next_offset FROM log.head WHERE feed_id = %(feed_id)s ORDER BY partition"

_TRIM_SQL = """
UPDATE log.head SET start_offset = greatest(start_offset, least(coalesce((
    SELECT min(base_offset) FROM (
        SELECT base_offset, appended_at FROM log.batch WHERE feed_id = %(feed_id)s AND partition = %(partition)s
        ORDER BY base_offset LIMIT %(step)s + 1
    ) oldest WHERE appended_at >= now() - %(retention_ms)s * interval '1 millisecond'
), next_offset), (
    SELECT max(base_offset) FROM log.batch
    WHERE feed_id = %(feed_id)s AND partition = %(partition)s AND %(keep_from)s::bigint BETWEEN base_offset AND base_offset + rows - 1
), %(keep_from)s::bigint, (
    SELECT base_offset FROM log.batch WHERE feed_id = %(feed_id)s AND partition = %(partition)s
    ORDER BY base_offset OFFSET %(step)s LIMIT 1
)))
WHERE feed_id = %(feed_id)s AND partition = %(partition)s
RETURNING start_offset
"""
_TRIM_DELETE_SQL = "DELETE FROM log.batch WHERE feed_id = %s AND partition = %s AND base_offset < %s"

TRIM_STEP_BATCHES = 2_000
"""Removed in one transaction: appends to the partition, or commits into the feed, wait for it. More than a block's batches (one per task)."""

BATCH_ROWS = 65_536
BATCH_BYTES = 32 << 20
"""A batch is read whole, and a value in Postgres cannot exceed 1 GB; a larger single record still gets its own batch."""

MARK_ROWS = 4_096
"""Rows between two stored values of the running maximum of event time, so that readers can cut a batch near an event time (P2)."""

_INTERNAL_COLUMNS = ("_key_hash", "_offset", "_arrival")


@dataclass(frozen=True, slots=True)
class FeedRow:
    """A row of ``log.feed``.

    Attributes:
        start_sequence: first kept number of a derived feed; None for a source's.
        next_sequence: number of a derived feed's next row; None for a source's.
    """

    id: int
    partitions: int
    retention_ms: int | None
    start_sequence: int | None = None
    next_sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """Where a partition's records begin and end: ``[start_offset, next_offset)``."""

    partition: int
    start_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The row that one append writes.

    Attributes:
        marks: running maximum of event time at the end of every ``MARK_ROWS`` rows but the last; None for a small batch.
        sequence: in a derived feed the first number of its block (``engine.log.sequences``).
        sequence_rows: rows of the block, over all partitions.
        head_ms: the greatest head in the block.
    """

    rows: int
    min_ts: int
    max_ts: int
    payload: bytes
    marks: list[int] | None = None
    sequence: int | None = None
    sequence_rows: int | None = None
    head_ms: int | None = None


def encode_batch(frame: pl.DataFrame, arrival_ms: int) -> Batch:
    """Make a batch of accepted records (at least one), in their order. ``_offset`` and ``_key_hash`` are left out."""
    times = frame.get_column("_ts")
    arrivals = pl.Series("_arrival", np.full(frame.height, arrival_ms))
    payload = with_series(without(frame, *_INTERNAL_COLUMNS), arrivals)
    return Batch(frame.height, cast("int", times.min()), cast("int", times.max()), encode_frame(payload), _marks(frame))


def _marks(frame: pl.DataFrame) -> list[int] | None:
    if frame.height <= MARK_ROWS:
        return None
    maxima: list[int] = frame["_ts"].cum_max().gather_every(MARK_ROWS, MARK_ROWS - 1).to_list()
    return maxima[: (frame.height - 1) // MARK_ROWS]


def encode_batches(frame: pl.DataFrame, arrival_ms: int) -> list[Batch]:
    """Make batches of accepted records within ``BATCH_ROWS`` and ``BATCH_BYTES``."""
    return [encode_batch(part, arrival_ms) for part in slices(frame, BATCH_ROWS, BATCH_BYTES)]


def route(frame: pl.DataFrame, key: Sequence[str], partitions: int) -> list[tuple[int, pl.DataFrame]]:
    """Split accepted records by partition, order kept: hash of the key modulo partitions; a null or absent key is partition 0."""
    if partitions == 1 or not key:
        return [(0, frame)] if frame.height else []
    parts = split_by_ordinal(with_series(frame, key_hash(frame, key).alias("_key_hash")), partitions)
    return [(partition, without(part, "_key_hash")) for partition, part in enumerate(parts) if part.height]


def append_params(feed_id: int, partition: int, batch: Batch) -> dict[str, Any]:
    return {
        "feed_id": feed_id,
        "partition": partition,
        "rows": batch.rows,
        "min_ts": batch.min_ts,
        "max_ts": batch.max_ts,
        "payload": batch.payload,
        "marks": batch.marks,
        "sequence": batch.sequence,
        "sequence_rows": batch.sequence_rows,
        "head_ms": batch.head_ms,
    }


def append_batches(connection: Connection, feed_id: int, batches: Iterable[tuple[int, Batch]]) -> list[int]:
    """Append ``(partition, batch)`` pairs in the caller's transaction; return their base offsets in the order given.

    Heads are locked in the order of partitions, so that two writers of several partitions cannot wait for each other.

    Raises:
        InvariantBroken: the feed or a partition does not exist.
    """
    pairs = list(batches)
    bases = [0] * len(pairs)
    with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        for index in sorted(range(len(pairs)), key=lambda i: pairs[i][0]):
            partition, batch = pairs[index]
            row = cursor.execute(APPEND_SQL, append_params(feed_id, partition, batch)).fetchone()
            if row is None:
                raise InvariantBroken(f"feed {feed_id} has no partition {partition}")
            bases[index] = row[0]
    return bases


def find_feed(connection: Connection, name: str) -> FeedRow | None:
    """Return the feed of that name."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(FIND_FEED_SQL, {"name": name}).fetchone()
    return None if row is None else FeedRow(*row)


def name_feed(connection: Connection, name: str, partitions: int, retention_ms: int | None = None) -> None:
    """Make the feed's row if there is none. It has no heads yet: the ends of its partitions are unknown."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO log.feed (name, partitions, retention_ms) VALUES (%s, %s, %s) ON CONFLICT (name) DO NOTHING",
            (name, partitions, retention_ms),
        )


def ensure_feed(connection: Connection, name: str, partitions: int, retention_ms: int | None = None) -> FeedRow:
    """Create the feed with its heads, or return the existing one, unchanged: relations that share a feed share its partitions."""
    name_feed(connection, name, partitions, retention_ms)
    feed = find_feed(connection, name)
    if feed is None:
        raise InvariantBroken(f"feed {name!r} vanished while it was made")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO log.head (feed_id, partition) SELECT %s, generate_series(0, %s - 1) ON CONFLICT DO NOTHING",
            (feed.id, feed.partitions),
        )
    return feed


def set_retention(connection: Connection, name: str, retention_ms: int | None) -> None:
    """Change how long a feed's batches are kept; None = for ever."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE log.feed SET retention_ms = %s WHERE name = %s", (retention_ms, name))


def feed_heads(connection: Connection, names: Collection[str]) -> dict[str, list[Head]]:
    """Return the heads of several feeds, by name, in one statement; missing feeds are left out."""
    found: dict[str, list[Head]] = {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        for name, *head in cursor.execute(_FEED_HEADS_SQL, {"names": list(names)}):
            found.setdefault(name, []).append(Head(*head))
    return found


def heads(connection: Connection, feed_id: int) -> list[Head]:
    """Return every partition's head, by partition."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        return [Head(*row) for row in cursor.execute(HEADS_SQL, {"feed_id": feed_id})]


def cut_batch(base: int, payload: bytes, start: int, end: int) -> tuple[int, pl.DataFrame]:
    """Decode a batch and keep the records with ``start <= offset < end``; returns ``(first offset, frame)``."""
    frame = decode_frame(payload)
    first = max(start - base, 0)
    last = min(end - base, frame.height)
    if (first, last) == (0, frame.height):
        return base, frame
    return base + first, frame.slice(first, max(last - first, 0))


def read(connection: Connection, feed_id: int, partition: int, start: int, end: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield ``(first offset, frame)`` of one partition in ``[start, end)``, in order, with the columns that were posted."""
    params = {"feed_id": feed_id, "partition": partition, "start": start, "end": end}
    with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        for base, payload in cursor.stream(READ_SQL, params):
            first, frame = cut_batch(base, payload, start, end)
            if frame.height:
                yield first, frame


def trim(connection: Connection) -> int:
    """Remove batches of sources that are older than their feed's retention, and expired idempotency keys; return the number removed.

    A head moves before its batches go, in one transaction, so that no reader sees a start without its batch.
    """
    removed = 0
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("DELETE FROM log.append_key WHERE expires_at < now()")
        cursor.execute(
            "SELECT feed.id, head.partition, feed.retention_ms FROM log.feed JOIN log.head ON head.feed_id = feed.id "
            "WHERE feed.retention_ms IS NOT NULL AND feed.next_sequence IS NULL ORDER BY feed.id, head.partition"
        )
        for feed_id, partition, retention_ms in cursor.fetchall():
            removed += trim_in_steps(connection, partial(trim_partition, connection, feed_id, partition, retention_ms))
    return removed


def trim_in_steps(connection: Connection, step: Callable[[], int]) -> int:
    """Repeat a step, each time in a separate transaction, until it removes nothing; return the total removed."""
    total = 0
    while True:
        with connection.transaction():
            removed = step()
        if not removed:
            return total
        total += removed


def trim_partition(
    connection: Connection,
    feed_id: int,
    partition: int,
    retention_ms: int,
    keep_from: int | None = None,
    step_batches: int = TRIM_STEP_BATCHES,
) -> int:
    """Remove the oldest of a partition's batches that are older than the retention, in the caller's transaction; return their number.

    Args:
        connection: in a transaction.
        feed_id: the feed.
        partition: which of its partitions.
        retention_ms: age of the batches to remove.
        keep_from: keep records from this offset on at any age; None: none.
        step_batches: most batches removed.
    """
    params = {
        "feed_id": feed_id, "partition": partition, "retention_ms": retention_ms, "keep_from": keep_from, "step": step_batches,
    }  # fmt: skip
    with connection.cursor(row_factory=tuple_row) as cursor:
        # Waits for a running append: the next statement's snapshot must see the batch of this append.
        cursor.execute("SELECT 1 FROM log.head WHERE feed_id = %s AND partition = %s FOR UPDATE", (feed_id, partition))
        row = cursor.execute(_TRIM_SQL, params).fetchone()
        return 0 if row is None else cursor.execute(_TRIM_DELETE_SQL, (feed_id, partition, row[0])).rowcount
