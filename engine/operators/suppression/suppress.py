"""Holding a table's changes back: by event time (S1) and by wall clock (S2, KIP-424).

Both are one buffer (``suppress_buffer``). They differ in what an entry's buffer time is and in what lets it go: S1 judges after
each change by its own stream time, S2 at every batch and tick by the wall clock, which is one and the same for all changes of a
batch (T5). What a later operator subtracts is the last row it was given (STRICT 9): it remembers that itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from engine.errors import BufferFull
from engine.expressions.types.types import Schema
from engine.frames.clocks import running_clock
from engine.frames.frames import KEY_HASH, OFFSET, POS, TS, Counters, add_counter, empty_frame
from engine.frames.hashing import KeyHash
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.operators.pending.spans import Span
from engine.operators.suppression.suppress_buffer import SuppressionBuffer
from engine.plan.operators.suppression import TimeLimitSuppression, WallClockSuppression
from engine.state.segments.ports import SegmentStore

_NO_RECORD: Final = -1
"""Offset of a row that no record caused: time alone did (T10, ticks)."""


class TimeLimitSuppressor(Operator):
    """``until_time_limit`` (S1).

    Args:
        spec: what to do. Limit and bounds may differ from those the state was made with: what is due under the new limit leaves
            at the next change.
        schema: payload columns; they pass unchanged.
        state: what ``snapshot`` returned, or None.
        store: where entries live.
    """

    def __init__(self, spec: TimeLimitSuppression, schema: Schema, state: dict[str, Any] | None, store: SegmentStore) -> None:
        state = state or {}
        self.name = spec.name
        self.schema = schema
        self._spec = spec
        self._clock: int | None = state.get("clock")
        self._hashing = store.hashing
        self._buffer = SuppressionBuffer(spec, schema, state.get("buffer"), store)
        self._unhandled = _Unhandled(schema, state.get("unhandled"), store)

    @property
    def clocks(self) -> dict[str, int | None]:
        """Stream time: the greatest event time of the changes."""
        return {self._spec.name: self._clock}

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
    def due_in_ms(self) -> int | None:
        """By how much stream time must rise until the oldest entry leaves."""
        oldest = self._buffer.oldest
        return None if oldest is None or self._clock is None else max(oldest + self._spec.limit_ms - self._clock, 0)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"clock": self._clock, "buffer": self._buffer.snapshot(), "unhandled": self._unhandled.snapshot()}

    def process(
        self,
        frame: pl.DataFrame,
        inputs: Mapping[int, pl.DataFrame],  # noqa: ARG002 - suppression reads no table
        moment: BatchTime,
    ) -> OperatorOutput:
        """Handle the next changes, then the advance of an idle task's time (T10) or a release on request.

        Returns:
            The entries that leave, by (change that lets them go, buffer time, first arrival); ``failure`` when a bounded buffer that
            must not emit early is full: what came from the failing position on is kept, and handled when the query runs again.
        """
        counters: Counters = {}
        frame = self._unhandled.before(_admitted(frame, self._spec, self._hashing, counters))
        times = frame[TS].to_numpy()
        _, clock = running_clock(self._clock, times)
        gain = self._buffer.take(frame, times, clock - self._spec.limit_ms, counters)
        if gain.failure is not None:
            handled = self._unhandled.keep(frame, gain.failure)
            self._clock = int(clock[handled - 1]) if handled else self._clock
            return OperatorOutput(gain.frame, counters=counters, failure=gain.failure)
        if len(clock):
            self._clock = int(clock[-1])
        if moment.step_ms is None or self._clock is None:
            return OperatorOutput(gain.frame, counters=counters)
        self._clock += moment.step_ms
        idle = self._buffer.release(self._clock - self._spec.limit_ms, moment.position, _NO_RECORD)
        return OperatorOutput(pl.concat([gain.frame, idle]), counters=counters)


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
        self._now_ms: int = state.get("now_ms", 0)
        self._hashing = store.hashing
        self._buffer = SuppressionBuffer(spec, schema, state.get("buffer"), store)
        self._unhandled = _Unhandled(schema, state.get("unhandled"), store)

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

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"now_ms": self._now_ms, "buffer": self._buffer.snapshot(), "unhandled": self._unhandled.snapshot()}

    def process(
        self,
        frame: pl.DataFrame,
        inputs: Mapping[int, pl.DataFrame],  # noqa: ARG002 - suppression reads no table
        moment: BatchTime,
    ) -> OperatorOutput:
        """Let go what is due, then handle the changes; without changes the batch is a tick.

        Returns:
            The entries that leave, by (due, first arrival), at the first change's position or, at a tick, the moment's. With a
            limit of zero each change leaves at once. ``failure`` as with the time limit.
        """
        counters: Counters = {}
        frame = self._unhandled.before(_admitted(frame, self._spec, self._hashing, counters))
        self._now_ms = max(self._now_ms, moment.now_ms)
        place = (moment.position, _NO_RECORD) if frame.is_empty() else (frame[POS][0], frame[OFFSET][0])
        outputs = []
        if not (frame.is_empty() and self._spec.is_event_driven):
            outputs.append(self._buffer.release(self._now_ms, *place))
        nows = np.full(frame.height, self._now_ms)
        gain = self._buffer.take(frame, nows + self._spec.limit_ms, nows, counters)
        if gain.failure is not None:
            self._unhandled.keep(frame, gain.failure)
        return OperatorOutput(pl.concat([*outputs, gain.frame]), counters=counters, failure=gain.failure)


class _Unhandled:
    """Changes that came when the buffer was full (S4 ``stop``): kept until the query runs again, perhaps with a higher bound.

    Args:
        schema: payload columns of the changes.
        state: what ``snapshot`` returned, or None.
        store: where they live.
    """

    def __init__(self, schema: Schema, state: dict[str, Any] | None, store: SegmentStore) -> None:
        self._columns = empty_frame(schema).columns
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

    def keep(self, frame: pl.DataFrame, failure: BufferFull) -> int:
        """Keep what was not handled; returns how many rows were."""
        handled = int(np.searchsorted(frame[POS].to_numpy(), failure.position))
        self._entry = {"segment": self._store.save(frame[handled:][self._columns])}
        return handled


def _admitted(
    frame: pl.DataFrame, spec: TimeLimitSuppression | WallClockSuppression, hashing: KeyHash, counters: Counters
) -> pl.DataFrame:
    """Drop and count null keys (T6); the others get the hash of the table's key."""
    hashes = hashing.of(frame, spec.key)
    if nulls := hashes.null_count():
        add_counter(counters, spec.name, "null_key", nulls)
        frame, hashes = frame.filter(hashes.is_not_null()), hashes.drop_nulls()
    return frame.with_columns(hashes.alias(KEY_HASH))
