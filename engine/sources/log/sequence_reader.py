"""Reading a derived feed for a query: the numbers of its rows serve as the offsets of one partition (P1, P3, P6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from psycopg.rows import tuple_row

from engine.errors import RecordsRemoved, SourceUnavailable
from engine.frames.clocks import BEFORE_ALL_TIME
from engine.frames.frames import HEAD
from engine.log import storage as log
from engine.log.marks import read_marks
from engine.log.sequences import BLOCKS_SQL, LANE_PARTITION, LAST_MARK, feed_ends, read_sequence
from engine.plan.model import Feed, RelationSchema
from engine.postgres.incarnation import cut_off
from engine.postgres.postgres import Connection, shared_connection
from engine.records.canonical import LOGGED, empty_rejects
from engine.sources.feeds import Chunk, FeedReader, Limit, ReadRequest, Split, Start
from engine.sources.log.reader import CHUNK_BYTES, CHUNK_ROWS, LOOK_AHEAD_BATCHES, PIECE_BYTES, PIECE_ROWS, SPLIT_ROWS
from engine.sources.packets import Packet
from engine.sources.shaping import Piece, shape

_AT_SQL = "SELECT min(sequence) FROM log.batch WHERE feed_id = %(feed_id)s AND sequence IS NOT NULL AND max_ts >= %(at)s"
_MEETING_SQL = """
SELECT DISTINCT sequence, sequence_rows, head_ms FROM log.batch
WHERE feed_id = %(feed_id)s AND sequence < %(end)s AND sequence > %(start)s - sequence_rows AND sequence >= (
    SELECT coalesce(max(sequence), 0) FROM log.batch WHERE feed_id = %(feed_id)s AND sequence <= %(start)s
)
"""
_FIRST_AT_SQL = f"{_MEETING_SQL} AND head_ms >= %(bound)s ORDER BY sequence LIMIT 1"
_SPLITS_SQL = f"{_MEETING_SQL} ORDER BY sequence"
_LAST_MARK_SQL = """
SELECT m.time_ms FROM log.mark m JOIN log.feed f ON f.id = m.feed_id WHERE f.name = %s AND m.head_ms < %s ORDER BY m.time_ms DESC LIMIT 1
"""
_BEFORE_SQL = "SELECT head_ms FROM log.batch WHERE feed_id = %s AND sequence < %s ORDER BY sequence DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class SequenceSplit(Split):
    """Rows of a derived feed.

    Attributes:
        until_head: marks right before ``end`` are read where the merge had not come so far with them; None: all are. Of all splits of a
            batch but the last one none is.
        last_mark_ms: marks of commits up to this time were read before; None: none was.
    """

    until_head: int | None = BEFORE_ALL_TIME
    last_mark_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SequenceReader(FeedReader):
    """A ``FeedReader`` over the log of a derived relation. It has one partition, whatever the number of its producer's tasks."""

    dsn: str
    feed: Feed

    @property
    def is_announced(self) -> bool:
        return True

    def starts(self, start: Start) -> Mapping[int, int]:
        """See ``FeedReader``. For a time: the first block that holds a record of that time or later."""
        with shared_connection(self.dsn) as connection:
            feed_id, first, end = self._find(connection)
            if start == "earliest":
                return {LANE_PARTITION: first}
            if start == "latest":
                return {LANE_PARTITION: end}
            with connection.cursor(row_factory=tuple_row) as cursor:
                row = cursor.execute(_AT_SQL, {"feed_id": feed_id, "at": start}).fetchone()
        return {LANE_PARTITION: end if row is None or row[0] is None else max(first, int(row[0]))}

    def ends(self) -> Mapping[int, int]:
        """See ``FeedReader``. A commit of the producer counts as a whole or not at all."""
        with shared_connection(self.dsn) as connection:
            return {LANE_PARTITION: self._find(connection)[2]}

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:  # noqa: ARG002 - the port's
        """See ``FeedReader``. Sizes are exact; a chunk's event time is the head at its end.

        Raises:
            RecordsRemoved: retention removed unread records from ``start`` on.
        """
        with shared_connection(self.dsn) as connection:
            feed_id, first, _ = self._find(connection)
            self._check_start(first, start)
            params = {"feed_id": feed_id, "start": start, "blocks": LOOK_AHEAD_BATCHES}
            with connection.cursor(row_factory=tuple_row) as cursor:
                found = cursor.execute(BLOCKS_SQL, params).fetchall()
        chunks: list[Chunk] = []
        total_rows = total_bytes = 0
        for sequence, rows, size, head_ms in found:
            if total_rows > limit.max_rows or total_bytes > limit.max_bytes:
                break
            fresh, end = rows - max(start - sequence, 0), sequence + rows
            if fresh <= 0:
                continue
            total_rows, total_bytes = total_rows + fresh, total_bytes + size
            last = chunks[-1] if chunks else None
            if last is not None and last.rows + fresh <= CHUNK_ROWS and last.size_bytes + size <= CHUNK_BYTES:
                chunks[-1] = Chunk(end, last.rows + fresh, last.size_bytes + size, head_ms)
            else:
                chunks.append(Chunk(end, fresh, size, head_ms))
        return chunks

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:  # noqa: ARG002 - the port's; there is one partition
        with shared_connection(self.dsn) as connection:
            feed_id, _, _ = self._find(connection)
            params = {"feed_id": feed_id, "start": start, "end": end, "bound": bound_ms}
            with connection.cursor(row_factory=tuple_row) as cursor:
                row = cursor.execute(_FIRST_AT_SQL, params).fetchone()
            if row is None:
                return end
            if _head_before(connection, feed_id, row[0]) >= bound_ms:
                return max(start, int(row[0]))
            for frame in read_sequence(connection, feed_id, max(start, int(row[0])), min(end, int(row[0] + row[1]))):
                found = np.flatnonzero(frame.get_column(HEAD).to_numpy() >= bound_ms)
                if len(found):
                    return int(frame.item(int(found[0]), "_offset"))
        return end

    def splits(self, partition: int, start: int, end: int) -> list[Split]:  # noqa: ARG002 - there is one partition
        """See ``FeedReader``."""
        with shared_connection(self.dsn) as connection:
            feed_id, _, _ = self._find(connection)
            with connection.cursor(row_factory=tuple_row) as cursor:
                found = cursor.execute(_SPLITS_SQL, {"feed_id": feed_id, "start": start, "end": end}).fetchall()
        splits: list[Split] = []
        first = start
        for sequence, rows, _ in found:
            stop = min(sequence + rows, end)
            if stop - first >= SPLIT_ROWS:
                splits.append(SequenceSplit(LANE_PARTITION, first, stop))
                first = stop
        return splits if first == end else [*splits, SequenceSplit(LANE_PARTITION, first, end)]

    def last_mark_ms(self, until_head: int | None = None) -> int | None:
        """See ``FeedReader``."""
        with shared_connection(self.dsn) as connection:
            if until_head is not None:
                with connection.cursor(row_factory=tuple_row) as cursor:
                    row = cursor.execute(_LAST_MARK_SQL, (self.feed.log_feed, until_head)).fetchone()
                return None if row is None else int(row[0])
            return feed_ends(connection, [self.feed.log_feed]).get(self.feed.log_feed, {}).get(LAST_MARK)

    def with_marks(self, splits: Sequence[Split], end: int, until_head: int | None, last_mark_ms: int | None) -> Sequence[Split]:
        """See ``FeedReader``."""
        first = splits[-1].start if splits else end
        earlier = [SequenceSplit(LANE_PARTITION, each.start, each.end, last_mark_ms=last_mark_ms) for each in splits[:-1]]
        return [*earlier, SequenceSplit(LANE_PARTITION, first, end, until_head=until_head, last_mark_ms=last_mark_ms)]

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        with shared_connection(self.dsn) as connection:
            feed_id, _, _ = self._find(connection)
            frames = read_sequence(connection, feed_id, split.start, split.end)
            until_head, last_mark_ms = (
                (split.until_head, split.last_mark_ms) if isinstance(split, SequenceSplit) else (None, None)
            )
            marks = read_marks(connection, feed_id, split.start, split.end, until_head, last_mark_ms)
            yield from shape(map(_piece, _gathered(frames)), split, self.feed, request, LOGGED, marks)
            # The start moves in the transaction that removes rows, so a check after reading finds every gap.
            _, first, end = self._find(connection)
            self._check_start(first, split.start)
            if split.end > end:
                raise SourceUnavailable(cut_off(self.feed.log_feed, str(split.partition), split.end, end))

    def _find(self, connection: Connection) -> tuple[int, int, int]:
        """Return the feed's id, the number of its first row, and the next number."""
        feed = log.find_feed(connection, self.feed.log_feed)
        if feed is None or feed.start_sequence is None or feed.next_sequence is None:
            raise SourceUnavailable(f"there is no derived feed {self.feed.log_feed!r} in the log")
        return feed.id, feed.start_sequence, feed.next_sequence

    def _check_start(self, first: int, start: int) -> None:
        if start < first:
            raise RecordsRemoved(
                f"feed {self.feed.log_feed!r}: rows {start} to {first - 1} were removed by its retention before this query read them. "
                "Give the relation a longer retention, and restart the query with new state.",
                first,
            )


