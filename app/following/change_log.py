"""Read the log of a relation's changes for followers: ranges of one partition, as JSON.

Followers of a derived relation use the numbers of its rows as if they were offsets of one partition (``engine.log.sequences``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import polars as pl

from app.catalog.stored.feeds_read import Connection, end_within
from app.following.followed import Followed
from app.http.answers.record_json import FEW_ROWS, encode_keyed
from app.reads.records import with_marks
from engine.commit.sink import REPLAYED
from engine.frames.arrow_frames import decode_frame
from engine.frames.frames import only
from engine.log.sequences import PLACE_COLUMNS, READ_SEQUENCE_SQL, blocks
from engine.log.storage import READ_SQL, cut_batch
from engine.records.canonical import LOGGED, OP_UPSERT, canonicalise
from engine.records.conform import nulls

STRETCH_ROWS = 1_000
STRETCH_BYTES = 1 << 20
"""Bounds of one read. Batches of the log reach 32 MB, and many followers may be behind."""


_MARK = f',"{REPLAYED}":true'
Heads = list[tuple[int, int]]
"""(Oldest offset, next offset) by lane."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """A range ``[start, end)`` of one partition. It has two lists, not a list of objects: a tail keeps thousands of changes.

    Attributes:
        offsets: of the items, ascending; in a shared feed only those of the relation.
        texts: the JSON of each item.
        end: where the next range begins.
    """

    offsets: Sequence[int]
    texts: Sequence[str]
    end: int


async def range_end(connection: Connection, followed: Followed, partition: int, start: int, rows: int) -> int:
    """Return the end of a range from ``start`` with up to ``rows`` rows and about ``STRETCH_BYTES`` bytes; at least one row."""
    params = {"feed_id": followed.feed_id, "partition": partition, "start": start, "rows": rows}
    return await end_within(connection, params, STRETCH_BYTES, is_numbered=followed.is_derived)


async def read_frame(connection: Connection, followed: Followed, partition: int, start: int, end: int) -> pl.DataFrame:
    """Return the relation's changes in ``[start, end)``: ``_offset``, ``_ts``, ``_op``, ``$replayed`` and its columns.

    The frame of a derived relation also has ``_partition`` and ``_partition_offset``.
    """
    params = {"feed_id": followed.feed_id, "partition": partition, "start": start, "end": end}
    if followed.is_derived:
        return await _read_numbered(connection, followed, start, end)
    frames = []
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(READ_SQL, params)
        async for base, payload in cursor:
            first, frame = cut_batch(base, payload, start, end)
            if frame.height:
                offsets = pl.int_range(first, first + frame.height, dtype=pl.Int64).alias("_offset")
                frames.append(_members(followed, frame.with_columns(offsets)))
    return pl.concat(frames) if frames else pl.DataFrame()


async def _read_numbered(connection: Connection, followed: Followed, start: int, end: int) -> pl.DataFrame:
    params = {"feed_id": followed.feed_id, "start": start, "end": end}
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(READ_SEQUENCE_SQL, params)
        return numbered_frame(followed, await cursor.fetchall(), start, end)


def numbered_frame(followed: Followed, rows: Sequence[tuple[Any, ...]], start: int, end: int) -> pl.DataFrame:
    """Return a derived relation's changes in ``[start, end)`` from rows of ``READ_SEQUENCE_SQL``."""
    frames_read = blocks(iter(rows), start, end)
    columns = ("_offset", "_ts", "_op", REPLAYED, *followed.columns.names, *PLACE_COLUMNS)
    read = _whole if followed.part is None else _as_part
    frames = [only(with_marks(read(frame, followed), frame), *columns) for frame in frames_read]
    return frames[0] if len(frames) == 1 else pl.concat(frames or [pl.DataFrame()])


