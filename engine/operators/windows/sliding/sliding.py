"""Sliding window aggregation (W1, W4–W8, T6, T10, STRICT 3, 4, 11, 15–17, 19, 20).

State is nothing but the accepted records that an open or a later window can reach: which windows exist and what each took follows
from their times and arrivals alone (``sliding_windows``). That holds for records in any order, so there is no slower way for late
ones. ``final`` reads the groups whose windows close in the batch, ``changes`` those that have new records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from engine.expressions.types.types import Schema
from engine.frames.clocks import BEFORE_ALL_TIME, I64, LAST_EVENT_TIME_MS, Bools
from engine.frames.frames import OFFSET, POS, RANK, TS, Counters, add_counter, empty_late, late_rows, only
from engine.operators.aggregation.group_results import Grouping
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.operators.pending.spans import Span
from engine.operators.windows.corrections import Corrections
from engine.operators.windows.sliding.sliding_changes import Arrivals
from engine.operators.windows.sliding.sliding_results import SlidingResults
from engine.operators.windows.sliding.sliding_store import HASH, SEQ, Band, SlidingStore, hashes_between, matching, sorted_run
from engine.operators.windows.sliding.sliding_windows import BOUNDARY, Timeline, timelines
from engine.operators.windows.window_grid import OUT_OF_RANGE
from engine.operators.windows.window_places import arrival_columns, at_one_place, at_own_places, due_until, with_arrivals
from engine.plan.operators.windows import SlidingAggregation
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.sorted_search import U64


@dataclass(frozen=True, slots=True)
class _Batch:
    """The records that were not dropped, in processing order.

    Attributes:
        frame: their rows.
        hashes: hash of each one's group.
        before: time before the place of each.
        boundaries: before each, the smallest window end that is still open.
        is_accepted: whether each one is not late.
    """

    frame: pl.DataFrame
    hashes: pl.Series
    before: I64
    boundaries: I64
    is_accepted: Bools


class SlidingAggregator(Operator):
    """Aggregates one stream by group and sliding window.

    Args:
        spec: what to do.
        schema: the columns of the frames to come.
        state: what ``snapshot`` returned, or None. ``spec`` may differ from the one it was made with in grace: a window that has
            closed stays closed, one that is closed under the new grace closes at the next place of the streams.
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
        self._boundary: int = state.get("boundary", 0)
        self._arrivals: int = state.get("arrivals", 0)
        self._store = SlidingStore(store, state.get("segments"))
        self._corrections: Corrections | None = None
        self.schema, self._no_late = self._results.schema, empty_late()
        if spec.emit == "corrections":
            group = tuple(name for name, _ in spec.group)
            self._corrections = Corrections(self.schema, group, spec.grace_ms + 1, state.get("corrections"), store)
            self.schema = self._corrections.schema

    @property
    def buffered_rows(self) -> int:
        """Records held for open and later windows, and results held back."""
        return self._store.rows + (self._corrections.buffered_rows if self._corrections is not None else 0)

    @property
    def waiting(self) -> dict[str, list[Span]]:
        """Open windows by their ends: at most two for each record, one that ends with it and one that begins behind it."""
        return {self._spec.name: self._store.window_spans(self._spec.difference_ms, self._boundary)}

    @property
    def due_ms(self) -> int | None:
        """See ``Operator``. It may be too small: a record on its own seems to have a window behind it."""
        if self._corrections is not None:
            return self._corrections.due_ms
        if self._spec.emit == "changes":
            return None
        difference = self._spec.difference_ms
        ends = []
        if (left := self._store.first_time(0 if self._boundary <= difference else self._boundary)) is not None:
            ends.append(max(left, difference))
        if (right := self._store.first_time(self._boundary - difference - 1)) is not None:
            ends.append(right + 1 + difference)
        return min(ends) + 1 + self._spec.grace_ms if ends else None

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        state = {"boundary": self._boundary, "arrivals": self._arrivals, "segments": self._store.snapshot()}
        return state if self._corrections is None else {**state, "corrections": self._corrections.snapshot()}

    def process(
        self,
        frame: pl.DataFrame,
        inputs: Mapping[int, pl.DataFrame],  # noqa: ARG002 - windows read no table
        moment: BatchTime,
    ) -> OperatorOutput:
        """Handle the next records in processing order, and what time closes.

        Args:
            frame: columns of the schema and the service columns.
            inputs: not read.
            moment: when.

        Returns:
            ``final``: one row per window that closed, at the position that closes it, there by (end, start, first arrival).
            ``changes``: one row per (record, window) in the order of STRICT 4, each further one of a record at a place of its own, or only
            the last one per window where they are folded; a deleted row
            keeps its key, its aggregates are null. ``corrections``: see ``Corrections``. ``late`` has the refused records; counter
            ``window_closed`` counts them, and ``window_out_of_range`` those that are taken by their own window but not by another one (T8).
        """
        counters: Counters = {}
        batch = self._admit(frame, moment, counters)
        late = self._late(batch, counters)
        beyond = self._out_of_range(batch, counters)
        emitted = self._advance(batch, moment, counters)
        return OperatorOutput(emitted, pl.concat([late, *beyond]), counters)

    def _admit(self, frame: pl.DataFrame, moment: BatchTime, counters: Counters) -> _Batch:
        """Drop and count null keys and null values (T6), judge each record by the time before its place (W1, W4)."""
        frame, hashes = self._grouping.admit(frame, self._spec.name, counters)
        self._results.aggregates.count_gaps(frame, self._spec.name, counters)
        before = moment.before(frame)
        self._boundary = max(moment.closed_ms, self._boundary)
        boundaries = np.maximum(before - self._spec.grace_ms, self._boundary)
        is_accepted = frame[TS].to_numpy() + self._spec.difference_ms >= boundaries
        return _Batch(frame, hashes, before, boundaries, is_accepted)

    def _late(self, batch: _Batch, counters: Counters) -> pl.DataFrame:
        if batch.is_accepted.all():
            return self._no_late
        is_late = pl.Series(~batch.is_accepted)
        add_counter(counters, self._spec.name, "window_closed", int(is_late.sum()))
        return late_rows(batch.frame.filter(is_late), self._spec.name, "window_closed", pl.Series(batch.before).filter(is_late))

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
        times = pl.Series(batch.before[rows]).replace(BEFORE_ALL_TIME, None)
        return [late_rows(batch.frame[rows], self._spec.name, OUT_OF_RANGE, times)]

    def _advance(self, batch: _Batch, moment: BatchTime, counters: Counters) -> pl.DataFrame:
        """Take the records in, emit, forget what no window can reach."""
        run = self._run(batch)
        boundary = max(due_until(moment) - self._spec.grace_ms, self._boundary)
        is_final = self._spec.emit == "final"
        emitted = self._finals(run, boundary, moment, counters) if is_final else self._changes(run, batch, counters)
        if self._corrections is not None:
            emitted = self._corrections.process(emitted, moment)
        self._boundary = boundary
        self._arrivals += run.height
        self._store.append(run.drop(BOUNDARY), boundary - self._spec.difference_ms - 1)
        return emitted

    def _run(self, batch: _Batch) -> pl.DataFrame:
        """The accepted records as a run of partials."""
        rows = np.flatnonzero(batch.is_accepted)
        is_whole = len(rows) == batch.frame.height
        frame, hashes = (batch.frame, batch.hashes) if is_whole else (batch.frame[rows], batch.hashes[rows])
        arrivals = pl.Series(SEQ, np.arange(self._arrivals, self._arrivals + len(rows)), pl.Int64)
        group = [frame[source].alias(name) for name, (_, source) in zip(self._results.group, self._spec.group, strict=True)]
        arrived = [] if self._spec.emit == "changes" else arrival_columns(frame)
        own = [hashes.alias(HASH), *group, frame[TS], arrivals, *arrived, pl.Series(BOUNDARY, batch.boundaries[rows])]
        return sorted_run(pl.DataFrame([*own, *self._results.aggregates.lift(frame, arrivals)]))

    def _finals(self, run: pl.DataFrame, boundary: int, moment: BatchTime, counters: Counters) -> pl.DataFrame:
        closed, difference = self._boundary, self._spec.difference_ms
        if boundary <= closed:
            return self._results.nothing
        lefts = Band(0 if closed <= difference < boundary else closed, boundary - 1)
        bands = (lefts, Band(closed - difference - 1, boundary - difference - 2))
        hashes = np.unique(np.concatenate([self._store.hashes_between(bands), hashes_between(run, bands)]))
        low, high = np.full(len(hashes), closed - difference - 1), np.full(len(hashes), boundary - 1)
        return self._results.finals(self._timelines(run, hashes, low, high), range(closed, boundary), moment, counters)

    def _changes(self, run: pl.DataFrame, batch: _Batch, counters: Counters) -> pl.DataFrame:
        reach = self._spec.difference_ms + 1
        extent = run.group_by(HASH).agg(pl.col(TS).min().alias("low"), pl.col(TS).max().alias("high")).sort(HASH)
        low, high = extent["low"].to_numpy() - reach, extent["high"].to_numpy() + reach
        accepted = batch.frame.filter(pl.Series(batch.is_accepted))
        new = Arrivals(self._arrivals, accepted[TS].to_numpy(), only(accepted, POS, OFFSET, RANK))
        timelines = self._timelines(run, extent[HASH].to_numpy(), low, high)
        changes, records = self._results.changes(timelines, self._boundary, new, counters)
        if self._corrections is not None:
            return at_one_place(changes, records)
        return changes if self._spec.is_folded else at_own_places(changes, records)

    def _timelines(self, run: pl.DataFrame, hashes: U64, low: I64, high: I64) -> Iterator[Timeline]:
        """The records of some groups between two times each, kept ones and those of the batch."""
        parts = [*self._store.matching(hashes, low, high), matching(run, hashes, low, high)]
        records = pl.concat(parts, how="diagonal") if len(parts) > 1 else parts[0]
        return timelines(with_arrivals(records), self._results.group, self._spec.difference_ms) if records.height else iter(())