def _head_before(connection: Connection, feed_id: int, sequence: int) -> int:
    """Return how far the merge had come with the block before; ``BEFORE_ALL_TIME`` if none is left."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(_BEFORE_SQL, (feed_id, sequence)).fetchone()
    return BEFORE_ALL_TIME if row is None else int(row[0])


def _gathered(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Join small blocks with the same columns: a commit of a few rows is a block, and validation costs a millisecond."""
    waiting: list[pl.DataFrame] = []
    rows = size = 0
    for frame in frames:
        if waiting and (rows >= PIECE_ROWS or size >= PIECE_BYTES or frame.schema != waiting[0].schema):
            yield pl.concat(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(frame)
        rows, size = rows + frame.height, size + int(frame.estimated_size())
    if waiting:
        yield pl.concat(waiting)


def _piece(frame: pl.DataFrame) -> Piece:
    def parse(relation: RelationSchema, _member: pl.Expr | None) -> tuple[pl.DataFrame, pl.DataFrame]:
        wanted = ["_ts", "_offset", "_op", *relation.columns.names]
        return frame.select([name for name in wanted if name in frame.columns]), empty_rejects()

    heads = frame.get_column("_offset").to_numpy(), frame.get_column(HEAD).to_numpy()
    return Piece(frame.height, parse, lambda: heads, are_accepted=False)
