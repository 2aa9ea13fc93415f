"""The hold of a stream-table join: released records wait on until the table has been read far enough (J9).

The queue is first in, first out: what the grace released (or, without one, the stream brought) first goes first, and a row that
must wait keeps all behind it waiting. Everything is decided once a batch, at the position behind its last record: the table's
progress is known as of the batch's end only. Caps never change the order either: what a cap releases takes all before it along.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from engine.frames.clocks import I64
from engine.frames.frames import POS, TS, with_series, without
from engine.frames.places import arrival, ranked
from engine.operators.joins.grace_buffer import RELEASED
from engine.operators.operators import BatchTime, TableProgress
from engine.operators.pending.spans import Span, SpanCache
from engine.operators.pending.spans import ranked as ranked_spans
from engine.plan.operators.stream_table_join import Hold
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.time_queue import QueueSegment, TimeQueue

BUFFERED_AT: Final = "_buffered_at"
"""Wall clock of the batch that brought a row: ``Hold.at_most_ms`` counts from there."""

_EVENT_TIME: Final = "_event_time"
"""A waiting row's event time; its ``_ts`` is its number in the queue, so that the queue's order is first in, first out."""

_SCANNED_ROWS: Final = 4096
"""Rows looked at in one step when the end of what may go is searched: the cost stays near the number of rows released."""


@dataclass(frozen=True, slots=True)
class LetGo:
    """What the hold releases.

    Attributes:
        frame: rows in order, without ``BUFFERED_AT``, at the place where they are joined; there they stand as they came to the hold.
        expired: how many of them a cap released before the table had got there.
    """

    frame: pl.DataFrame
    expired: int


class HoldBuffer:
    """Rows that wait for the table.

    Args:
        spec: how long. It may differ from the one the state was made with.
        table_index: ``Input.index`` of the table whose progress counts.
        state: what ``snapshot`` returned, or None.
        store: where waiting rows live.
    """

    def __init__(self, spec: Hold, table_index: int, state: dict[str, Any] | None, store: SegmentStore) -> None:
        state = state or {}
        self._spec = spec
        self._table_index = table_index
        self._next: int = state.get("next", 0)
        self._queue = _Fifo(store, state.get("waiting"))

    @property
    def rows(self) -> int:
        """Rows waiting."""
        return self._queue.rows

    @property
    def earliest_ms(self) -> int | None:
        """The smallest event time that waits."""
        return self._queue.earliest_ms

    @property
    def wakes_at_ms(self) -> int | None:
        """The wall clock at which the next row has waited for ``at_most``."""
        earliest = self._queue.earliest_buffered_at
        return None if earliest is None else earliest + self._spec.at_most_ms

    @property
    def spans(self) -> list[Span]:
        """Rows waiting, by the wall clock that brought them."""
        return self._queue.spans

    def is_due(self, moment: BatchTime) -> bool:
        """Whether something may leave although nothing comes: the first row waits for the table, those behind it wait for that row."""
        earliest = self._queue.earliest_ms
        return earliest is not None and earliest <= self._reached_ms(moment)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"next": self._next, "waiting": self._queue.snapshot()}

    def process(self, frame: pl.DataFrame, moment: BatchTime) -> LetGo:
        """Take new rows in, and release what may leave.

        Args:
            frame: rows with ``BUFFERED_AT``, in the order in which the grace released them.
            moment: the end of the batch.
        """
        first, start = self._next - self._queue.rows, self._next
        self._next += frame.height
        numbered = frame.with_columns(pl.col(TS).alias(_EVENT_TIME), pl.Series(TS, np.arange(start, self._next)))
        reached_ms = self._reached_ms(moment)
        stop = self._unblocked(numbered, max(self._capped(numbered, moment.now_ms), first), reached_ms)
        taken = [*self._queue.take(stop - 1), numbered.head(max(stop - start, 0))]
        self._queue.append(numbered.slice(max(stop - start, 0)))
        gone = pl.concat(taken)
        expired = int((gone.get_column(_EVENT_TIME).to_numpy() > reached_ms).sum())
        gone = with_series(ranked(gone, RELEASED, *arrival(gone)), gone.get_column(_EVENT_TIME).alias(TS))
        gone = with_series(gone, pl.Series(POS, np.full(gone.height, moment.position)))
        return LetGo(without(gone, _EVENT_TIME, BUFFERED_AT), expired)

    def _reached_ms(self, moment: BatchTime) -> int:
        """Return the greatest event time that no longer waits for the table."""
        progress = moment.progress.get(self._table_index, TableProgress())
        reached = progress.read_to_ms if self._spec.until == "table_time" else progress.caught_up_to_ms
        return reached - self._spec.slack_ms

    def _capped(self, numbered: pl.DataFrame, now_ms: int) -> int:
        """Return the number up to which rows must go because of a cap."""
        until = now_ms - self._spec.at_most_ms
        overdue = np.flatnonzero(numbered.get_column(BUFFERED_AT).to_numpy() <= until)
        start = self._next - numbered.height
        waited = start + int(overdue[-1]) + 1 if len(overdue) else self._queue.overdue_end(until)
        return max(waited, self._next - self._spec.max_rows)

    def _unblocked(self, numbered: pl.DataFrame, number: int, reached_ms: int) -> int:
        """Return the first number from ``number`` on whose row still waits for the table."""
        start = self._next - numbered.height
        if number < start:
            number = self._queue.first_later(number, reached_ms)
        if number < start:
            return number
        return number + _first_above(numbered.get_column(_EVENT_TIME).to_numpy()[number - start :], reached_ms)


class _Fifo(TimeQueue):
    """A queue whose ``_ts`` are consecutive numbers: its segments follow each other.

    The smallest ``BUFFERED_AT`` and event time of each segment are remembered, but not kept in the state: a restart reads them once.
    """

    def __init__(self, store: SegmentStore, state: list[dict[str, Any]] | None) -> None:
        super().__init__(store, state)
        self._earliest: dict[QueueSegment, tuple[int, int]] = {}
        self._spans = SpanCache(lambda name: ranked_spans(np.sort(store.load(name).get_column(BUFFERED_AT).to_numpy())))

    @property
    def spans(self) -> list[Span]:
        """Rows by the wall clock that brought them. Which of a segment are gone is known by their number only, not by that clock."""
        found = self._spans.of(self._segments.names)
        return [
            span if not segment.consumed else Span(span.low, span.high, 0, min(span.most, segment.left))
            for segment, spans in zip(self._segments, found, strict=True)
            for span in spans
        ]

    @property
    def earliest_buffered_at(self) -> int | None:
        """The smallest ``BUFFERED_AT`` that waits."""
        return min((at for at, _ in self._smallest_pending()), default=None)

    @property
    def earliest_ms(self) -> int | None:
        """The smallest event time that waits."""
        return min((ms for _, ms in self._smallest_pending()), default=None)

    def overdue_end(self, until: int) -> int:
        """Return the number behind the last row with ``BUFFERED_AT <= until``; -1 where there is none."""
        earliest = self.earliest_buffered_at
        if earliest is None or earliest > until:
            return -1
        segment = next(segment for segment in reversed(self._segments) if self._earliest[segment][0] <= until)
        overdue = np.flatnonzero(self._live(segment).get_column(BUFFERED_AT).to_numpy() <= until)
        return segment.min_ts + int(overdue[-1]) + 1

    def first_later(self, number: int, time: int) -> int:
        """Return the first number from ``number`` on whose event time is after ``time``; the one behind the last for none."""
        for segment in self._segments:
            if segment.max_ts >= number:
                times = self._live(segment).get_column(_EVENT_TIME).to_numpy()[max(number - segment.min_ts, 0) :]
                number = max(number, segment.min_ts) + _first_above(times, time)
                if number <= segment.max_ts:
                    break
        return number

    def _smallest_pending(self) -> Iterable[tuple[int, int]]:
        known = self._earliest
        self._earliest = {segment: known[segment] if segment in known else self._smallest(segment) for segment in self._segments}
        return self._earliest.values()

    def _smallest(self, segment: QueueSegment) -> tuple[int, int]:
        live = self._live(segment)
        return int(live.get_column(BUFFERED_AT).to_numpy().min()), int(live.get_column(_EVENT_TIME).to_numpy().min())


def _first_above(times: I64, time: int) -> int:
    """Return the index of the first of ``times`` above ``time``; their number for none."""
    for start in range(0, len(times), _SCANNED_ROWS):
        above = np.flatnonzero(times[start : start + _SCANNED_ROWS] > time)
        if len(above):
            return start + int(above[0])
    return len(times)
