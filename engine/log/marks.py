"""P14: the time of a derived relation, between the rows of its log.

A *mark* stands before the row with its number and says the time with its place: before the first row of a place, if time has risen since
the last mark; behind the last row of a place that raises it; and where time passes a full second. So a reader judges each row by the time
before its place in the producer, and learns within a second that time goes on without rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
from psycopg.rows import tuple_row

from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64, Clock, running_clock
from engine.frames.frames import HEAD, POS, RANK, TS
from engine.frames.places import is_further
from engine.postgres.postgres import Connection

_READ_SQL: Final = """
SELECT wait_ms, payload FROM log.mark
WHERE feed_id = %(feed)s AND last >= %(start)s AND first <= %(end)s AND (%(last_mark)s::bigint IS NULL OR time_ms > %(last_mark)s::bigint)
ORDER BY time_ms
"""

MARK_EVERY_MS: Final = 1_000
"""Without rows a mark tells the time that often: what a reader emits in silence may come so much later in event time."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks in the order of the log.

    Attributes:
        numbers: of the row that each one stands before; non-decreasing.
        heads: how far the merge of the producer's inputs had come; non-decreasing.
        times: ascending.
        wait_ms: how far behind the time of the sources this time is at most (L of T1c).
    """

    numbers: I64
    heads: I64
    times: I64
    wait_ms: int = 0

    @property
    def last_ms(self) -> int | None:
        """The time that the last one tells; None where there is none."""
        return int(self.times[-1]) if len(self.times) else None


NO_MARKS: Final = Marks(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


def marks_of(
    rows: pl.DataFrame,
    clock: Clock,
    heads_at: Callable[[I64], I64],
    next_number: int,
    reached: tuple[int | None, int | None],
    last_mark_ms: int | None,
) -> Marks:
    """Return the marks of a batch. Where it begins and ends does not show in them.

    Args:
        rows: where the rows of the batch stand (``engine.log.sequence.CAUSES``), in the order of their numbers.
        clock: the time behind the last operator.
        heads_at: how far the merge had come with positions (``BatchOrder.heads``).
        next_number: the number of the batch's first row.
        reached: how far the merge had come before the batch, None before the first record; and how far it has come with the batch's records,
            None where the batch brought none.
        last_mark_ms: the time of the last mark before the batch; None: there is none. After an edit that lengthens a wait,
            the time behind the last operator has to reach it again before there are marks (P15).
    """
    places = rows.get_column(POS).to_numpy()
    further = is_further(rows.get_column(RANK))
    # A row that stands behind the place of its record has the number behind that of the place.
    own = 2 * places + (0 if further is None else further)
    firsts = np.flatnonzero(np.append(True, own[1:] != own[:-1])[: len(own)])
    rises = _rises(clock, places)
    behind = np.searchsorted(own, 2 * rises, "right")
    risen, before = clock.upto(rises), clock.before(rises)
    has_row = behind > np.searchsorted(own, 2 * rises, "left")
    is_marked = (risen > before) & (has_row | (risen // MARK_EVERY_MS > before // MARK_EVERY_MS))
    rises = rises[is_marked]
    stands = np.concatenate([2 * own[firsts], 4 * rises + 1])
    order = np.argsort(stands)
    positions = np.concatenate([places[firsts], rises])[order]
    numbers = np.concatenate([firsts, behind[is_marked]])[order]
    at_rows = np.where(own[firsts] % 2 == 0, clock.before(places[firsts]), clock.upto(places[firsts]))
    before, times = running_clock(last_mark_ms, np.concatenate([at_rows, risen[is_marked]])[order])
    is_new = times > before
    reached_ms, newest_head = (BEFORE_ALL_TIME if ms is None else ms for ms in reached)
    heads = np.maximum(heads_at(positions[is_new]), reached_ms)
    heads[heads == AFTER_ALL_TIME] = max(reached_ms, newest_head)
    return Marks(next_number + numbers[is_new], np.maximum.accumulate(heads), times[is_new], clock.wait_ms)


def row_marks(rows: pl.DataFrame, next_number: int, last_mark_ms: int | None) -> Marks:
    """Return the marks of rows that have event times of their own: each row moves time, as a source's record does.

    Args:
        rows: ``_ts``, and how far the merge had come with each (``_head``), in the order of their numbers.
        next_number: of the first.
        last_mark_ms: the time before; None: there is none.
    """
    before, after = running_clock(last_mark_ms, rows.get_column(TS).to_numpy())
    risen = np.flatnonzero(after > before)
    return Marks(next_number + risen + 1, rows.get_column(HEAD).to_numpy()[risen], after[risen])


def encode_marks(marks: Marks) -> bytes:
    """Write numbers, heads and times as differences, compressed."""
    payload = b"".join(np.diff(part, prepend=0).tobytes() for part in (marks.numbers, marks.heads, marks.times))
    written: bytes = pa.compress(payload, codec="zstd", asbytes=True)
    return len(payload).to_bytes(8, "big") + written


def decode_marks(payload: bytes, wait_ms: int) -> Marks:
    """Read what ``encode_marks`` wrote."""
    numbers = np.frombuffer(pa.decompress(payload[8:], int.from_bytes(payload[:8], "big"), codec="zstd", asbytes=True), np.int64)
    rows, heads, times = (np.cumsum(part) for part in np.split(numbers, 3))
    return Marks(rows, heads, times, wait_ms)


def read_marks(
    connection: Connection, feed_id: int, start: int, end: int, until_head: int | None, last_mark_ms: int | None = None
) -> Marks:
    """Return the marks before the rows ``[start, end)``, and of those before the row ``end`` the ones that are read with them.

    A mark that was read before changes nothing when it is read again.

    Args:
        connection: to the database.
        feed_id: the feed.
        start: number of the first row.
        end: number behind the last row.
        until_head: marks before the row ``end`` count where the merge had not come so far; None: all do.
        last_mark_ms: those of commits whose last mark tells no later time were read before; None: none was. A relation without rows has many.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute(_READ_SQL, {"feed": feed_id, "start": start, "end": end, "last_mark": last_mark_ms}).fetchall()
    parts = [decode_marks(payload, wait_ms) for wait_ms, payload in rows]
    nothing = np.empty(0, np.int64)
    numbers, heads, times = (
        np.concatenate([nothing, *(getattr(part, name) for part in parts)]) for name in ("numbers", "heads", "times")
    )
    own = (numbers >= start) & (numbers <= end)
    if until_head is not None:
        own &= (numbers < end) | (heads < until_head)
    return Marks(numbers[own], heads[own], times[own], max((part.wait_ms for part in parts), default=0))


def _rises(clock: Clock, places: I64) -> I64:
    """Return positions at which time rises: all those of records; of the silence those of rows, and the first of each second."""
    found = [clock.places]
    if clock.silence_ms and clock.start != BEFORE_ALL_TIME:
        seconds = np.arange(clock.begin // MARK_EVERY_MS + 1, clock.end // MARK_EVERY_MS + 1) * MARK_EVERY_MS
        reached = clock.reached(seconds)
        found += [places[clock.is_silence(places)], reached[clock.is_silence(reached)]]
    return np.unique(np.concatenate(found))
