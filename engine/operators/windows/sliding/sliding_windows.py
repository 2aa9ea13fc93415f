"""Which sliding windows some records declare, and which records lie in each (W4, STRICT 19): arrays only, no aggregates.

Each record at t declares the window that ends at t (or ``[0, difference]`` if it is early), and, once a record lies in it, the window
that starts at t + 1. A window exists if it was open when that became true, and takes what arrives while it is open. Whether it was
open is a comparison of its end with the *boundary* at that record: the smallest window end that was open then, which never
falls. So all of it follows from the records' times, arrivals and boundaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.frames.clocks import I64, LAST_EVENT_TIME_MS
from engine.frames.frames import TS
from engine.operators.windows.sliding.sliding_fold import MAX_ROWS, Ranges, bounded, range_minima
from engine.operators.windows.sliding.sliding_store import HASH, SEQ
from engine.state.sorted.running import Groups
from engine.state.sorted.sorted_search import expand

BOUNDARY: Final = "_boundary"
"""Of a record of this batch, the boundary when it was accepted; null of an older one."""

NEVER: Final = 1 << 62
"""Above every arrival."""

_MAX_CODE: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Windows:
    """Distinct windows of a timeline, by (group, start).

    Attributes:
        groups: each one's group.
        starts: each one's first time.
        low: first row of the timeline inside.
        high: first row behind it; ``low == high``: no record lies in it.
    """

    groups: I64
    starts: I64
    low: I64
    high: I64

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, chosen: I64 | NDArray[np.bool_] | slice) -> Windows:
        return Windows(self.groups[chosen], self.starts[chosen], self.low[chosen], self.high[chosen])


class Timeline:
    """Records of some groups, sorted by (group, time, arrival).

    Args:
        frame: the records.
        groups: number of each one's group, ascending from 0.
        difference: d.

    Attributes:
        times: event times.
        arrivals: numbers of arrival, unique.
        boundaries: ``BOUNDARY``, below all times where it is null.
    """

    def __init__(self, frame: pl.DataFrame, groups: I64, difference: int) -> None:
        self.frame = frame
        self.groups = groups
        self.times: I64 = frame[TS].to_numpy()
        self.arrivals: I64 = frame[SEQ].to_numpy()
        self.boundaries: I64 = frame[BOUNDARY].fill_null(-1).to_numpy()
        self._difference = difference
        self._base = int(self.times.min()) - difference - 1
        self._stride = _stride(self.times, difference)
        self._codes = self._code(groups, self.times)

    def windows(self, groups: I64, starts: I64) -> Windows:
        """Return distinct windows, without those that would end too late to be (T8)."""
        is_within = starts <= LAST_EVENT_TIME_MS - self._difference
        codes = np.sort(self._code(groups[is_within], starts[is_within]))
        codes = codes[np.append(np.ones(len(codes[:1]), np.bool_), codes[1:] != codes[:-1])]
        groups, starts = codes // self._stride, codes % self._stride + self._base
        low = np.searchsorted(self._codes, codes)
        return Windows(groups, starts, low, np.searchsorted(self._codes, codes + (self._difference + 1)))

    def declared(self) -> Windows:
        """Return every window that the records might declare: all left and right ones."""
        starts = np.concatenate([np.maximum(self.times - self._difference, 0), self.times + 1])
        return self.windows(np.tile(self.groups, 2), starts)

    def declarations(self, windows: Windows) -> I64:
        """Return the arrival at which each window was declared, open or not; ``NEVER`` where it has not been."""
        is_empty = windows.low == windows.high
        first = np.full(len(windows), NEVER)
        first[~is_empty] = range_minima(self.arrivals, windows.low[~is_empty], windows.high[~is_empty])
        left = self._arrival_at(windows.groups, windows.starts + self._difference)
        left[windows.starts == 0] = first[windows.starts == 0]
        declared: I64 = np.minimum(left, np.maximum(self.announcers(windows), first))
        return declared

    def announcers(self, windows: Windows) -> I64:
        """Return the first arrival at the time just before each window; ``NEVER`` where there is none."""
        return self._arrival_at(windows.groups, windows.starts - 1)

    def row_of(self, arrivals: I64) -> I64:
        """Return the rows that have these arrivals."""
        order = np.argsort(self.arrivals)
        rows: I64 = order[np.searchsorted(self.arrivals[order], arrivals)]
        return rows

    def left(self) -> tuple[I64, I64]:
        """Return groups and starts of the left windows that were open when their records were accepted."""
        is_open = self.boundaries <= np.maximum(self.times, self._difference)
        return self.groups[is_open], np.maximum(self.times[is_open] - self._difference, 0)

    def taken(self, windows: Windows) -> Ranges:
        """Return what each window took while it was open; an owner is the window's place. Windows that took nothing are left out."""
        ends = windows.starts + self._difference
        stragglers = np.flatnonzero(self.boundaries > self.times)
        parts = []
        first, last = np.searchsorted(stragglers, windows.low), np.searchsorted(stragglers, windows.high)
        for start, stop in bounded(last - first + 1):
            owners = np.repeat(np.arange(start, stop), (last - first)[start:stop])
            rows = stragglers[expand(first[start:stop], last[start:stop])]
            is_refused = self.boundaries[rows] > ends[owners]
            parts.append(_without(windows, start, stop, owners[is_refused], rows[is_refused]))
        if len(parts) == 1:
            return parts[0]
        none = np.empty(0, np.int64)
        columns = zip(*((part.owners, part.low, part.high) for part in parts), strict=True)
        return Ranges(*map(np.concatenate, columns)) if parts else Ranges(none, none, none)

    def _arrival_at(self, groups: I64, times: I64) -> I64:
        """Return the first arrival of each group at exactly that time, or ``NEVER``."""
        codes = self._code(groups, times)
        rows = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        arrivals: I64 = np.where(self._codes[rows] == codes, self.arrivals[rows], NEVER)
        return arrivals

    def _code(self, groups: I64, times: I64) -> I64:
        return groups * self._stride + (times - self._base)


