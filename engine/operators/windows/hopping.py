"""Tumbling and hopping window aggregation (W1, W2, W5–W8, S6, T6, T8, T10, STRICT 3, 4, 15–17, 20).

Vectorised over a batch, equal to handling record after record: a record is judged by the time before its place; a window closes at
the first position that brings time to its end plus grace, whoever's record stands there. Partials are exact and merge in any order
(``aggregate``), so nothing depends on where batches were cut (T3).

``final`` merges a window's partials when it closes and reads nothing before. ``changes`` reads the partials of the touched
(window, group) pairs and runs the aggregates over the batch's records on top of them. ``corrections`` are its changes, marked and
held back by ``corrections``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from engine.expressions.types.types import TIMESTAMP, Schema
from engine.frames.clocks import BEFORE_ALL_TIME
from engine.frames.frames import (
    KEY_HASH,
    NO_RECORD,
    OFFSET,
    OP,
    POS,
    RANK,
    TS,
    Counters,
    add_counter,
    constant,
    empty_frame,
    empty_late,
    frame_of,
    is_value,
    late_rows,
    only,
    with_series,
    without,
)
from engine.frames.places import ranked
from engine.operators.aggregation.accumulators.marks import Marks
from engine.operators.aggregation.aggregate import Aggregates
from engine.operators.aggregation.group_results import Grouping
from engine.operators.aggregation.having import Having
from engine.operators.aggregation.last_changes import LATEST, MESSAGE, LastChanges
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.operators.pending.spans import Span, counted
from engine.operators.windows.corrections import WINDOW_END, WINDOW_START, Corrections
from engine.operators.windows.window_batch import WindowBatch
from engine.operators.windows.window_grid import MAX_EXPANSION, OUT_OF_RANGE, Int64s, WindowGrid, expand, node_windows
from engine.operators.windows.window_places import (
    ARRIVED,
    FIRST,
    arrival,
    arrival_columns,
    at_one_place,
    at_own_places,
    by_arrival,
    due_until,
    earliest,
    together,
    with_arrivals,
)
from engine.operators.windows.window_store import HASH, NODE, WindowStore, covering, sorted_run
from engine.plan.operators.windows import WindowAggregation
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.running import Groups
from engine.state.sorted.segment_list import taken

_LOW, _HIGH = "_low", "_high"

_US_PER_MS: Final = 1000


class WindowAggregator(Operator):
    """Aggregates one stream by group and window.

    Args:
        spec: what to do.
        schema_in: the columns of the frames to come.
        state: what ``snapshot`` returned, or None for a new operator. ``spec`` may differ from the one it was made with in grace: a
            window that has closed stays closed, one that is closed under the new grace closes at the next place of the streams.
        store: where partial results live.
        is_hashed: see ``Grouping``.
    """

    def __init__(
        self,
        spec: WindowAggregation,
        schema_in: Schema,
        state: dict[str, Any] | None,
        store: SegmentStore,
        *,
        is_hashed: bool = False,
    ) -> None:
        self.name = spec.name
        self._spec = spec
        self._grid = WindowGrid(spec.size_ms, spec.advance_ms, spec.grace_ms)
        self._aggregates = Aggregates(spec.aggregates, schema_in)
        group = tuple((name, schema_in[source]) for name, source in spec.group)
        bounds = ((WINDOW_START, TIMESTAMP), (WINDOW_END, TIMESTAMP))
        self.schema = Schema(group + bounds + self._aggregates.schema)
        self._nothing, self._no_late = empty_frame(self.schema), empty_late()
        values = [name for name, _ in self._aggregates.schema]
        self._having = Having(spec.having, self.schema, values) if spec.having is not None else None
        self._grouping = Grouping.of(spec.group, schema_in, store.hashing, is_hashed=is_hashed)
        self._group = [f"g{i}" for i in range(len(spec.group))]
        state = state or {}
        by_window = [NODE, HASH, *self._group]
        self._last = LastChanges(self._aggregates, self._having, self._merge_nodes, by_window, self._keys)
        self._first_open: int = state.get("first_open", 0)
        self._arrivals: int = state.get("arrivals", 0)
        self._store = WindowStore(store, self._merge_nodes, self._grid.levels, state.get("segments"))
        self._corrections: Corrections | None = None
        if spec.emit == "corrections":
            key = tuple(name for name, _ in spec.group)
            self._corrections = Corrections(self.schema, key, spec.grace_ms, state.get("corrections"), store)
            self._nothing = self._nothing.with_columns(pl.lit(0, pl.Int64).alias(FIRST))
            self.schema = self._corrections.schema

    @property
    def buffered_rows(self) -> int:
        """Partial results held for windows that have not closed."""
        return self._store.rows

    @property
    def waiting(self) -> dict[str, list[Span]]:
        """Open windows by their ends; exact."""
        size, advance = self._grid.size_ms, self._grid.advance_ms
        lows, highs = self._store.open_windows(self._first_open)
        return {self._spec.name: counted(lows * advance + size, highs * advance + size, highs - lows + 1)}

    @property
    def due_ms(self) -> int | None:
        """The time at which a window is shown or closes; with ``changes`` nothing waits for it."""
        if self._corrections is not None:
            return self._corrections.due_ms
        window = None if self._spec.emit == "changes" else self._store.earliest(self._first_open)
        return None if window is None else int(self._grid.closing_times(np.array([window]))[0])

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        state = {"first_open": self._first_open, "arrivals": self._arrivals, "segments": self._store.snapshot()}
        return state if self._corrections is None else {**state, "corrections": self._corrections.snapshot()}

    def process(
        self,
        frame: pl.DataFrame,
        inputs: Mapping[int, pl.DataFrame],  # noqa: ARG002 - windows read no table
        moment: BatchTime,
    ) -> OperatorOutput:
        """Handle the next records in processing order, and what time closes.

        Args:
            frame: columns of ``schema_in`` and the service columns.
            inputs: not read.
            moment: when.

        Returns:
            ``final``: one row per window that closed, at the position that closes it, there by (end, start, first arrival).
            ``changes``: one row per (record, window), each further one of a record at a place of its own; or only the last one
            per window where they are folded. A deleted row keeps its key,
            its aggregates are null. ``corrections``: see there. ``late`` has each record once for each reason why some window refused it;
            the counters ``window_closed`` and ``window_out_of_range`` (T8) count (record, window) pairs.
        """
        counters: Counters = {}
        closed_at = moment.closed_ms + self._spec.grace_ms
        self._first_open = max(int(self._grid.first_open(np.array([closed_at]))[0]), self._first_open)
        frame, hashes = self._grouping.admit(frame, self._spec.name, counters)
        self._aggregates.count_gaps(frame, self._spec.name, counters)
        batch = self._admit(frame, hashes, moment)
        late = self._late(batch, counters)
        until = due_until(moment)
        first_open = max(int(self._grid.first_open(np.array([until]))[0]), self._first_open)
        if self._spec.emit == "final":
            run = self._partials(batch)
            emitted = self._finals(run, first_open, moment, counters)
            self._store.append(run, first_open)
        else:
            emitted = self._changes(batch, first_open, counters)
        self._first_open = first_open
        if self._corrections is not None:
            emitted = self._corrections.process(emitted, moment)
        return OperatorOutput(emitted, pl.concat(late) if late else self._no_late, counters)

    def _admit(self, frame: pl.DataFrame, hashes: pl.Series, moment: BatchTime) -> WindowBatch:
        """Judge each record per window by the time before its place (W1)."""
        arrivals = pl.Series(np.arange(self._arrivals, self._arrivals + frame.height))
        self._arrivals += frame.height
        before = moment.before(frame)
        wanted, behind = self._grid.windows_of(frame[TS].to_numpy())
        last = np.minimum(behind, self._grid.last_window)
        first = np.maximum(wanted, np.maximum(self._grid.first_open(before), self._first_open))
        refused = np.maximum(np.minimum(first, last + 1) - wanted, 0)
        return WindowBatch(frame, hashes, arrivals, before, first, last, refused, np.minimum(behind - last, behind - wanted + 1))

    def _late(self, batch: WindowBatch, counters: Counters) -> list[pl.DataFrame]:
        """Count (record, window) pairs that fail, by reason; give each record once for each reason."""
        late = []
        for reason, pairs in (("window_closed", batch.refused), (OUT_OF_RANGE, batch.beyond)):
            if pairs.any():
                add_counter(counters, self._spec.name, reason, int(pairs.sum()))
                is_late = pl.Series(pairs > 0)
                times = pl.Series(batch.before).replace(BEFORE_ALL_TIME, None).filter(is_late)
                late.append(late_rows(batch.frame.filter(is_late), self._spec.name, reason, times))
        return late

    # Partials

    def _record_partials(self, batch: WindowBatch) -> tuple[pl.DataFrame, Int64s]:
        """One partial per record that some window takes, and the records' indexes."""
        rows = np.flatnonzero(batch.first <= batch.last)
        is_whole = len(rows) == batch.frame.height
        frame, hashes, arrivals = batch.frame, batch.hashes, batch.arrivals
        if not is_whole:
            frame, hashes, arrivals = frame[rows], hashes[rows], arrivals[rows]
        group = [frame[source].alias(name) for name, (_, source) in zip(self._group, self._spec.group, strict=True)]
        own = [hashes.alias(HASH), *group, *arrival_columns(frame), frame[TS].alias(LATEST)]
        return frame_of([*own, *self._aggregates.lift(frame, arrivals)]), rows

    def _partials(self, batch: WindowBatch) -> pl.DataFrame:
        """The batch as a sorted run of partials per (node, group)."""
        lifted, rows = self._record_partials(batch)
        first, last = batch.first[rows], batch.last[rows]
        if self._grid.levels == 1:
            return sorted_run(self._merge_nodes(with_series(lifted, pl.Series(NODE, first))))
        ranges = self._merge(with_series(lifted, pl.Series(_LOW, first), pl.Series(_HIGH, last)), [_LOW, _HIGH])
        runs, nodes = self._grid.nodes(ranges[_LOW].to_numpy(), ranges[_HIGH].to_numpy())
        return sorted_run(self._merge_nodes(with_series(taken(without(ranges, _LOW, _HIGH), runs), pl.Series(NODE, nodes))))

    def _merge_nodes(self, partials: pl.DataFrame) -> pl.DataFrame:
        return self._merge(partials, [NODE])

    def _merge(self, partials: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        """Merge partials with equal ``keys`` and group; the hash alone could collide."""
        if partials.height < 2:
            return partials
        if self._aggregates.are_merged(partials, HASH):
            return self._aggregates.run_until_idle(partials)
        partials = with_arrivals(partials)
        grouped = partials.group_by(*keys, HASH, *self._group)
        own = [
            *earliest(partials.columns),
            pl.col(LATEST).max(),
            *(pl.col(name).max() for name in (MESSAGE,) if name in partials.columns),
        ]
        merged = grouped.agg(*own, *self._aggregates.merge(partials.columns))
        return self._aggregates.run_until_idle(merged)

    # EMIT FINAL

    def _finals(self, run: pl.DataFrame, first_open: int, moment: BatchTime, counters: Counters) -> pl.DataFrame:
        begin = self._first_open
        if first_open <= begin:
            return self._nothing
        parts = [*self._store.covering(begin, first_open), *covering(run, begin, first_open, self._grid.levels)]
        if not parts:
            return self._nothing
        partials = pl.concat(parts, how="diagonal") if len(parts) > 1 else parts[0]
        outputs = [self._final_rows(windows, moment, counters) for windows in self._windows(partials, begin, first_open)]
        return pl.concat(outputs)

    def _windows(self, partials: pl.DataFrame, begin: int, end: int) -> list[pl.DataFrame]:
        """Merge node partials into window partials (``NODE`` = window), in bounded steps, ascending windows."""
        first, last = node_windows(partials[NODE].to_numpy())
        first, last = np.maximum(first, begin), np.minimum(last, end - 1)
        total = int((last - first + 1).sum())
        low, high = int(first.min()), int(last.max())
        if total > max(MAX_EXPANSION, 2 * partials.height) and high > low:
            middle = (low + high + 1) // 2
            earlier, later = partials.filter(pl.Series(first < middle)), partials.filter(pl.Series(last >= middle))
            return [*self._windows(earlier, low, middle), *self._windows(later, middle, high + 1)]
        rows, windows = expand(first, last)
        spread = partials if len(rows) == partials.height else partials[rows]
        merged = with_arrivals(self._merge_nodes(with_series(spread, pl.Series(NODE, windows))))
        return [taken(merged, by_arrival(merged, merged[NODE].to_numpy()))]

    def _final_rows(self, partials: pl.DataFrame, moment: BatchTime, counters: Counters) -> pl.DataFrame:
        values, marks = self._aggregates.results(partials)
        marks.count(self._spec.name, counters)
        windows = partials[NODE].to_numpy()
        own = [
            pl.Series(POS, moment.reached(self._grid.closing_times(windows))),
            partials[LATEST].alias(TS),
            constant(0, partials.height, OP, np.int8),
            constant(NO_RECORD, partials.height, OFFSET),
        ]
        # All windows are of one size: their starts are in the order of their ends.
        rows = ranked(frame_of([*own, *self._keys(partials), *values]), windows, arrival(partials))
        rows = only(rows, *self._nothing.columns)
        return rows if self._having is None else rows.filter(pl.Series(self._having.matches(rows)))

    # EMIT CHANGES

    def _changes(self, batch: WindowBatch, first_open: int, counters: Counters) -> pl.DataFrame:
        """Show changes and keep partials, in parts of bounded expansion.

        Returns:
            One change per (record, window), or only the last one per window of a part, in their order.
        """
        rows = max(1, MAX_EXPANSION // self._grid.windows_per_record)
        parts = [*batch.parts(rows)]
        outputs = []
        for number, part in enumerate(parts, 1):
            run, emitted = self._part_changes(part, counters)
            # What the batch closes is open for records of a part to come.
            self._store.append(run, first_open if number == len(parts) else self._first_open)
            outputs.append(emitted)
        return together(outputs)

    def _part_changes(self, batch: WindowBatch, counters: Counters) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return a part as a sorted run of partials per (window, group), and its changes."""
        lifted, rows = self._record_partials(batch)
        records, windows = expand(batch.first[rows], batch.last[rows])
        pairs = lifted if len(records) == lifted.height else taken(lifted, records)
        pairs = with_series(pairs, pl.Series(NODE, windows), pl.Series(MESSAGE, np.arange(len(records))))
        if pairs.is_empty():
            return without(pairs, MESSAGE), self._nothing
        held = self._store.matching(windows, pairs[HASH].to_numpy())
        if self._spec.is_folded:
            run, changes, marks = self._last.of(pairs, held)
        else:
            changes, marks = self._every_change(pairs, held)
            run = self._merge_nodes(pairs)
        marks.count(self._spec.name, counters)
        causes = rows[records[changes[MESSAGE].to_numpy()]]
        changes = with_series(changes, *taken(only(batch.frame, POS, OFFSET, RANK), causes).get_columns())
        if self._corrections is not None:
            changes = at_one_place(changes, causes)
        elif not self._spec.is_folded:
            changes = at_own_places(changes, causes)
        arrived = [ARRIVED] if self._corrections is not None and ARRIVED in changes.columns else []
        return sorted_run(without(run, MESSAGE)), only(changes, *self._nothing.columns, *arrived)

    def _every_change(self, pairs: pl.DataFrame, held: list[pl.DataFrame]) -> tuple[pl.DataFrame, Marks]:
        """Show what each (record, window) makes of the window, by ``MESSAGE``, and say what is to be counted."""
        chain = pl.concat([*held, pairs], how="diagonal") if held else pairs
        chain, groups = self._grouped(chain)
        is_change = is_value(chain[MESSAGE])
        values, marks = self._aggregates.running(chain, groups)
        result_times = pl.Series(TS, groups.latest(chain[LATEST].to_numpy()))
        firsts = [taken(only(chain, name), groups.firsts)[name] for name in (FIRST, ARRIVED) if name in chain.columns]
        op = constant(0, chain.height, OP, np.int8)
        outputs = frame_of([chain[MESSAGE], result_times, *self._keys(chain), *values, *firsts, op])
        if self._having is not None:
            outputs = self._having.with_deletes(outputs, groups)
        in_order = np.empty(pairs.height, dtype=np.int64)
        changed = np.flatnonzero(is_change)
        in_order[chain[MESSAGE].to_numpy()[changed].astype(np.int64)] = changed
        outputs = taken(outputs, in_order)
        if self._having is not None:
            outputs = outputs.filter(pl.col(OP).is_not_null())
        return outputs, marks.among(is_change)

    def _grouped(self, chain: pl.DataFrame) -> tuple[pl.DataFrame, Groups]:
        """Bring the rows of each (window, group) together, in the order of arrival, in which they stand."""
        found = sorted_run(chain)
        pairs = [found.get_column(name) for name in (NODE, HASH)]
        groups = Groups.of_columns([*pairs, *(found.get_column(name) for name in self._group)])
        if groups.ids[-1] != Groups.of_columns(pairs).ids[-1]:
            found = chain.sort(NODE, HASH, *self._group, maintain_order=True)
            groups = Groups.of(found.select(NODE, HASH, *self._group))
        return found, groups

    # Output columns

    def _keys(self, partials: pl.DataFrame) -> list[pl.Series]:
        """The group's hash and columns, and the bounds of the window in ``NODE``."""
        group = [partials[own].alias(name) for own, (name, _) in zip(self._group, self._spec.group, strict=True)]
        start = partials[NODE].to_numpy() * self._grid.advance_ms
        bounds = ((WINDOW_START, start), (WINDOW_END, start + self._grid.size_ms))
        hashes = partials[HASH].alias(KEY_HASH)
        return [hashes, *group, *(pl.Series(name, ms * _US_PER_MS).cast(TIMESTAMP.polars) for name, ms in bounds)]
