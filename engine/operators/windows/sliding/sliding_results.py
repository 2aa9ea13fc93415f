"""Results of sliding windows: final ones, and every change (W6, W7, STRICT 3, 4, 16, 17).

Both read timelines: the accepted records that the windows concerned can hold. A final result is the fold of what its window took;
changes are the running results over chains (``sliding_changes``). This makes output rows of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from engine.expressions.types.types import TIMESTAMP, Schema
from engine.frames.clocks import I64
from engine.frames.frames import KEY_HASH, OFFSET, OP, POS, TS, Counters, empty_frame, values_taken
from engine.operators.aggregation.accumulators.marks import Marks
from engine.operators.aggregation.aggregate import Aggregates
from engine.operators.aggregation.having import Having
from engine.operators.windows.sliding.sliding_changes import Arrivals, ChainMaker, Chains
from engine.operators.windows.sliding.sliding_fold import RangeFold, range_minima
from engine.operators.windows.sliding.sliding_store import HASH, TOLD
from engine.operators.windows.sliding.sliding_windows import Timeline, Windows
from engine.plan.operators.windows import SlidingAggregation

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"

FIRST: Final = "_first"
"""Arrival of the window's earliest-arrived record: the tie-breaker of W6."""

_PLACE: Final = "_place"

_WINDOW: Final = "_window"

_US_PER_MS: Final = 1000


class Steps(NamedTuple):
    """What moved the clock in a batch, in order: the records that were not dropped, and last the advance of an idle task (T10).

    Attributes:
        positions: ``_pos`` of each.
        offsets: ``_offset`` of each.
        clocks: stream time with each.
        boundaries: with each, the smallest window end that is still open.
    """

    positions: I64
    offsets: I64
    clocks: I64
    boundaries: I64


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
        values = [name for name, _ in self.aggregates.schema]
        self._having = Having(spec.having, self.schema, values) if spec.having is not None else None
        self._read_between: frozenset[str] | None = None
        """What is computed of changes that others follow within a batch; None: everything."""
        if spec.is_folded:
            self._read_between = frozenset() if self._having is None else self._having.reads

    # EMIT FINAL

    def finals(self, timelines: Iterator[Timeline], closed: int, steps: Steps, counters: Counters) -> pl.DataFrame:
        """Return each window that closes: its end is open at ``closed`` and closed after the last step.

        Args:
            timelines: the records; of each group that has such a window, all from ``closed`` - d - 1 on that it may have taken.
            closed: the boundary before the first step.
            steps: the batch.
            counters: receives what is counted of the results.
        """
        parts = [self._final_rows(timeline, closed, steps, counters) for timeline in timelines]
        rows = pl.concat(parts) if parts else self.nothing.with_columns(pl.lit(0, pl.Int64).alias(FIRST))
        if len(parts) > 1:
            rows = rows.sort(WINDOW_END, FIRST)
        rows = rows.drop(FIRST)
        return rows if self._having is None else rows.filter(pl.Series(self._having.matches(rows)))

    def _final_rows(self, timeline: Timeline, closed: int, steps: Steps, counters: Counters) -> pl.DataFrame:
        windows = self._closing(timeline, closed, int(steps.boundaries[-1]))
        ranges = timeline.taken(windows)
        firsts = ranges.firsts
        windows = windows.of(ranges.owners[firsts])
        partials = RangeFold(self.aggregates, timeline.frame).fold(ranges)
        values, marks = self.aggregates.results(partials)
        marks.count(self._spec.name, counters)
        arrived = range_minima(timeline.arrivals, ranges.low, ranges.high)
        arrived = np.minimum.reduceat(arrived, firsts) if len(firsts) else arrived
        lasts = np.append(firsts[1:], len(ranges.owners))[: len(firsts)] - 1
        closing = np.searchsorted(steps.boundaries, windows.starts + self._difference, "right")
        order = np.lexsort((arrived, windows.starts))
        columns = [
            pl.Series(POS, steps.positions[closing]),
            pl.Series(TS, timeline.times[ranges.high[lasts] - 1]),
            pl.Series(OP, np.zeros(len(closing), np.int8)),
            pl.Series(OFFSET, steps.offsets[closing]),
            *self._keys(timeline, windows, ranges.low[firsts]),
            *values,
            pl.Series(FIRST, arrived, pl.Int64),
        ]
        return pl.DataFrame(columns)[order].select(*self.nothing.columns, FIRST)

    def _closing(self, timeline: Timeline, closed: int, boundary: int) -> Windows:
        """Return the windows that may exist and whose ends lie in ``closed..boundary-1``."""
        groups, starts = timeline.left()
        groups = np.concatenate([groups, timeline.groups])
        starts = np.concatenate([starts, timeline.times + 1])
        ends = starts + self._difference
        is_closing = (ends >= closed) & (ends < boundary)
        if TOLD in timeline.frame.columns:
            emitted = np.zeros(len(timeline.groups), np.int64)
            np.maximum.at(emitted, timeline.groups, timeline.frame[TOLD].fill_null(0).to_numpy())
            is_closing &= ends >= emitted[groups]
        return timeline.windows(groups[is_closing], starts[is_closing])

    # EMIT CHANGES

    def changes(self, timelines: Iterator[Timeline], closed: int, new: Arrivals, counters: Counters) -> pl.DataFrame:
        """Return one row per (record, window), or only the last one per window, with ``FIRST``.

        Args:
            timelines: see ``ChainMaker``.
            closed: the boundary before the batch.
            new: the batch's records.
            counters: receives what is counted of the results.
        """
        parts = [
            self._change_rows(timeline, chains, new, counters)
            for timeline in timelines
            for chains in ChainMaker(timeline, new, self._difference).chains(self.aggregates, closed)
        ]
        if not parts:
            return self.nothing.with_columns(pl.lit(0, pl.Int64).alias(FIRST))
        rows = pl.concat(parts)
        return rows[np.argsort(rows[_PLACE].to_numpy())].select(*self.nothing.columns, FIRST)

    def _change_rows(self, timeline: Timeline, chains: Chains, new: Arrivals, counters: Counters) -> pl.DataFrame:
        values, marks = self.aggregates.running(chains.partials, chains.groups, self._read_between)
        columns = [
            pl.Series(POS, new.positions[chains.records]),
            pl.Series(TS, chains.result_times[chains.emitted]),
            pl.Series(OFFSET, new.offsets[chains.records]),
            *self._keys(timeline, chains.windows, chains.windows.low),
            *(values_taken(column, chains.emitted) for column in values),
            pl.Series(FIRST, chains.first_arrivals),
            pl.Series(_PLACE, chains.places),
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

    def _keys(self, timeline: Timeline, windows: Windows, rows: I64) -> list[pl.Series]:
        """The group's hash and columns, from any row of its, and the windows' bounds."""
        own = timeline.frame.select(HASH, *self.group)[rows]
        group = [own[inner].alias(name) for inner, (name, _) in zip(self.group, self._spec.group, strict=True)]
        bounds = ((WINDOW_START, windows.starts), (WINDOW_END, windows.starts + self._difference))
        times = [pl.Series(name, ms * _US_PER_MS).cast(TIMESTAMP.polars) for name, ms in bounds]
        return [own[HASH].alias(KEY_HASH), *group, *times]