def _as_part(frame: pl.DataFrame, followed: Followed) -> pl.DataFrame:
    """Convert appended results of a query to records of the stream: its columns, its event time, its rules (P13)."""
    accepted, _ = canonicalise(frame, followed.relation, time.time_ns() // 1_000_000, LOGGED)
    return accepted.join(frame.select("_offset", *PLACE_COLUMNS), on="_offset", how="left", maintain_order="left")


def _whole(frame: pl.DataFrame, followed: Followed) -> pl.DataFrame:
    """Add columns that the result received after these rows were written, as nulls."""
    missing = [(name, kind) for name, kind in followed.columns.items() if name not in frame.columns]
    return frame.with_columns(nulls(name, kind, frame.height) for name, kind in missing) if missing else frame


async def read_range(
    connection: Connection, followed: Followed, partition: int, start: int, end: int, *, has_text_numbers: bool
) -> LogRange:
    """Return the relation's changes in ``[start, end)``."""
    frame = await read_frame(connection, followed, partition, start, end)
    return encode_changes(followed, partition, frame, end, has_text_numbers=has_text_numbers)


def encode_changes(followed: Followed, partition: int, frame: pl.DataFrame, end: int, *, has_text_numbers: bool) -> LogRange:
    """Return changes as clients receive them, up to ``end``. Records of a stream have the op ``append``; a deleted row is null."""
    if frame.is_empty():
        return LogRange([], [], end)
    keys, rows = encode_keyed(frame, followed.columns, followed.key, has_text_numbers=has_text_numbers)
    offsets, times, ops, marks = (frame.get_column(name).to_list() for name in ("_offset", "_ts", "_op", REPLAYED))
    if followed.is_derived:
        places = list(zip(*(frame.get_column(name).to_list() for name in PLACE_COLUMNS), strict=True))
    else:
        places = [(partition, offset) for offset in offsets]
    return LogRange(offsets, _written(followed, zip(offsets, times, ops, marks, places, keys, rows, strict=True)), end)


def few_changes(
    followed: Followed, rows: Sequence[tuple[Any, ...]], start: int, end: int, *, has_text_numbers: bool
) -> LogRange | None:
    """Return the same as ``encode_changes``, for a few rows of ``READ_SEQUENCE_SQL`` that need no conversion.

    None: there are too many rows, or they need a frame. Building a frame costs more than writing a few texts.
    """
    if followed.part is not None or sum(row[1] for row in rows) > FEW_ROWS:
        return None
    numbers: list[int] = []
    written: list[str] = []
    for sequence, count, partition, base, payload in rows:
        frame = decode_frame(payload)
        present = set(frame.columns)
        if frame.height != count or REPLAYED in present or not present.issuperset(followed.columns.names):
            return None
        first, last = max(start - sequence, 0), min(end - sequence, count)
        if last - first < count:
            frame = frame.slice(first, max(last - first, 0))
        keys, texts = encode_keyed(frame, followed.columns, followed.key, has_text_numbers=has_text_numbers)
        times, ops = (frame.get_column(name).to_list() for name in ("_ts", "_op"))
        offsets, places_in_partition = range(sequence + first, sequence + last), range(base + first, base + last)
        places = zip(repeat(partition, len(places_in_partition)), places_in_partition, strict=True)
        numbers += offsets
        written += _written(
            followed, zip(offsets, times, ops, repeat(False, len(places_in_partition)), places, keys, texts, strict=True)
        )
    return LogRange(numbers, written, end)


def _written(followed: Followed, changes: Iterable[tuple[int, int, int, bool, tuple[int, int], str, str]]) -> list[str]:
    """Write changes: offset, event time, op, whether it is replayed, its partition and offset there, and the texts of its key and row."""
    upsert = "append" if followed.kind == "stream" else "upsert"
    part = "" if followed.part is None else f'"part":{json.dumps(followed.part)},'
    is_numbered = followed.is_derived
    texts = []
    for offset, ts, op, is_replayed, place, key, row in changes:
        number = f'"sequence":{offset},{part}' if is_numbered else ""
        # LATE_END, the end of a late row, is a delete too: without it a follower would keep a row that the table does not have.
        is_delete = op != OP_UPSERT
        texts.append(
            f'{{"op":"{"delete" if is_delete else upsert}","partition":{place[0]},"offset":{place[1]},{number}'
            f'"event_time_ms":{ts},"key":{key},"row":{"null" if is_delete else row}{_MARK if is_replayed else ""}}}'
        )
    return texts


def _members(followed: Followed, frame: pl.DataFrame) -> pl.DataFrame:
    columns = ("_offset", "_ts", "_op", REPLAYED, *followed.columns.names)
    accepted, _ = canonicalise(frame, followed.relation, time.time_ns() // 1_000_000, LOGGED, followed.member)
    return with_marks(accepted, frame).select(columns)