def _stride(times: I64, difference: int) -> int:
    """Numbers between two groups' codes: room for every time that is looked for."""
    return int(times.max()) - int(times.min()) + 3 * difference + 8


def _without(windows: Windows, start: int, stop: int, owners: I64, rows: I64) -> Ranges:
    """Return the rows of the windows ``start..stop-1`` but ``rows``, which belong to ``owners``; both ascend together."""
    own = np.arange(start, stop)
    low, high = windows.low[start:stop], windows.high[start:stop]
    if len(rows):
        own = np.concatenate([own, owners])
        by_low = np.lexsort((low := np.concatenate([low, rows + 1]), own))
        by_high = np.lexsort((high := np.concatenate([high, rows]), own))
        own, low, high = own[by_low], low[by_low], high[by_high]
    is_some = low < high
    return Ranges(own[is_some], low[is_some], high[is_some])


def timelines(records: pl.DataFrame, group: Sequence[str], difference: int) -> Iterator[Timeline]:
    """Sort records and cut them between groups, so that no timeline is too large for memory or for its codes.

    Args:
        records: ``HASH``, the group's columns, ``TS``, ``SEQ``, ``BOUNDARY`` and partials, in any order.
        group: the group's columns.
        difference: d.
    """
    records = records.sort(HASH, TS, SEQ)
    groups = Groups.of(records.select(HASH, *group))
    if len(np.unique(groups.firsts)) != records[HASH].n_unique():  # groups share a hash
        records = records.sort(HASH, *group, TS, SEQ)
        groups = Groups.of(records.select(HASH, *group))
    most_groups = max(_MAX_CODE // _stride(records[TS].to_numpy(), difference) - 1, 1)
    firsts = np.append(np.unique(groups.firsts), records.height)
    start = 0
    while start < len(firsts) - 1:
        stop = int(np.searchsorted(firsts, firsts[start] + MAX_ROWS, "right")) - 1
        stop = max(min(stop, start + most_groups), start + 1)
        low, high = int(firsts[start]), int(firsts[stop])
        yield Timeline(records.slice(low, high - low), groups.ids[low:high] - start, difference)
        start = stop
