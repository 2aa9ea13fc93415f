"""Open windows' partial results, as immutable sorted segments.

A run is a frame of partials with ``NODE`` (see ``window_grid``) and ``HASH`` (of the group), sorted by both, whose rows
merge whenever they meet. Where many wait, a run is several segments, which are apart by (node, group): those of the windows that close
first go first. A segment goes when the last window in it has closed; until then nothing of it is read, unless a change asks for its
rows by (node, group).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from engine.frames.clocks import I64, Bools
from engine.operators.windows.window_grid import MAX_WINDOW, node_ranges, node_windows
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.segment_list import Segment, SegmentList, taken
from engine.state.sorted.sorted_search import U64, are_shared, expand, lower_bound, pair_order, upper_bound
from engine.state.sorted.steps import merged_in_steps

NODE: Final = "_node"
HASH: Final = "_hash"

FEW_HASHES: Final = 16
"""Pairs per node from which on one search for each node is faster than a bisection of all pairs at once, which takes nineteen passes."""

Merge = Callable[[pl.DataFrame], pl.DataFrame]
"""Merges partials of the same node and group; the rows' order does not matter."""


class Ranges(NamedTuple):
    """Windows ``lows[i]`` to ``highs[i]``, both inclusive."""

    lows: I64
    highs: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSegment(Segment):
    """A manifest entry: its rows lie, by (node, hash), between the first and the last one.

    Attributes:
        last_window: the last window that any row stands for.
        min_node: node of the first row.
        min_hash: hash of the first row.
        max_node: node of the last row.
        max_hash: hash of the last row.
    """

    last_window: int
    min_node: int
    min_hash: int
    max_node: int
    max_hash: int

    def has_nodes(self, low: int, high: int) -> bool:
        """Whether it can hold any of the nodes ``low..high-1``."""
        return self.min_node < high and self.max_node >= low

    def within(self, nodes: I64, hashes: U64) -> Bools:
        """Say which of some (node, hash) pairs it can hold."""
        is_behind = (nodes > self.min_node) | ((nodes == self.min_node) & (hashes >= np.uint64(self.min_hash)))
        is_before = (nodes < self.max_node) | ((nodes == self.max_node) & (hashes <= np.uint64(self.max_hash)))
        found: Bools = is_behind & is_before
        return found


def window_segment(store: SegmentStore, run: pl.DataFrame) -> WindowSegment:
    """Save a sorted run and describe it."""
    nodes, hashes = run.get_column(NODE), run.get_column(HASH)
    return WindowSegment(
        segment=store.save(run),
        rows=run.height,
        last_window=int(node_windows(_distinct(nodes.to_numpy()))[1].max()),
        min_node=nodes.item(0),
        min_hash=hashes.item(0),
        max_node=nodes.item(-1),
        max_hash=hashes.item(-1),
    )


def sorted_run(partials: pl.DataFrame) -> pl.DataFrame:
    """Sort partials by node and group, as ``covering`` and ``matching`` need them."""
    if partials.height < 2:
        return partials
    return taken(partials, pair_order(partials[NODE].to_numpy(), partials[HASH].to_numpy(), is_merge=False))


def covering(run: pl.DataFrame, first: int, end: int, levels: int) -> list[pl.DataFrame]:
    """Slices of a run: the partials that belong to any of the windows ``first..end-1``."""
    nodes = run[NODE].to_numpy()
    slices = []
    for low, high in node_ranges(first, end, levels):
        start, stop = np.searchsorted(nodes, (low, high)).tolist()
        if stop > start:
            slices.append(run.slice(start, stop - start))
    return slices


def earliest(run: pl.DataFrame, first: int, levels: int) -> int | None:
    """The first window from ``first`` on that a partial of the run belongs to; None where there is none."""
    nodes = run[NODE].to_numpy()
    found = []
    for low, high in node_ranges(first, MAX_WINDOW, levels):
        place = int(np.searchsorted(nodes, low))
        if place < len(nodes) and nodes[place] < high:
            found.append(max(int(node_windows(nodes[place : place + 1])[0][0]), first))
    return min(found, default=None)


def matching(run: pl.DataFrame, nodes: I64, hashes: U64) -> pl.DataFrame:
    """The partials of these (node, group hash) pairs, which ascend and do not repeat."""
    own_nodes, own_hashes = run[NODE].to_numpy(), run[HASH].to_numpy()
    begins = np.flatnonzero(np.append(True, nodes[1:] != nodes[:-1])[: len(nodes)])
    low, high = (np.searchsorted(own_nodes, nodes[begins], side) for side in ("left", "right"))
    sizes = np.diff(np.append(begins, len(nodes)))
    if len(begins) * FEW_HASHES < len(nodes):
        ranges = zip(low.tolist(), high.tolist(), begins.tolist(), (begins + sizes).tolist(), strict=True)
        first = np.concatenate([start + np.searchsorted(own_hashes[start:stop], hashes[i:j]) for start, stop, i, j in ranges])
        high = np.repeat(high, sizes)
    else:
        low, high = np.repeat(low, sizes), np.repeat(high, sizes)
        first = lower_bound(own_hashes, hashes, low, high)
    found = np.flatnonzero(first < high)
    found = found[own_hashes[first[found]] == hashes[found]]
    first, high, last = first[found], high[found], first[found] + 1
    longer = np.flatnonzero(last < high)
    longer = longer[own_hashes[last[longer]] == hashes[found[longer]]]
    last[longer] = upper_bound(own_hashes, hashes[found[longer]], last[longer], high[longer])
    return taken(run, expand(first, last)) if len(found) else run.clear()


