"""Open windows' partial results, as immutable sorted segments.

A run is a frame of partials with ``NODE`` (see ``window_grid``) and ``HASH`` (of the group), sorted by both, whose rows
merge whenever they meet. Appending writes one segment; neighbours are merged as in ``segments``, so there are few and a row is
rewritten logarithmically often. A segment goes when the last window in it has closed; until then nothing of it is read, unless
a change asks for its rows by (node, group).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.core.clocks import I64
from engine.core.ports import SegmentStore
from engine.core.structures.segments import merge_start
from engine.core.windows.window_grid import MAX_WINDOW, expand, node_ranges, node_windows

NODE: Final = "_node"
HASH: Final = "_hash"

Merge = Callable[[pl.DataFrame], pl.DataFrame]
"""Merges partials of the same node and group; the rows' order does not matter."""


class Ranges(NamedTuple):
    """Windows ``lows[i]`` to ``highs[i]``, both inclusive."""

    lows: I64
    highs: I64


class _Segment(NamedTuple):
    """``last_window`` is the last window any row of it stands for."""

    segment: str
    rows: int
    last_window: int


def sorted_run(partials: pl.DataFrame) -> pl.DataFrame:
    """Sort partials by node and group, as ``covering`` and ``matching`` need them."""
    return partials.sort(NODE, HASH) if partials.height > 1 else partials


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


def matching(run: pl.DataFrame, nodes: NDArray[np.int64], hashes: NDArray[np.uint64]) -> pl.DataFrame:
    """The partials of these (node, group hash) pairs, which must not repeat."""
    own_nodes, own_hashes = run[NODE].to_numpy(), run[HASH].to_numpy()
    starts, stops = (np.searchsorted(own_nodes, nodes, side) for side in ("left", "right"))
    first = _bisect(own_hashes, hashes, starts, stops, is_right=False)
    last = _bisect(own_hashes, hashes, first, stops, is_right=True) - 1
    rows, places = expand(first, last)
    return run[places] if len(rows) else run.clear()


def _bisect(
    values: NDArray[np.uint64], wanted: NDArray[np.uint64], low: NDArray[np.int64], high: NDArray[np.int64], *, is_right: bool
) -> NDArray[np.int64]:
    """``searchsorted`` of each wanted value in its own slice ``low..high`` of ``values``, all slices at once."""
    while (active := low < high).any():
        middle = (low + high) >> 1
        found = values[np.where(active, middle, 0)]
        goes_up = active & ((found <= wanted) if is_right else (found < wanted))
        low = np.where(goes_up, middle + 1, low)
        high = np.where(active & ~goes_up, middle, high)
    return low


class WindowStore:
    """The segments of one operator.

    Args:
        store: where segments live.
        merge: see ``Merge``.
        levels: ``WindowGrid.levels``.
        state: what ``manifest`` returned, or None.
    """

    def __init__(self, store: SegmentStore, merge: Merge, levels: int, state: list[dict[str, Any]] | None) -> None:
        self._store = store
        self._merge = merge
        self._levels = levels
        self._segments = [_Segment(**entry) for entry in state or []]
        self._released: list[str] = []
        self._runs: dict[str, Ranges] = {}

    @property
    def rows(self) -> int:
        """Partials held, those of closed windows in shared segments included."""
        return sum(segment.rows for segment in self._segments)

    def manifest(self) -> list[dict[str, Any]]:
        """The state as JSON-able values, all segments durable; tells the store what it no longer names."""
        if self._released:
            self._store.release(self._released)
            self._released = []
        return [segment._asdict() for segment in self._segments]

    def covering(self, first: int, end: int) -> list[pl.DataFrame]:
        """Partials of the windows ``first..end-1``, older segments first."""
        held = [segment for segment in self._segments if segment.last_window >= first]
        return [part for segment in held for part in covering(self._store.load(segment.segment), first, end, self._levels)]

    def matching(self, nodes: NDArray[np.int64], hashes: NDArray[np.uint64]) -> list[pl.DataFrame]:
        """Partials of these distinct (node, group hash) pairs, older segments first."""
        found = [matching(self._store.load(segment.segment), nodes, hashes) for segment in self._segments]
        return [part for part in found if not part.is_empty()]

    def earliest(self, first: int) -> int | None:
        """The first window from ``first`` on that some partial belongs to; None where there is none."""
        held = [segment for segment in self._segments if segment.last_window >= first]
        found = [earliest(self._store.load(segment.segment), first, self._levels) for segment in held]
        return min((window for window in found if window is not None), default=None)

    def open_windows(self, first: int) -> Ranges:
        """Ranges of windows from ``first`` on that have partials, ascending and apart. Reads each segment once in its life."""
        known = self._runs
        self._runs = {
            name: known[name] if name in known else _windows_in(self._store.load(name)) for name, _, _ in self._segments
        }
        if not self._runs:
            return Ranges(np.empty(0, np.int64), np.empty(0, np.int64))
        lows, highs = (np.concatenate(parts) for parts in zip(*self._runs.values(), strict=True))
        return _united(lows, highs, first=first)

    def append(self, run: pl.DataFrame, first_open: int) -> None:
        """Add a sorted run and forget every window before ``first_open``."""
        self._keep([segment for segment in self._segments if segment.last_window >= first_open])
        run = _still_open(run, first_open)
        if run.is_empty():
            return
        start = merge_start([*(segment.rows for segment in self._segments), run.height])
        if start < len(self._segments):
            older = [_still_open(self._store.load(segment.segment), first_open) for segment in self._segments[start:]]
            run = sorted_run(self._merge(pl.concat([*older, run], how="diagonal")))
        saved = _Segment(self._store.save(run), run.height, int(node_windows(run[NODE].to_numpy())[1].max()))
        self._keep([*self._segments[:start], saved])

    def _keep(self, segments: list[_Segment]) -> None:
        self._released += [segment.segment for segment in self._segments if segment not in segments]
        self._segments = segments


def _windows_in(run: pl.DataFrame) -> Ranges:
    return _united(*node_windows(np.unique(run[NODE].to_numpy())), first=0)


def _united(lows: I64, highs: I64, *, first: int) -> Ranges:
    """Unite ranges that meet or touch, and cut off what is before ``first``."""
    is_open = highs >= first
    lows, highs = np.maximum(lows[is_open], first), highs[is_open]
    order = np.argsort(lows, kind="stable")
    lows, reached = lows[order], np.maximum.accumulate(highs[order])
    is_apart = np.append([True], lows[1:] > reached[:-1] + 1)[: len(lows)]
    return Ranges(lows[is_apart], reached[np.append(is_apart[1:], [True])[: len(lows)]])


def _still_open(run: pl.DataFrame, first_open: int) -> pl.DataFrame:
    is_open = node_windows(run[NODE].to_numpy())[1] >= first_open
    return run if is_open.all() else run.filter(pl.Series(is_open))
