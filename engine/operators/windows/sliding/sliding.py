"""Sliding window aggregation (W1, W4–W8, T6, T10, STRICT 3, 4, 11, 15–17, 19, 20).

State is nothing but the accepted records that an open or a later window can reach: which windows exist and what each took follows
from their times and arrivals alone (``sliding_windows``). That holds for records in any order, so there is no slower way for late
ones. ``final`` reads the groups whose windows close in the batch, ``changes`` those that have new records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from engine.expressions.types.types import Schema
from engine.frames.clocks import I64, LAST_EVENT_TIME_MS, Bools, running_clock
from engine.frames.frames import OFFSET, POS, TS, Counters, add_counter, empty_frame, empty_late, late_rows
from engine.operators.aggregation.group_results import Grouping
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.operators.pending.spans import Span
from engine.operators.windows.corrections import Corrections
from engine.operators.windows.sliding.sliding_changes import Arrivals
from engine.operators.windows.sliding.sliding_results import FIRST, SlidingResults, Steps
from engine.operators.windows.sliding.sliding_store import HASH, SEQ, Band, SlidingStore, hashes_between, matching, sorted_run
from engine.operators.windows.sliding.sliding_windows import BOUNDARY, Timeline, timelines
from engine.operators.windows.window_grid import OUT_OF_RANGE
from engine.plan.operators.windows import SlidingAggregation
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.sorted_search import U64

_NO_RECORD: Final = -1
"""Offset of what no record caused (T10)."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """The records that were not dropped, in processing order.

    Attributes:
        frame: their rows.
        hashes: hash of each one's group.
        clock: stream time with each.
        boundaries: with each, the smallest window end that is still open.
        is_accepted: whether each one is not late.
    """

    frame: pl.DataFrame
    hashes: pl.Series
    clock: I64
    boundaries: I64
    is_accepted: Bools


class SlidingAggregator(Operator):
    """Aggregates one stream by group and sliding window.

    Args:
        spec: what to do.
        schema: the columns of the frames to come.
        state: what ``snapshot`` returned, or None. ``spec`` may differ from the one it was made with in grace: a window that has
            closed stays closed, one that is closed under the new grace closes at the next record.
        store: where the records live.
        is_hashed: see ``Grouping``.
    """

    def __init__(
        self,
        spec: SlidingAggregation,
        schema: Schema,
        state: dict[str, Any] | None,
        store: SegmentStore,
        *,
        is_hashed: bool = False,
    ) -> None:
        self.name = spec.name
        self._spec = spec
        self._results = SlidingResults(spec, schema)
        self._grouping = Grouping.of(spec.group, schema, store.hashing, is_hashed=is_hashed)
        state = state or {}
        self._stream_time: int | None = state.get("stream_time")
        self._boundary: int = state.get("boundary", 0)
        self._arrivals: int = state.get("arrivals", 0)
        self._store = SlidingStore(store, state.get("segments"))
        self._corrections: Corrections | None = None
        self.schema, self._nothing, self._no_late = self._results.schema, self._results.nothing, empty_late()
        if spec.emit == "corrections":
            group = tuple(name for name, _ in spec.group)
            self._corrections = Corrections(self.schema, group, spec.grace_ms + 1, state.get("corrections"), store)
            self.schema = self._corrections.schema
            self._nothing = empty_frame(self.schema)

    @property
    def clocks(self) -> dict[str, int | None]:
        """T1, absent before the first record."""
        return {self._spec.name: self._stream_time}

    @property
    def buffered_rows(self) -> int:
        """Records held for open and later windows, and results held back."""
        return self._store.rows + (self._corrections.buffered_rows if self._corrections is not None else 0)

    @property
    def waiting(self) -> dict[str, list[Span]]:
        """Open windows by their ends: at most two for each record, one that ends with it and one that begins behind it."""
        return {self._spec.name: self._store.window_spans(self._spec.difference_ms, self._boundary)}

    @property
    def due_in_ms(self) -> int | None:
        """See ``Operator``. It may be too small: a record on its own seems to have a window behind it."""
        if self._corrections is not None:
            return self._corrections.due_in_ms
        if self._spec.emit == "changes" or self._stream_time is None:
            return None
        difference = self._spec.difference_ms
        ends = []
        if (left := self._store.first_time(0 if self._boundary <= difference else self._boundary)) is not None:
            ends.append(max(left, difference))
        if (right := self._store.first_time(self._boundary - difference - 1)) is not None:
            ends.append(right + 1 + difference)
        return max(min(ends) + 1 + self._spec.grace_ms - self._stream_time, 1) if ends else None

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        state = {
            "stream_time": self._stream_time,
            "boundary": self._boundary,
            "arrivals": self._arrivals,
            "segments": self._store.snapshot(),
        }
        return state if self._corrections is None else {**state, "corrections": self._corrections.snapshot()}

    def process(
        self,
        frame: pl.DataFrame,
        inputs: Mapping[int, pl.DataFrame],  # noqa: ARG002 - windows read no table
        moment: BatchTime,
    ) -> OperatorOutput:
        """Handle the next records in processing order, then the advance of an idle task.

        Args:
            frame: columns of the schema and the service columns.
            inputs: not read.
            moment: when.

        Returns:
            ``final``: one row per window that closed, ordered by (closing position, end, start, first arrival), with the position
            and offset of the closing record. ``changes``: one row per (record, window) in the order of STRICT 4, or only the
            last one per window where they are folded; a deleted row
            keeps its key, its aggregates are null. ``corrections``: see ``Corrections``. ``late`` has the refused records; counter
            ``window_closed`` counts them, and ``window_out_of_range`` those that are taken by their own window but not by another one (T8).
        """
        counters: Counters = {}
        batch = self._admit(frame, counters)
        late = self._late(batch, counters)
        steps = self._steps(batch, moment)
        beyond = self._out_of_range(batch, counters)
        emitted = self._advance(batch, steps, counters) if len(steps.positions) else self._nothing
        return OperatorOutput(emitted, pl.concat([late, *beyond]), counters)

    def _admit(self, frame: pl.DataFrame, counters: Counters) -> _Batch:
        """Drop and count null keys and null values (T6), follow the clock, judge each record (W1, W4)."""
        frame, hashes = self._grouping.admit(frame, self._spec.name, counters)
        self._results.aggregates.count_gaps(frame, self._spec.name, counters)
        times = frame[TS].to_numpy()
        _, clock = running_clock(self._stream_time, times)
        boundaries = np.maximum(clock - self._spec.grace_ms, self._boundary)
        return _Batch(frame, hashes, clock, boundaries, times + self._spec.difference_ms >= boundaries)

    def _late(self, batch: _Batch, counters: Counters) -> pl.DataFrame:
        if batch.is_accepted.all():
            return self._no_late
        is_late = pl.Series(~batch.is_accepted)
        add_counter(counters, self._spec.name, "window_closed", int(is_late.sum()))
        return late_rows(batch.frame.filter(is_late), self._spec.name, "window_closed", pl.Series(batch.clock).filter(is_late))

    def _out_of_range(self, batch: _Batch, counters: Counters) -> list[pl.DataFrame]:
        """Count and give the records that share a window with an older one which would end too late to be (T8).

        That is the window behind the earlier one of the two, whichever came first.
        """
        least = LAST_EVENT_TIME_MS - self._spec.difference_ms
        is_near = batch.is_accepted & (batch.frame[TS].to_numpy() >= least)
        if not is_near.any():
            return []
        run = self._run(batch)
        hashes = np.unique(batch.hashes.to_numpy()[is_near])
        bounds = np.full(len(hashes), least), np.full(len(hashes), LAST_EVENT_TIME_MS)
        parts = [*self._store.matching(hashes, *bounds), matching(run, hashes, *bounds)]
        columns = [HASH, *self._results.group, TS, SEQ]
        near = pl.concat([part.select(columns) for part in parts]).sort(SEQ)
        before = (pl.col(TS).shift(1).cum_min() < pl.col(TS)) | (pl.col(TS).shift(1).cum_max() > pl.col(TS))
        near = near.with_columns(before.over(HASH, *self._results.group).fill_null(False).alias(OUT_OF_RANGE))
        late = near.filter(pl.col(OUT_OF_RANGE) & (pl.col(SEQ) >= self._arrivals))[SEQ].to_numpy() - self._arrivals
        rows = np.flatnonzero(batch.is_accepted)[late]
        add_counter(counters, self._spec.name, OUT_OF_RANGE, len(rows))
        return [late_rows(batch.frame[rows], self._spec.name, OUT_OF_RANGE, pl.Series(batch.clock[rows]))]

    def _steps(self, batch: _Batch, moment: BatchTime) -> Steps:
        positions, offsets = batch.frame[POS].to_numpy(), batch.frame[OFFSET].to_numpy()
        clocks, boundaries = batch.clock, batch.boundaries
        stream_time = int(clocks[-1]) if len(clocks) else self._stream_time
        if moment.step_ms is not None and stream_time is not None:
            positions, offsets = np.append(positions, moment.position), np.append(offsets, _NO_RECORD)
            clocks = np.append(clocks, stream_time + moment.step_ms)
            boundaries = np.append(boundaries, max(int(clocks[-1]) - self._spec.grace_ms, self._boundary))
        return Steps(positions, offsets, clocks, boundaries)

    def _advance(self, batch: _Batch, steps: Steps, counters: Counters) -> pl.DataFrame:
        """Take the records in, emit, forget what no window can reach."""
        run = self._run(batch)
        is_final = self._spec.emit == "final"
        emitted = self._finals(run, steps, counters) if is_final else self._changes(run, batch, counters)
        if self._corrections is not None:
            emitted = self._corrections.process(emitted, steps.positions, steps.offsets, steps.clocks)
        self._stream_time, self._boundary = int(steps.clocks[-1]), int(steps.boundaries[-1])
        self._arrivals += run.height
        self._store.append(run.drop(BOUNDARY), self._boundary - self._spec.difference_ms - 1)
        return emitted

    def _run(self, batch: _Batch) -> pl.DataFrame:
        """The accepted records as a run of partials."""
        rows = np.flatnonzero(batch.is_accepted)
        is_whole = len(rows) == batch.frame.height
        frame, hashes = (batch.frame, batch.hashes) if is_whole else (batch.frame[rows], batch.hashes[rows])
        arrivals = pl.Series(SEQ, np.arange(self._arrivals, self._arrivals + len(rows)), pl.Int64)
        group = [frame[source].alias(name) for name, (_, source) in zip(self._results.group, self._spec.group, strict=True)]
        own = [hashes.alias(HASH), *group, frame[TS], arrivals, pl.Series(BOUNDARY, batch.boundaries[rows])]
        return sorted_run(pl.DataFrame([*own, *self._results.aggregates.lift(frame, arrivals)]))

    def _finals(self, run: pl.DataFrame, steps: Steps, counters: Counters) -> pl.DataFrame:
        closed, boundary, difference = self._boundary, int(steps.boundaries[-1]), self._spec.difference_ms
        if boundary <= closed:
            return self._nothing
        lefts = Band(0 if closed <= difference < boundary else closed, boundary - 1)
        bands = (lefts, Band(closed - difference - 1, boundary - difference - 2))
        hashes = np.unique(np.concatenate([self._store.hashes_between(bands), hashes_between(run, bands)]))
        low, high = np.full(len(hashes), closed - difference - 1), np.full(len(hashes), boundary - 1)
        return self._results.finals(self._timelines(run, hashes, low, high), closed, steps, counters)

    def _changes(self, run: pl.DataFrame, batch: _Batch, counters: Counters) -> pl.DataFrame:
        reach = self._spec.difference_ms + 1
        extent = run.group_by(HASH).agg(pl.col(TS).min().alias("low"), pl.col(TS).max().alias("high")).sort(HASH)
        low, high = extent["low"].to_numpy() - reach, extent["high"].to_numpy() + reach
        accepted = batch.frame.filter(pl.Series(batch.is_accepted))
        new = Arrivals(self._arrivals, *(accepted[name].to_numpy() for name in (TS, POS, OFFSET)))
        changes = self._results.changes(self._timelines(run, extent[HASH].to_numpy(), low, high), self._boundary, new, counters)
        return changes if self._corrections is not None else changes.drop(FIRST)

    def _timelines(self, run: pl.DataFrame, hashes: U64, low: I64, high: I64) -> Iterator[Timeline]:
        """The records of some groups between two times each, kept ones and those of the batch."""
        parts = [*self._store.matching(hashes, low, high), matching(run, hashes, low, high)]
        records = pl.concat(parts, how="diagonal") if len(parts) > 1 else parts[0]
        return timelines(records, self._results.group, self._spec.difference_ms) if records.height else iter(())
