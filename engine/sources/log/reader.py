"""Reading a log feed for a query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from psycopg.rows import tuple_row

from engine.errors import RecordsRemoved, SourceUnavailable
from engine.frames.arrow_frames import SMALL_BLOB_BYTES, decode_frame
from engine.frames.clocks import I64
from engine.frames.frames import only, with_series
from engine.log import storage as log
from engine.log.backlogs import LogBatch, Unread
from engine.log.fetched import LogSplit
from engine.plan.model import Feed, RelationSchema
from engine.postgres.incarnation import cut_off
from engine.postgres.postgres import Connection, shared_connection
from engine.records.canonical import LOGGED, cast_columns, empty_rejects
from engine.sources.feeds import Chunk, FeedReader, Limit, ReadRequest, Split, Start
from engine.sources.packets import Packet
from engine.sources.shaping import Piece, shape

CHUNK_ROWS = 8_192
CHUNK_BYTES = 1 << 20
"""Batches are joined up to this size: group commit leaves thousands of small ones, and admission needs no smaller steps."""

LOOK_AHEAD_BATCHES = 20_000
"""Batches whose sizes are read in one call; a backlog of one-record batches is admitted over several batches."""

SPLIT_ROWS = 131_072
PIECE_ROWS = 131_072
PIECE_BYTES = 32 << 20
"""A piece is decoded and validated at once; bytes bound the memory of feeds with large values."""

_BATCHES_SQL = """
SELECT base_offset, rows, octet_length(payload), max_ts, marks FROM log.batch
WHERE feed_id = %(feed_id)s AND partition = %(partition)s AND base_offset >= (
    SELECT coalesce(max(base_offset), 0) FROM log.batch
    WHERE feed_id = %(feed_id)s AND partition = %(partition)s AND base_offset <= %(start)s
) AND base_offset + rows > %(start)s
ORDER BY base_offset LIMIT %(batches)s
"""
_AT_SQL = """
SELECT base_offset FROM log.batch
WHERE feed_id = %(feed_id)s AND partition = %(partition)s AND max_ts >= %(at)s
ORDER BY base_offset LIMIT 1
"""


_TIMES_SQL = """
SELECT base_offset, rows, max_ts FROM log.batch
WHERE feed_id = %(feed_id)s AND partition = %(partition)s AND base_offset >= (
    SELECT coalesce(max(base_offset), 0) FROM log.batch
    WHERE feed_id = %(feed_id)s AND partition = %(partition)s AND base_offset <= %(start)s
) AND base_offset < %(end)s AND base_offset + rows > %(start)s
ORDER BY base_offset
"""
_UNSEEN: Final = {"_arrival"}
"""Ignored columns: no relation has a column of that name."""

_PAYLOAD_SQL = "SELECT payload FROM log.batch WHERE feed_id = %s AND partition = %s AND base_offset = %s"


@dataclass(frozen=True, slots=True)
class LogReader(FeedReader):
    """A ``FeedReader`` over the log of a source."""

    dsn: str
    feed: Feed

    def starts(self, start: Start) -> Mapping[int, int]:
        """See ``FeedReader``. For a time: the first batch that holds a record of that time or later."""
        with shared_connection(self.dsn) as connection:
            feed = self._find(connection)
            heads = log.heads(connection, feed.id)
            if start == "earliest":
                return {head.partition: head.start_offset for head in heads}
            if start == "latest":
                return {head.partition: head.next_offset for head in heads}
            return {head.partition: _first_at(connection, feed.id, head, start) for head in heads}

    def ends(self) -> Mapping[int, int]:
        with shared_connection(self.dsn) as connection:
            return {head.partition: head.next_offset for head in log.heads(connection, self._find(connection).id)}

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:  # noqa: ARG002 - always are
        """See ``FeedReader``. Sizes and event times are exact.

        Raises:
            RecordsRemoved: retention removed unread records from ``start`` on.
        """
        with shared_connection(self.dsn) as connection:
            feed = self._find(connection)
            self._check_bounds(connection, feed.id, partition, start)
            params = {"feed_id": feed.id, "partition": partition, "start": start, "batches": LOOK_AHEAD_BATCHES}
            with connection.cursor(row_factory=tuple_row) as cursor:
                batches = cursor.execute(_BATCHES_SQL, params).fetchall()
        return _coalesce([part for row in batches for part in _marked(row)], start, limit)

    @property
    def is_asked_in_one_statement(self) -> bool:
        return True

    def chunks_of(self, unread: Unread, partition: int, start: int, limit: Limit) -> list[Chunk]:
        self._check_heads([log.Head(partition, unread.start_offset, start)], partition, start)
        return _coalesce([part for row in unread.batches for part in _marked(row)], start, limit)

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:
        """See ``FeedReader``. Opens the one batch that contains the record."""
        with shared_connection(self.dsn) as connection:
            feed = self._find(connection)
            for base, rows, max_ts in self._times(connection, feed.id, partition, start, end):
                if max_ts < bound_ms:
                    continue
                first, last = max(start - base, 0), min(end - base, rows)
                times = _event_times(connection, feed.id, partition, base)[first:last]
                found = np.flatnonzero(times >= bound_ms)
                if len(found):
                    return base + first + int(found[0])
        return end

    def splits(self, partition: int, start: int, end: int) -> list[Split]:
        return [Split(partition, first, min(first + SPLIT_ROWS, end)) for first in range(start, end, SPLIT_ROWS)]

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        place = self.fetchable(split)
        if request.fetched is not None and (found := request.fetched.batches.get(place)) is not None:
            parts = (log.cut_batch(base, payload, split.start, split.end) for base, payload in found)
            is_small = sum(len(payload) for _, payload in found) <= SMALL_BLOB_BYTES
            pieces = _pieces((part for part in parts if part[1].height), is_small=is_small)
            yield from shape(pieces, split, self.feed, request, LOGGED)
            self._check_heads(request.fetched.heads.get(place.feed, ()), split.partition, split.start, split.end)
            return
        with shared_connection(self.dsn) as connection:
            feed = self._find(connection)
            batches = log.read(connection, feed.id, split.partition, split.start, split.end)
            yield from shape(_pieces(batches), split, self.feed, request, LOGGED)
            # The head moves in the transaction that removes records, so a check after reading finds every gap.
            self._check_bounds(connection, feed.id, split.partition, split.start, split.end)

    @property
    def is_announced(self) -> bool:
        return True

    def fetchable(self, split: Split) -> LogSplit:
        return LogSplit(self.feed.log_feed, split.partition, split.start, split.end)

    def _find(self, connection: Connection) -> log.FeedRow:
        feed = log.find_feed(connection, self.feed.log_feed)
        if feed is None:
            raise SourceUnavailable(f"there is no feed {self.feed.log_feed!r} in the log")
        return feed

    def _times(self, connection: Connection, feed_id: int, partition: int, start: int, end: int) -> list[tuple[int, int, int]]:
        """Return base offset, rows and greatest event time of the batches that overlap ``[start, end)``."""
        params = {"feed_id": feed_id, "partition": partition, "start": start, "end": end}
        with connection.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(_TIMES_SQL, params).fetchall()

    def _check_bounds(self, connection: Connection, feed_id: int, partition: int, start: int, end: int | None = None) -> None:
        self._check_heads(log.heads(connection, feed_id), partition, start, end)

    def _check_heads(self, heads: Iterable[log.Head], partition: int, start: int, end: int | None = None) -> None:
        """Refuse removed records, and an end that the log has not reached: the database was restored while the query ran."""
        head = next((head for head in heads if head.partition == partition), log.Head(partition, 0, 0))
        if start < head.start_offset:
            raise RecordsRemoved(
                f"feed {self.feed.log_feed!r}, partition {partition}: records {start} to {head.start_offset - 1} were removed by its "
                "retention before this query read them. Give the feed a longer retention, and restart the query with new state.",
                head.start_offset,
            )
        if end is not None and end > head.next_offset:
            raise SourceUnavailable(cut_off(self.feed.log_feed, str(partition), end, head.next_offset))


def _first_at(connection: Connection, feed_id: int, head: log.Head, at_ms: int) -> int:
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(_AT_SQL, {"feed_id": feed_id, "partition": head.partition, "at": at_ms}).fetchone()
    return head.next_offset if row is None else int(row[0])


def _ends(base: int, rows: int, max_ts: int, marks: list[int] | None) -> Iterator[tuple[int, int]]:
    """Yield the offsets after the marked parts of a batch, and the batch's greatest event time up to each.

    If the beginning of a batch was read before, its rest has a smaller greatest event time. Such a cut is where the head rises, so the records
    after it have a greater event time than all before.
    """
    for number, mark in enumerate(marks or ()):
        yield base + (number + 1) * log.MARK_ROWS, mark
    yield base + rows, max_ts


def _marked(row: LogBatch) -> Iterator[tuple[int, int, int, int]]:
    """Cut a large batch at its marks: base offset, rows, size, and the greatest event time up to its end."""
    base, rows, size, high, marks = row
    if rows <= CHUNK_ROWS or not marks:
        yield base, rows, size, high
        return
    start = base
    ends = list(_ends(base, rows, high, marks))
    for number, (stop, mark) in enumerate(ends, 1):
        if stop - start >= CHUNK_ROWS or number == len(ends):
            yield start, stop - start, round(size * (stop - start) / rows), mark
            start = stop


def _event_times(connection: Connection, feed_id: int, partition: int, base: int) -> I64:
    with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        row = cursor.execute(_PAYLOAD_SQL, (feed_id, partition, base)).fetchone()
    if row is None:
        raise RecordsRemoved(f"the batch at offset {base} of partition {partition} was removed while it was read")
    times: I64 = decode_frame(row[0]).get_column("_ts").to_numpy()
    return times


def _coalesce(batches: list[tuple[int, int, int, int]], start: int, limit: Limit) -> list[Chunk]:
    chunks: list[Chunk] = []
    total_rows = total_bytes = 0
    for base, rows, size, high in batches:
        if base + rows <= start:
            continue
        if total_rows > limit.max_rows or total_bytes > limit.max_bytes:
            break
        fresh = rows - max(start - base, 0)
        total_rows, total_bytes = total_rows + fresh, total_bytes + size
        last = chunks[-1] if chunks else None
        if last is not None and last.rows + fresh <= CHUNK_ROWS and last.size_bytes + size <= CHUNK_BYTES:
            chunks[-1] = Chunk(base + rows, last.rows + fresh, last.size_bytes + size, max(last.max_ts or 0, high))
        else:
            chunks.append(Chunk(base + rows, fresh, size, high))
    return chunks


def _pieces(batches: Iterator[tuple[int, pl.DataFrame]], *, is_small: bool = False) -> Iterator[Piece]:
    waiting: list[tuple[int, pl.DataFrame]] = []
    rows = size = 0
    for base, frame in batches:
        waiting.append((base, frame))
        rows += frame.height
        size += int(frame.estimated_size())
        if rows >= PIECE_ROWS or size >= PIECE_BYTES:
            yield _piece(waiting, rows, is_small=is_small)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _piece(waiting, rows, is_small=is_small)


def _piece(batches: list[tuple[int, pl.DataFrame]], rows: int, *, is_small: bool) -> Piece:
    """Join neighbours with the same columns; relations that share the feed may have posted different ones."""
    runs: list[list[tuple[int, pl.DataFrame]]] = []
    for base, frame in batches:
        if runs and runs[-1][-1][1].schema == frame.schema:
            runs[-1].append((base, frame))
        else:
            runs.append([(base, frame)])
    frames = [_with_offsets(run) for run in runs]
    return Piece(
        rows,
        lambda relation, member: _for_relation(frames, relation, member),
        lambda: _times_of(frames),
        are_accepted=False,
        is_small=is_small,
    )


def _times_of(frames: list[pl.DataFrame]) -> tuple[I64, I64]:
    return _joined(frames, "_offset"), _joined(frames, "_ts")


def _joined(frames: list[pl.DataFrame], name: str) -> I64:
    parts: list[I64] = [frame.get_column(name).to_numpy() for frame in frames]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _with_offsets(run: list[tuple[int, pl.DataFrame]]) -> pl.DataFrame:
    if len(run) == 1:
        base, frame = run[0]
        return with_series(frame, pl.int_range(base, base + frame.height, eager=True).alias("_offset"))
    offsets = np.concatenate([np.arange(base, base + frame.height, dtype=np.int64) for base, frame in run])
    return with_series(pl.concat([frame for _, frame in run]), pl.Series("_offset", offsets))


def _for_relation(
    frames: list[pl.DataFrame], relation: RelationSchema, member: pl.Expr | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    wanted = ["_ts", "_offset", "_op", *relation.columns.names]
    chosen = [_chosen(frame, wanted) for frame in frames]
    if len(chosen) == 1 and _has_declared_types(chosen[0], relation):
        return chosen[0], empty_rejects()
    settled = [cast_columns(frame, relation, member, is_validated=True) for frame in chosen]
    return pl.concat([raw.select(wanted) for raw, _ in settled]), pl.concat([rejects for _, rejects in settled])


def _chosen(frame: pl.DataFrame, wanted: Sequence[str]) -> pl.DataFrame:
    """Return a frame without the columns of other relations that share the feed."""
    there = frame.columns
    if {*there}.difference(wanted) <= _UNSEEN:
        return frame
    return only(frame, *(name for name in wanted if name in there))


def _has_declared_types(frame: pl.DataFrame, relation: RelationSchema) -> bool:
    """Whether the columns that exist have their declared types."""
    there = {*frame.columns}
    return all(frame.get_column(name).dtype == kind.polars for name, kind in relation.columns.items() if name in there)