class WindowStore:
    """The segments of one operator.

    Args:
        store: where segments live.
        merge: see ``Merge``.
        levels: ``WindowGrid.levels``.
        state: what ``snapshot`` returned, or None.
    """

    def __init__(self, store: SegmentStore, merge: Merge, levels: int, state: list[dict[str, Any]] | None) -> None:
        self._store = store
        self._merge = merge
        self._levels = levels
        self._segments = SegmentList(WindowSegment, store, state)
        self._runs: dict[str, Ranges] = {}

    @property
    def rows(self) -> int:
        """Partials held, those of closed windows in shared segments included."""
        return self._segments.rows

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the manifest and tell the store what it no longer names."""
        return self._segments.snapshot()

    def covering(self, first: int, end: int) -> list[pl.DataFrame]:
        """Partials of the windows ``first..end-1``, older segments first."""
        return [
            part
            for segment in self._meeting(first, end)
            for part in covering(self._segments.load(segment), first, end, self._levels)
        ]

    def matching(self, nodes: I64, hashes: U64) -> list[pl.DataFrame]:
        """Partials of these (node, group hash) pairs, older segments first."""
        nodes, hashes = _distinct_pairs(nodes, hashes)
        found = []
        for segment in self._segments:
            is_asked = segment.within(nodes, hashes)
            if is_asked.any():
                found.append(matching(self._segments.load(segment), nodes[is_asked], hashes[is_asked]))
        return [part for part in found if not part.is_empty()]

    def earliest(self, first: int) -> int | None:
        """The first window from ``first`` on that some partial belongs to; None where there is none."""
        found = [earliest(self._segments.load(segment), first, self._levels) for segment in self._meeting(first, MAX_WINDOW)]
        return min((window for window in found if window is not None), default=None)

    def _meeting(self, first: int, end: int) -> list[WindowSegment]:
        """Return the segments that can hold partials of the windows ``first..end-1``."""
        ranges = node_ranges(first, end, self._levels)
        return [
            segment
            for segment in self._segments
            if segment.last_window >= first and any(segment.has_nodes(low, high) for low, high in ranges)
        ]

    def open_windows(self, first: int) -> Ranges:
        """Ranges of windows from ``first`` on that have partials, ascending and apart. Reads each segment once in its life."""
        known = self._runs
        self._runs = {
            segment.segment: known[segment.segment] if segment.segment in known else _windows_in(self._segments.load(segment))
            for segment in self._segments
        }
        if not self._runs:
            return Ranges(np.empty(0, np.int64), np.empty(0, np.int64))
        lows, highs = (np.concatenate(parts) for parts in zip(*self._runs.values(), strict=True))
        return _united(lows, highs, first=first)

    def append(self, run: pl.DataFrame, first_open: int) -> None:
        """Add a sorted run and forget every window before ``first_open``."""
        self._segments.drop(lambda segment: segment.last_window < first_open)
        run = _still_open(run, first_open)
        if not run.is_empty():
            self._segments.append(run.height, lambda old, _: self._run(old, run, first_open))

    def _run(self, old: list[WindowSegment], new: pl.DataFrame, first_open: int) -> Iterator[WindowSegment]:
        """Save what is new, merged with older segments step by step."""

        def merged(slices: list[pl.DataFrame]) -> pl.DataFrame:
            return self._merged(pl.concat([_still_open(part, first_open) for part in slices], how="diagonal"))

        parts = [*map(self._segments.load, old), new]
        runs = merged_in_steps(parts, (NODE, HASH), self._segments.step_rows, merged) if old else [new]
        for run in runs:
            yield window_segment(self._store, run)

    def _merged(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Merge the rows of a few runs into one. Most rows that wait long meet no other: only those that do go through ``Merge``."""
        nodes, hashes = partials[NODE].to_numpy(), partials[HASH].to_numpy()
        rows = pair_order(nodes, hashes, is_merge=True)
        is_shared = are_shared(nodes[rows], hashes[rows])
        alone = taken(partials, rows[~is_shared])
        if not is_shared.any():
            return alone
        return sorted_run(pl.concat([alone, self._merge(taken(partials, rows[is_shared]))], how="diagonal"))


def _windows_in(run: pl.DataFrame) -> Ranges:
    return _united(*node_windows(_distinct(run[NODE].to_numpy())), first=0)


def _distinct(nodes: I64) -> I64:
    """Return sorted nodes, each once."""
    return nodes[_starts(nodes)]


def _distinct_pairs(nodes: I64, hashes: U64) -> tuple[I64, U64]:
    """Return the distinct pairs, ascending."""
    order = pair_order(nodes, hashes, is_merge=False)
    nodes, hashes = nodes[order], hashes[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (nodes[1:] != nodes[:-1]) | (hashes[1:] != hashes[:-1])
    return nodes[is_first], hashes[is_first]


def _starts(nodes: I64) -> I64:
    return np.flatnonzero(np.append(True, nodes[1:] != nodes[:-1])[: len(nodes)])


def _united(lows: I64, highs: I64, *, first: int) -> Ranges:
    """Unite ranges that meet or touch, and cut off what is before ``first``."""
    is_open = highs >= first
    lows, highs = np.maximum(lows[is_open], first), highs[is_open]
    order = np.argsort(lows, kind="stable")
    lows, reached = lows[order], np.maximum.accumulate(highs[order])
    is_apart = np.append([True], lows[1:] > reached[:-1] + 1)[: len(lows)]
    return Ranges(lows[is_apart], reached[np.append(is_apart[1:], [True])[: len(lows)]])


def _still_open(run: pl.DataFrame, first_open: int) -> pl.DataFrame:
    nodes = run[NODE].to_numpy()
    starts = _starts(nodes)
    is_open = node_windows(nodes[starts])[1] >= first_open
    return run if is_open.all() else run.filter(pl.Series(np.repeat(is_open, np.diff(np.append(starts, len(nodes))))))
