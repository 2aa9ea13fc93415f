"""Arithmetic of tumbling and hopping windows (W2, STRICT 15): numbers only, no records, no state.

A window is known by its number: window ``w`` is ``[w·advance, w·advance + size)``, and tumbling is hopping with advance = size. A
record belongs to a run of consecutive windows, which can be thousands; so partial results are not kept per window but per
*node* of the binary tree over window numbers: node ``(level, i)`` stands for the windows ``[i·2^level, (i+1)·2^level)``. Any
run of n windows is the disjoint union of at most 2·log2(n) nodes, and a window's result is the merge of the log2(n) nodes
above it. Tumbling windows are their own nodes of level 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.frames.clocks import LAST_EVENT_TIME_MS

Int64s = NDArray[np.int64]

MAX_EXPANSION: Final = 1 << 20
"""Rows made at once when records or partials are spread over their windows: bounds memory at thousands of windows per record."""

OUT_OF_RANGE: Final = "window_out_of_range"
"""Why a record is late for a window that would end later than any record may be (T8)."""

_LEVEL_SHIFT: Final = 52
"""A node is ``level << 52 | i``: window numbers stay below 2^48, the milliseconds to the year 9999."""

MAX_WINDOW: Final = 1 << 48
"""Above every window number."""

_INDEX_MASK: Final = (1 << _LEVEL_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """Tumbling or hopping windows and when they close."""

    size_ms: int
    advance_ms: int
    grace_ms: int

    @property
    def windows_per_record(self) -> int:
        """How many windows a record belongs to at most."""
        return -(-self.size_ms // self.advance_ms)

    @property
    def levels(self) -> int:
        """How many levels of nodes there are."""
        return self.windows_per_record.bit_length()

    @property
    def last_window(self) -> int:
        """The last window that takes records: one behind it would end later than any record may be (T8)."""
        return (LAST_EVENT_TIME_MS - self.size_ms) // self.advance_ms

    def windows_of(self, times: Int64s) -> tuple[Int64s, Int64s]:
        """First and last window of each event time, also behind ``last_window``; starts are never negative. First > last: in none."""
        return np.maximum((times - self.size_ms) // self.advance_ms + 1, 0), times // self.advance_ms

    def first_open(self, stream_times: Int64s) -> Int64s:
        """The first window that is not closed at each stream time: every window before it is."""
        return np.maximum((stream_times - self.size_ms - self.grace_ms) // self.advance_ms + 1, 0)

    def closing_times(self, windows: Int64s) -> Int64s:
        """The stream time from which each window is closed."""
        return windows * self.advance_ms + (self.size_ms + self.grace_ms)

    def nodes(self, first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
        """Cut runs of windows ``first..last`` into nodes.

        Returns:
            For each node, the index of its run and the node.
        """
        row = np.arange(len(first))
        low, high = first, last + 1
        rows: list[Int64s] = []
        nodes: list[Int64s] = []
        for level in range(self.levels):
            tag = level << _LEVEL_SHIFT
            is_left = (low & 1 == 1) & (low < high)
            rows.append(row[is_left])
            nodes.append(low[is_left] | tag)
            low = low + is_left
            is_right = (high & 1 == 1) & (low < high)
            rows.append(row[is_right])
            nodes.append((high[is_right] - 1) | tag)
            low, high = low >> 1, (high - is_right) >> 1
        return np.concatenate(rows), np.concatenate(nodes)


def node_windows(nodes: Int64s) -> tuple[Int64s, Int64s]:
    """First and last window that each node stands for."""
    levels, indexes = nodes >> _LEVEL_SHIFT, nodes & _INDEX_MASK
    return indexes << levels, ((indexes + 1) << levels) - 1


def node_ranges(first: int, end: int, levels: int) -> list[tuple[int, int]]:
    """Per level, the half-open range of nodes that meet the windows ``first..end-1``; nodes sort by level, then place."""
    shifted = [(level, level << _LEVEL_SHIFT) for level in range(levels)]
    return [(tag | (first >> level), (tag | ((end - 1) >> level)) + 1) for level, tag in shifted]


def expand(first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
    """List every number of the runs ``first..last``: the index of its run and the number, runs in order, numbers ascending."""
    counts = np.maximum(last - first + 1, 0)
    rows = np.repeat(np.arange(len(first)), counts)
    ends = np.cumsum(counts)
    return rows, np.arange(len(rows)) - (ends - counts)[rows] + first[rows]
