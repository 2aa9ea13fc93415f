"""What tests and benchmarks need to write and read logs, most of all those of derived relations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import polars as pl
import psycopg

from engine.commit.written import SharedRows
from engine.frames.frames import HEAD, TS
from engine.log.sequence import CAUSES, Numbered
from engine.log.sequences import PLACE_COLUMNS, Advance, SequencedFeed, add_partitions, blocks_of, open_sequences, read_sequence
from engine.log.storage import find_feed, heads, read

SERVICE_COLUMNS = ("_offset", HEAD, *PLACE_COLUMNS)
"""What reading adds to the columns that were appended."""


def caused(changes: pl.DataFrame, head: int | None = 5, first: int = 0) -> pl.DataFrame:
    """Add the columns that say where they stand to what a task emits: each row stands at the place of a record of its own.

    Args:
        changes: of the last stage.
        head: of all these records; None: each record's head is the event time of its row.
        first: the first one's position.
    """
    positions = pl.int_range(first, first + pl.len(), dtype=pl.Int64)
    heads = pl.col(TS) if head is None else pl.lit(head, pl.Int64)
    values = zip(CAUSES, (heads, positions, pl.lit(None, pl.Binary)), strict=True)
    return changes.with_columns(value.alias(name) for name, value in values)


def append_rows(
    connection: psycopg.Connection[Any],
    feed: SequencedFeed,
    tasks: Sequence[pl.DataFrame],
    numbers: Numbered,
    producer: UUID | None,
    now_ms: int,
) -> None:
    """Append a batch's rows to a feed in a transaction of its producer, as the sink does."""
    add_partitions(connection, feed, len(tasks))
    rows = sum(frame.height for frame in tasks)
    written = SharedRows()
    advance = Advance(feed.id, feed.next_sequence + rows, numbers.reached_ms, None, producer, len(tasks))
    written.append(advance, blocks_of(feed, tasks, numbers, now_ms))
    with connection.cursor() as cursor:
        written.send(cursor)


def open_sequence(connection: psycopg.Connection[Any], name: str) -> SequencedFeed:
    """Lock one derived feed."""
    return open_sequences(connection, [name])[name]


def read_derived(connection: psycopg.Connection[Any], name: str) -> Iterator[pl.DataFrame]:
    """Yield everything that a derived feed holds, in the order of its numbers (``read_sequence``).

    Raises:
        LookupError: there is no such derived feed.
    """
    feed = find_feed(connection, name)
    if feed is None or feed.start_sequence is None or feed.next_sequence is None:
        raise LookupError(f"there is no derived feed {name!r}")
    yield from read_sequence(connection, feed.id, feed.start_sequence, feed.next_sequence)


def derived_rows(connection: psycopg.Connection[Any], name: str) -> pl.DataFrame:
    """Return these rows in one frame with what was appended alone; no columns where there are none."""
    frames = [frame.drop(SERVICE_COLUMNS) for frame in read_derived(connection, name)]
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def read_feed(connection: psycopg.Connection[Any], name: str) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield ``(first offset, frame)`` of all data of a feed, partition after partition."""
    feed = find_feed(connection, name)
    assert feed is not None
    for head in heads(connection, feed.id):
        yield from read(connection, feed.id, head.partition, head.start_offset, head.next_offset)
