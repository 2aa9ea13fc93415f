"""The other state structure: rows waiting, by time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from engine.core.clocks import I64
from engine.core.frames import TS
from engine.core.ports import SegmentStore
from engine.core.structures.segments import MERGED_AT_ONCE, Segment, Segments, taken

LEAST_KEPT: Final = 4
"""A segment that lies apart from all others in time stays as it is when its run is merged, if it has this part of a step's rows."""

SAMPLES: Final = 512
"""Rows of each step that are looked at to find where a merge is cut."""


class TimeQueue(Segments):
    """Rows waiting, by (``_ts``, arrival); arrival is the order of appending.

    Args:
        store: where segments live.
        state: what ``snapshot`` returned, or None.
        step_rows: how many are merged at once, and so held in memory; more make several segments of one run.
    """

    def __init__(self, store: SegmentStore, state: list[dict[str, Any]] | None, *, step_rows: int = MERGED_AT_ONCE) -> None:
        super().__init__(store, state)
        self._step_rows = step_rows

    def append(self, frame: pl.DataFrame) -> None:
        """Add rows, sorted by ``_ts`` and then arrival, that arrived after all before."""
        if frame.height:
            self._append(frame, lambda old, _: self._merged(old, frame))

    def take(self, until: int) -> list[pl.DataFrame]:
        """Remove and return all rows with ``_ts <= until``: sorted parts, earlier arrivals first at equal times."""
        parts: list[pl.DataFrame] = []
        held: list[Segment] = []
        is_headless = False
        for segment in self._held:
            is_headless &= segment.is_continued
            rest = segment
            if segment.min_ts <= until:
                frame = self._live(segment)
                times = frame.get_column(TS).to_numpy()
                count = int(np.searchsorted(times, until, "right"))
                parts.append(frame[:count])
                rest = _shortened(segment, count, times)
            if rest.consumed < rest.rows:
                held.append(replace(rest, is_continued=rest.is_continued and not is_headless))
                is_headless = False
            else:
                self._released.append(rest.segment)
                is_headless |= not rest.is_continued
        self._held = held
        return [part for part in parts if part.height]

    def _save(self, frame: pl.DataFrame) -> Segment:
        times = frame.get_column(TS)
        return Segment(self._store.save(frame), frame.height, int(times.item(0)), int(times.item(-1)))

    def _merged(self, old: list[Segment], new: pl.DataFrame) -> Iterator[pl.DataFrame | Segment]:
        """Merge segments in steps of bounded size, by time; large ones that lie apart from all others need no merging.

        So what comes in the order of time, or nearly, is hardly rewritten, however much waits.
        """
        times = new.get_column(TS)
        ranges = [_Range(segment.min_ts, place, segment.max_ts) for place, segment in enumerate(old)]
        pending: list[int] = []
        for group in _apart([*ranges, _Range(int(times.item(0)), len(old), int(times.item(-1)))]):
            segment = old[group[0]] if len(group) == 1 and group[0] < len(old) else None
            if segment is None or segment.left * LEAST_KEPT < self._step_rows or segment.left < segment.consumed:
                pending += group
                continue
            yield from self._steps(old, new, pending)
            yield segment
            pending = []
        yield from self._steps(old, new, pending)

    def _steps(self, old: list[Segment], new: pl.DataFrame, places: list[int]) -> Iterator[pl.DataFrame]:
        """Merge some of the segments; the place behind the last is that of the new rows."""
        parts = [new if place == len(old) else self._live(old[place]) for place in sorted(places)]
        times = [part.get_column(TS).to_numpy() for part in parts]
        cuts = [[0] * len(parts), *_cuts(times, self._step_rows), [part.height for part in parts]]
        for starts, stops in pairwise(cuts):
            slices = [part[start:stop] for part, start, stop in zip(parts, starts, stops, strict=True) if start < stop]
            if slices:
                yield _by_time(slices)


class _Range(NamedTuple):
    """Event times of a segment, and its place by arrival."""

    low: int
    place: int
    high: int


def _apart(ranges: list[_Range]) -> Iterator[list[int]]:
    """Yield the places of segments in groups, by time: no row of a group belongs before one of the groups in front of it."""
    group: list[int] = []
    reached = newest = 0
    for low, place, high in sorted(ranges):
        if group and (low > reached or (low == reached and place > newest)):
            yield group
            group = []
        reached = max(reached, high) if group else high
        newest = max(newest, place) if group else place
        group.append(place)
    yield group


def _cuts(times: list[I64], step_rows: int) -> Iterator[list[int]]:
    """Cut sorted parts at the same places of their merged order, into steps of about so many rows.

    Yields:
        For each cut the number of rows of each part before it. Rows of equal times are parted by arrival.
    """
    steps = -(-sum(map(len, times)) // step_rows)
    sampled = (
        np.sort(np.concatenate([part[:: max(step_rows // SAMPLES, 1)] for part in times])) if steps > 1 else np.empty(0, np.int64)
    )
    for step in range(1, steps):
        place = step * len(sampled) // steps
        first, last = (np.array([np.searchsorted(part, sampled[place], side) for part in times]) for side in ("left", "right"))
        tied = np.cumsum(last - first)
        wanted = step * sum(map(len, times)) // steps - int(first.sum())
        yield (first + np.clip(wanted - (tied - (last - first)), 0, last - first)).tolist()


def _by_time(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Merge parts, each sorted by time; earlier ones come first at equal times."""
    frame = pl.concat(parts)
    times = frame.get_column(TS).to_numpy()
    return frame if (times[1:] >= times[:-1]).all() else taken(frame, np.argsort(times, kind="stable"))


def _shortened(segment: Segment, count: int, times: I64) -> Segment:
    """Return ``segment`` without ``count`` more of its leading rows."""
    min_ts = int(times[count]) if count < len(times) else segment.max_ts
    return replace(segment, min_ts=min_ts, consumed=segment.consumed + count)
