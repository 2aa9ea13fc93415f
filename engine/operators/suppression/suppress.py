"""Holding a table's changes back: by event time (S1) and by wall clock (S2, KIP-424).

Both are one buffer (``suppress_buffer``). They differ in what an entry's buffer time is and in what lets it go: S1 judges by
stream time, S2 at every batch and tick by the wall clock, which is one and the same for all changes of a
batch (T5). What a later operator subtracts is the last row it was given (STRICT 9): it remembers that itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from engine.errors import BufferFull
from engine.expressions.types.types import Schema
from engine.frames.clocks import BEFORE_ALL_TIME, NEVER
from engine.frames.frames import KEY_HASH, POS, RANK, TS, Counters, add_counter, empty_frame
from engine.frames.hashing import KeyHash
from engine.frames.places import begins_place, is_further
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.operators.pending.spans import Span
from engine.operators.suppression.suppress_buffer import SuppressionBuffer
from engine.operators.suppression.suppress_episodes import Course
from engine.plan.operators.suppression import TimeLimitSuppression, WallClockSuppression
from engine.state.segments.ports import SegmentStore

_BEFORE, _UPTO = "_before", "_upto"
"""Columns of changes: the time before their place, and with it."""


class TimeLimitSuppressor(Operator):
    """``until_time_limit`` (S1).

    Args:
        spec: what to do. Limit and bounds may differ from those the state was made with: what is due under the new limit leaves
            at the next place of the streams, or at once on request (J11).
        schema: payload columns; they pass unchanged.
        state: what ``snapshot`` returned, or None.
        store: where entries live.
    """

    def __init__(self, spec: TimeLimitSuppression, schema: Schema, state: dict[str, Any] | None, store: SegmentStore) -> None:
        state = state or {}
        self.name = spec.name
        self.schema = schema
        self._spec = spec
        self._hashing = store.hashing
        self._buffer = SuppressionBuffer(spec, schema, state.get("buffer"), store)
        self._unhandled = _Unhandled([*empty_frame(schema).columns, _BEFORE, _UPTO], state.get("unhandled"), store)

    @property
    def buffered_rows(self) -> int:
        """Entries held."""
        return self._buffer.rows

    @property
    def buffered_bytes(self) -> int:
        """Their keys and values, Arrow-encoded (S4)."""
        return self._buffer.bytes

    @property
    def waiting(self) -> dict[str, list[Span]]:
        """Entries by buffer time; by wall clock that is when each is due."""
        return {self._spec.name: self._buffer.spans}

    @property
    def oldest_ms(self) -> int | None:
        """The smallest buffer time held."""
        return self._buffer.oldest

    @property
    def wakes_at_ms(self) -> int | None:
        """At once, where changes were left unhandled by a full buffer."""
        return 0 if self._unhandled.has_any else None

    @property
    def due_ms(self) -> int | None:
        """The time at which the oldest entry leaves."""
        oldest = self._buffer.oldest
        return None if oldest is None else oldest + self._spec.limit_ms

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"buffer": self._buffer.snapshot(), "unhandled": self._unhandled.snapshot()}

    def process(
        self,
        frame: pl.DataFrame,
        inputs: Mapping[int, pl.DataFrame],  # noqa: ARG002 - suppression reads no table
        moment: BatchTime,
    ) -> OperatorOutput:
        """Handle the next changes, and what time releases.

        Returns:
            The entries that leave, by (place that lets them go, buffer time, first arrival); ``failure`` when a bounded buffer that
            must not emit early is full: what came from the failing position on is kept, and handled when the query runs again.
        """
        counters: Counters = {}
        frame = _admitted(frame, self._spec, self._hashing, counters)
        times = moment.before(frame), moment.clock.upto(frame[POS].to_numpy())
        frame = self._unhandled.before(frame.with_columns(pl.Series(_BEFORE, times[0]), pl.Series(_UPTO, times[1])))
        gain = self._buffer.take(frame, self._course(frame, moment), counters)
        if gain.failure is not None:
            self._unhandled.keep(frame, gain.failure)
        return OperatorOutput(gain.frame, counters=counters, failure=gain.failure)

    def _course(self, frame: pl.DataFrame, moment: BatchTime) -> Course:
        """Changes of one place are judged by the time before it; then time rises, and what is due leaves (T1b)."""
        limit_ms, changes, next_place = self._spec.limit_ms, frame.height, moment.clock.next_place
        positions, before, upto = (frame[name].to_numpy() for name in (POS, _BEFORE, _UPTO))
        begins = np.append(begins_place(frame), True)
        until = np.full(2 * changes + 1, BEFORE_ALL_TIME)
        until[0:-1:2][begins[:-1]] = before[begins[:-1]]
        until[1::2][begins[1:]] = upto[begins[1:]]
        if changes and positions[0] <= next_place and is_further(frame[RANK][:1]) is None:
            until[0] = BEFORE_ALL_TIME  # no place lies before
        if changes or next_place < NEVER or moment.is_release:
            until[-1] = moment.clock.end
        lasts = np.arange(changes)
        since = np.full(changes, BEFORE_ALL_TIME)
        if limit_ms:
            lasts = np.flatnonzero(begins[1:])[np.cumsum(begins[:-1]) - 1]
            since = np.minimum(frame[TS].to_numpy(), upto)
        elif self._buffer.rows:
            # An edit to no limit: entries leave at the next place, among the changes of that place by buffer time.
            since = np.where(positions == next_place, np.minimum(frame[TS].to_numpy(), upto), since)
        return Course(
            since,
            np.maximum.accumulate(until) - limit_ms,
            lasts,
            np.append(positions, moment.position),
            lambda times: moment.reached(times + limit_ms),
            _closed_to(self._spec, moment),
        )


class WallClockSuppressor(Operator):
    """``until_wall_clock_time_limit`` (S2, KIP-424).

    Args:
        spec: what to do. A new limit counts for entries made from now on.
        schema: payload columns; they pass unchanged.
        state: what ``snapshot`` returned, or None. What became due in between leaves with the first batch or tick.
        store: where entries live.
    """

    def __init__(self, spec: WallClockSuppression, schema: Schema, state: dict[str, Any] | None, store: SegmentStore) -> None:
        state = state or {}
        self.name = spec.name
        self.schema = schema
        self._spec = spec
        self._hashing = store.hashing
        self._buffer = SuppressionBuffer(spec, schema, state.get("buffer"), store)
        self._unhandled = _Unhandled(empty_frame(schema).columns, state.get("unhandled"), store)

    @property
    def buffered_rows(self) -> int:
        """Entries held."""
        return self._buffer.rows

    @property
    def buffered_bytes(self) -> int:
        """Their keys and values, Arrow-encoded (S4)."""
        return self._buffer.bytes

    @property
    def waiting(self) -> dict[str, list[Span]]:
        """Entries by buffer time; by wall clock that is when each is due."""
        return {self._spec.name: self._buffer.spans}

    @property
    def wakes_at_ms(self) -> int | None:
        """When the oldest entry is due; None when nothing is held, or when only records release. At once after a full buffer."""
        if self._unhandled.has_any:
            return 0
        return None if self._spec.is_event_driven else self._buffer.oldest

    def is_due(self, moment: BatchTime) -> bool:
        """See ``Operator``: records of other tasks are records, too."""
        oldest = self._buffer.oldest
        return super().is_due(moment) or (oldest is not None and oldest <= moment.now_ms and moment.clock.entered < NEVER)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"buffer": self._buffer.snapshot(), "unhandled": self._unhandled.snapshot()}

    def process(
        self,
        frame: pl.DataFrame,
        inputs: Mapping[int, pl.DataFrame],  # noqa: ARG002 - suppression reads no table
        moment: BatchTime,
    ) -> OperatorOutput:
        """Let go what is due, then handle the changes; without records of the streams the batch is a tick.

        Returns:
            The entries that leave, by (due, first arrival), at the first place of the streams or, at a tick, the moment's; before the
            places of a silence. With a limit of zero each change leaves at once. ``failure`` as with the time limit.
        """
        counters: Counters = {}
        frame = self._unhandled.before(_admitted(frame, self._spec, self._hashing, counters))
        changes, now_ms, limit_ms = frame.height, moment.now_ms, self._spec.limit_ms
        is_quiet = self._spec.is_event_driven and moment.clock.entered == NEVER
        if is_quiet and not changes:
            return OperatorOutput(frame, counters=counters)
        place = _place_of_clock(moment)
        course = Course(
            np.full(changes, now_ms + limit_ms if limit_ms else BEFORE_ALL_TIME),
            np.full(2 * changes + 1, BEFORE_ALL_TIME if is_quiet else now_ms),
            np.arange(changes),
            np.append(frame[POS].to_numpy(), moment.position),
            lambda times: np.full_like(times, place),
            _closed_to(self._spec, moment),
        )
        gain = self._buffer.take(frame, course, counters)
        if gain.failure is not None:
            self._unhandled.keep(frame, gain.failure)
        return OperatorOutput(gain.frame, counters=counters, failure=gain.failure)


def _place_of_clock(moment: BatchTime) -> int:
    """Return where rows stand that the wall clock releases, in all tasks alike: before what comes in the batch, and at no place of silence."""
    clock = moment.clock
    if clock.silence_ms:
        return clock.first - 1
    return clock.entered if clock.entered < NEVER else moment.position


class _Unhandled:
    """Changes that came when the buffer was full (S4 ``stop``): kept until the query runs again, perhaps with a higher bound.

    Args:
        columns: of the changes.
        state: what ``snapshot`` returned, or None.
        store: where they live.
    """

    def __init__(self, columns: list[str], state: dict[str, Any] | None, store: SegmentStore) -> None:
        self._columns = columns
        self._entry = state
        self._store = store

    @property
    def has_any(self) -> bool:
        """Whether something is kept."""
        return self._entry is not None

    def snapshot(self) -> dict[str, Any] | None:
        """State as JSON-able values; the segment it names is durable."""
        return self._entry

    def before(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return what was kept, and then ``frame``."""
        if self._entry is None:
            return frame
        kept = self._store.load(self._entry["segment"])
        self._store.release([self._entry["segment"]])
        self._entry = None
        return pl.concat([kept, frame[self._columns]])

    def keep(self, frame: pl.DataFrame, failure: BufferFull) -> None:
        """Keep what was not handled."""
        handled = int(np.searchsorted(frame[POS].to_numpy(), failure.position))
        self._entry = {"segment": self._store.save(frame[handled:][self._columns])}


def _admitted(
    frame: pl.DataFrame, spec: TimeLimitSuppression | WallClockSuppression, hashing: KeyHash, counters: Counters
) -> pl.DataFrame:
    """Drop and count null keys (T6); the others get the hash of the table's key."""
    hashes = hashing.of(frame, spec.key)
    if nulls := hashes.null_count():
        add_counter(counters, spec.name, "null_key", nulls)
        frame, hashes = frame.filter(hashes.is_not_null()), hashes.drop_nulls()
    return frame.with_columns(hashes.alias(KEY_HASH))


def _closed_to(spec: TimeLimitSuppression | WallClockSuppression, moment: BatchTime) -> int:
    """Return an end of windows: those that end then or before have closed; the time behind them is not ahead of their own."""
    return BEFORE_ALL_TIME if spec.closing is None else moment.clock.end - spec.closing.delay_ms
