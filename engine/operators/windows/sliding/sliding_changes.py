"""Changes of sliding windows: which records change which windows, and the rows behind each change (W6, STRICT 4).

The changes of a window are the running results over its *chain*: the fold of the older records, then the batch's records in the
order of arrival. A window is announced in the middle of its chain when it was declared there, and by a record that is not in
it when it is the one behind that record. Windows are handled in bounded numbers. Knows partials only as columns to fold and to gather.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from engine.frames.clocks import I64, Bools
from engine.frames.frames import TS
from engine.operators.aggregation.aggregate import Aggregates
from engine.operators.windows.sliding.sliding_fold import RangeFold, Ranges, bounded, range_minima
from engine.operators.windows.sliding.sliding_windows import NEVER, Timeline, Windows
from engine.state.sorted.running import Groups
from engine.state.sorted.sorted_search import expand

_OWNER: Final = "_owner"

_WINDOW_BITS, _CLASS_BITS = 31, 2
"""How an emission's place in the batch is coded: record, class within the record, window."""


class Arrivals(NamedTuple):
    """The batch's accepted records, in order.

    Attributes:
        first: number of arrival of the first one; the others follow.
        times: event times.
        places: ``_pos``, ``_offset`` and ``_rank`` of each.
    """

    first: int
    times: I64
    places: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Chains:
    """The chains of some windows, and what is emitted of them.

    Attributes:
        partials: by window and arrival.
        groups: which rows of ``partials`` belong to one window.
        result_times: W7, after each row.
        emitted: row whose value each emission shows.
        windows: the window of each emission.
        firsts: the earliest-arrived row of the timeline in the window of each emission.
        records: the record, counted from 0 in the batch, that caused each emission.
        is_new: whether the emission announces its window.
        places: ascend in the order of emission (STRICT 4), over all chains of a batch.
    """

    partials: pl.DataFrame
    groups: Groups
    result_times: I64
    emitted: I64
    windows: Windows
    firsts: I64
    records: I64
    is_new: Bools
    places: I64


@dataclass(frozen=True, slots=True)
class _Part:
    """Some windows of a timeline that the batch changes.

    Attributes:
        windows: the windows.
        numbers: their numbers in the timeline, ascending.
        declared: arrival at which each was declared.
        is_right: whether each was declared by the record just before it, in this batch.
        low: first of the batch's rows in each.
        high: first of the batch's rows behind each.
    """

    windows: Windows
    numbers: I64
    declared: I64
    is_right: Bools
    low: I64
    high: I64


class ChainMaker:
    """Makes the chains of a timeline.

    Args:
        timeline: of each group with new records, all that share a window with them or declare one.
        new: the batch's records.
        difference: d.
    """

    def __init__(self, timeline: Timeline, new: Arrivals, difference: int) -> None:
        self._timeline = timeline
        self._new = new
        self._difference = difference
        is_new = timeline.boundaries >= 0
        self._rows = np.flatnonzero(is_new)
        self._old = timeline.frame.filter(pl.Series(~is_new))
        self._new_before = np.append(0, np.cumsum(is_new))

    def chains(self, aggregates: Aggregates, closed: int) -> Iterator[Chains]:
        """Make the chains of every window that changes.

        Args:
            aggregates: whose partials the timeline has.
            closed: the boundary before the batch.
        """
        fold = RangeFold(aggregates, self._old)
        for part in self._parts(closed):
            yield self._chains(part, self._bases(part, fold), fold.names)

    def _parts(self, closed: int) -> Iterator[_Part]:
        """Find the windows that the batch may change."""
        windows = self._timeline.declared()
        declared, announcers = self._timeline.declarations(windows), self._timeline.announcers(windows)
        is_declared = declared < NEVER
        is_right = is_declared & (declared == announcers) & (declared >= self._new.first)
        low, high = self._new_before[windows.low], self._new_before[windows.high]
        is_open = windows.starts + self._difference >= closed
        chosen = np.flatnonzero(is_declared & is_open & (is_right | (low < high)))
        for start, stop in bounded((high - low)[chosen] + 2):
            own = chosen[start:stop]
            yield _Part(windows.of(own), own, declared[own], is_right[own], low[own], high[own])

    def _bases(self, part: _Part, fold: RangeFold) -> pl.DataFrame:
        """Fold each window's older records: partials with ``_OWNER`` and ``TS``."""
        low = part.windows.low - part.low
        high = part.windows.high - part.high
        owners = np.flatnonzero(low < high)
        times = self._old[TS].to_numpy()[high[owners] - 1]
        partials = fold.fold(Ranges(owners, low[owners], high[owners]))
        return partials.with_columns(pl.Series(_OWNER, owners, pl.Int64), pl.Series(TS, times, pl.Int64))

    def _chains(self, part: _Part, bases: pl.DataFrame, names: list[str]) -> Chains:
        timeline, ends = self._timeline, part.windows.starts + self._difference
        pairs = np.repeat(np.arange(len(ends)), part.high - part.low)
        rows = self._rows[expand(part.low, part.high)]
        is_open = timeline.boundaries[rows] <= ends[pairs]
        pairs, rows = pairs[is_open], rows[is_open]
        right = np.flatnonzero(part.is_right)
        owners = np.concatenate([bases[_OWNER].to_numpy(), pairs, right])
        arrivals = np.concatenate([timeline.arrivals[rows], part.declared[right]]) - self._new.first
        arrivals = np.append(np.full(bases.height, -1), arrivals)
        order = np.argsort(owners * (len(self._new.times) + 1) + arrivals)
        owners, arrivals = owners[order], arrivals[order]
        is_member = order < bases.height + len(pairs)
        added = timeline.frame.select(TS, *names)[rows]
        members = pl.concat([bases.drop(_OWNER), added], how="diagonal")[order[is_member]]
        groups = Groups.of(pl.DataFrame(pl.Series(_OWNER, owners[is_member])))
        starts = part.windows.starts[owners[is_member]]
        declared = part.declared[owners] - self._new.first
        emitted = np.flatnonzero((arrivals >= 0) & (declared <= arrivals))
        own, records, is_new = owners[emitted], arrivals[emitted], (declared == arrivals)[emitted]
        first = range_minima(timeline.arrivals, part.windows.low, part.windows.high)
        return Chains(
            members.drop(TS),
            groups,
            groups.maxima(members[TS].to_numpy() - starts) + starts,
            (np.cumsum(is_member) - 1)[emitted],
            part.windows.of(own),
            timeline.row_of(first)[own],
            records,
            is_new,
            self._places(part, own, records, is_new, ~is_member[emitted]),
        )

    def _places(self, part: _Part, owners: I64, records: I64, is_new: Bools, is_right: Bools) -> I64:
        """Number the emissions in their order (STRICT 4).

        In a record usually the existing windows by descending start, then the new ones that hold the record by descending start,
        then the one behind it. Of a record before ``difference``: existing ones by ascending start, the new one behind the record,
        the other new one, and ``[0, difference]`` last, be it new or not.
        """
        is_early = self._new.times[records] < self._difference
        is_from_zero = part.windows.starts[owners] == 0
        usual = np.where(is_right, 2, np.where(is_new, 1, 0))
        early = np.where(is_from_zero, 3, np.where(is_right, 1, np.where(is_new, 2, 0)))
        windows = part.numbers[owners]
        in_class = np.where(is_early, windows, (1 << _WINDOW_BITS) - 1 - windows)
        in_record = np.where(is_early, early, usual) << _WINDOW_BITS | in_class
        return records << (_WINDOW_BITS + _CLASS_BITS) | in_record
