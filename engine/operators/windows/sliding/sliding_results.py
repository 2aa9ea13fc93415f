"""Results of sliding windows: final ones, and every change (W6, W7, STRICT 3, 4, 16, 17).

Both read timelines: the accepted records that the windows concerned can hold. A final result is the fold of what its window took;
changes are the running results over chains (``sliding_changes``). This makes output rows of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from engine.expressions.types.types import TIMESTAMP, Schema
from engine.frames.clocks import I64
from engine.frames.frames import KEY_HASH, NO_RECORD, OFFSET, OP, POS, TS, Counters, constant, empty_frame, only, values_taken
from engine.frames.places import ranked
from engine.operators.aggregation.accumulators.marks import Marks
from engine.operators.aggregation.aggregate import Aggregates
from engine.operators.aggregation.having import Having
from engine.operators.operators import BatchTime
from engine.operators.windows.sliding.sliding_changes import Arrivals, ChainMaker, Chains
from engine.operators.windows.sliding.sliding_fold import RangeFold, range_minima
from engine.operators.windows.sliding.sliding_store import HASH
from engine.operators.windows.sliding.sliding_windows import Timeline, Windows
from engine.operators.windows.window_places import ARRIVED, FIRST, arrival, by_arrival
from engine.plan.operators.windows import SlidingAggregation
from engine.state.sorted.segment_list import taken

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"

_PLACE: Final = "_place"

_RECORD: Final = "_record"

_WINDOW: Final = "_window"

_US_PER_MS: Final = 1000


class SlidingResults:
    """Makes the rows of one operator.

    Args:
        spec: the operator.
        schema: the columns its aggregates read.
    """

    def __init__(self, spec: SlidingAggregation, schema: Schema) -> None:
        self._spec = spec
        self._difference = spec.difference_ms
        self.aggregates = Aggregates(spec.aggregates, schema)
        self.group = [f"g{i}" for i in range(len(spec.group))]
        group = tuple((name, schema[source]) for name, source in spec.group)
        bounds = ((WINDOW_START, TIMESTAMP), (WINDOW_END, TIMESTAMP))
        self.schema = Schema(group + bounds + self.aggregates.schema)
        self.nothing = empty_frame(self.schema)
        self._no_changes = self.nothing if spec.emit == "changes" else self.nothing.with_columns(pl.lit(0, pl.Int64).alias(FIRST))
        values = [name for name, _ in self.aggregates.schema]
        self._having = Having(spec.having, self.schema, values) if spec.having is not None else None
        self._read_between: frozenset[str] | None = None
        """What is computed of changes that others follow within a batch; None: everything."""
        if spec.is_folded:
            self._read_between = frozenset() if self._having is None else self._having.reads

    # EMIT FINAL

    def finals(self, timelines: Iterator[Timeline], ends: range, moment: BatchTime, counters: Counters) -> pl.DataFrame:
        """Return each window that closes.

        Args:
            timelines: the records; of each group that has such a window, all from the first end - d - 1 on that it may have taken.
            ends: of these windows.
            moment: says where they close.
            counters: receives what is counted of the results.
        """
        parts = [self._final_rows(timeline, ends, moment, counters) for timeline in timelines]
        if not parts:
            return self.nothing
        rows = pl.concat(parts, how="diagonal")
        if len(parts) > 1:
            rows = taken(rows, by_arrival(rows, rows[WINDOW_END].to_physical().to_numpy()))
        rows = only(rows, *self.nothing.columns)
        return rows if self._having is None else rows.filter(pl.Series(self._having.matches(rows)))

    def _final_rows(self, timeline: Timeline, ends: range, moment: BatchTime, counters: Counters) -> pl.DataFrame:
        windows = self._closing(timeline, ends)
        ranges = timeline.taken(windows)
        firsts = ranges.firsts
        windows = windows.of(ranges.owners[firsts])
        partials = RangeFold(self.aggregates, timeline.frame).fold(ranges)
        values, marks = self.aggregates.results(partials)
        marks.count(self._spec.name, counters)
        arrived = range_minima(timeline.arrivals, ranges.low, ranges.high)
        arrived = np.minimum.reduceat(arrived, firsts) if len(firsts) else arrived
        lasts = np.append(firsts[1:], len(ranges.owners))[: len(firsts)] - 1
        closing = windows.starts + (self._difference + self._spec.grace_ms + 1)
        columns = [
            pl.Series(POS, moment.reached(closing)),
            pl.Series(TS, timeline.times[ranges.high[lasts] - 1]),
            constant(0, len(closing), OP, np.int8),
            constant(NO_RECORD, len(closing), OFFSET),
            *self._keys(timeline, windows, ranges.low[firsts]),
            *values,
            *self._arrivals(timeline, timeline.row_of(arrived)),
        ]
        rows = pl.DataFrame(columns)
        # All windows are of one size: their starts are in the order of their ends.
        rows = ranked(rows, windows.starts, arrival(rows))
        return taken(rows, by_arrival(rows, windows.starts))

    def _closing(self, timeline: Timeline, within: range) -> Windows:
        """Return the windows that may exist and that end there."""
        groups, starts = timeline.left()
        groups = np.concatenate([groups, timeline.groups])
        starts = np.concatenate([starts, timeline.times + 1])
        ends = starts + self._difference
        is_closing = (ends >= within.start) & (ends < within.stop)
        return timeline.windows(groups[is_closing], starts[is_closing])

    # EMIT CHANGES

    def changes(self, timelines: Iterator[Timeline], closed: int, new: Arrivals, counters: Counters) -> tuple[pl.DataFrame, I64]:
        """Make one row per (record, window), or only the last one per window.

        Args:
            timelines: see ``ChainMaker``.
            closed: the boundary before the batch.
            new: the batch's records.
            counters: receives what is counted of the results.

        Returns:
            The changes with the ranks of their records, for corrections with the arrivals of their windows; and these records.
        """
        parts = [
            self._change_rows(timeline, chains, new, counters)
            for timeline in timelines
            for chains in ChainMaker(timeline, new, self._difference).chains(self.aggregates, closed)
        ]
        if not parts:
            return self._no_changes, np.empty(0, np.int64)
        rows = pl.concat(parts, how="diagonal")
        rows = taken(rows, np.argsort(rows[_PLACE].to_numpy()))
        arrived = [name for name in (FIRST, ARRIVED) if name in rows.columns]
        return rows.select(*self.nothing.columns, *arrived), rows[_RECORD].to_numpy()

    def _change_rows(self, timeline: Timeline, chains: Chains, new: Arrivals, counters: Counters) -> pl.DataFrame:
        values, marks = self.aggregates.running(chains.partials, chains.groups, self._read_between)
        columns = [
            *taken(new.places, chains.records).get_columns(),
            pl.Series(TS, chains.result_times[chains.emitted]),
            *self._keys(timeline, chains.windows, chains.windows.low),
            *(values_taken(column, chains.emitted) for column in values),
            *self._arrivals(timeline, chains.firsts),
            pl.Series(_PLACE, chains.places),
            pl.Series(_RECORD, chains.records),
            pl.Series(_WINDOW, chains.groups.ids[chains.emitted]),
        ]
        rows = self._with_deletes(pl.DataFrame(columns), chains, values)
        marks = marks.among(chains.emitted)
        if self._spec.is_folded:
            rows, marks = self._last_changes(rows, chains)
        marks.count(self._spec.name, counters)
        nulled = [pl.when(pl.col(OP) == 0).then(pl.col(name)).alias(name) for name, _ in self.aggregates.schema]
        return rows.drop(_WINDOW) if self._having is None else rows.drop(_WINDOW).with_columns(nulled)

    def _with_deletes(self, rows: pl.DataFrame, chains: Chains, values: list[pl.Series]) -> pl.DataFrame:
        """Add ``_op``; with ``having``, 1 for a row that no longer matches, and leave out one that did not match before either."""
        if self._having is None:
            return rows.with_columns(pl.lit(0, pl.Int8).alias(OP))
        matches = self._having.matches(rows)
        later = np.flatnonzero(~chains.is_new)
        before = rows[later].with_columns(values_taken(column, chains.emitted[later] - 1) for column in values)
        is_shown = np.zeros(len(matches), np.bool_)
        is_shown[later] = self._having.matches(before)
        return rows.with_columns(pl.Series(OP, (~matches).astype(np.int8))).filter(pl.Series(matches | is_shown))

    def _last_changes(self, rows: pl.DataFrame, chains: Chains) -> tuple[pl.DataFrame, Marks]:
        """Keep the last change of each window, and say what is to be counted of the windows.

        Args:
            rows: every change, with no other values than ``having`` reads; ``_WINDOW`` is the number of its chain.
            chains: whose last rows the last changes show, unless they are deletes.
        """
        last = rows.sort(_PLACE).unique(_WINDOW, keep="last", maintain_order=True)
        numbered = chains.partials.with_columns(pl.Series(_WINDOW, chains.groups.ids).set_sorted())
        merge = self.aggregates.merge(chains.partials.columns)
        merged = numbered.group_by(_WINDOW, maintain_order=True).agg(merge)
        values, marks = self.aggregates.results(self.aggregates.run_until_idle(merged))
        windows = last[_WINDOW]
        return last.with_columns(each.gather(windows) for each in values), marks.among(windows.to_numpy())

    # Columns

    @staticmethod
    def _arrivals(timeline: Timeline, rows: I64) -> list[pl.Series]:
        """When rows of a timeline arrived, where it knows that."""
        known = [name for name in (FIRST, ARRIVED) if name in timeline.frame.columns]
        return [values_taken(timeline.frame[name], rows) for name in known]

    def _keys(self, timeline: Timeline, windows: Windows, rows: I64) -> list[pl.Series]:
        """The group's hash and columns, from any row of its, and the windows' bounds."""
        own = timeline.frame.select(HASH, *self.group)[rows]
        group = [own[inner].alias(name) for inner, (name, _) in zip(self.group, self._spec.group, strict=True)]
        bounds = ((WINDOW_START, windows.starts), (WINDOW_END, windows.starts + self._difference))
        times = [pl.Series(name, ms * _US_PER_MS).cast(TIMESTAMP.polars) for name, ms in bounds]
        return [own[HASH].alias(KEY_HASH), *group, *times]
