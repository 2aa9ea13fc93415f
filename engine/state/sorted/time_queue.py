"""The other structure of state: rows waiting, by time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from engine.frames.clocks import I64
from engine.frames.frames import TS
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.segment_list import Segment, SegmentList, taken
from engine.state.sorted.steps import cuts, sliced

LEAST_KEPT: Final = 4
"""A segment that lies apart from all others in time stays as it is when its run is merged, if it has this part of a step's rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSegment(Segment):
    """A manifest entry of a queue.

    Attributes:
        min_ts: smallest event time of the rows that are left.
        consumed: leading rows that were taken.
    """

    min_ts: int
    max_ts: int
    consumed: int = 0

    @property
    def left(self) -> int:
        """Rows that still count."""
        return self.rows - self.consumed

    def without(self, count: int, times: I64) -> QueueSegment | None:
        """Return the entry without more of its leading rows; None where none is left.

        Args:
            count: how many.
            times: of all rows that were left.
        """
        if count == len(times):
            return None
        return self if not count else replace(self, min_ts=int(times[count]), consumed=self.consumed + count)


def queue_segment(store: SegmentStore, frame: pl.DataFrame) -> QueueSegment:
    """Save rows, sorted by time, and describe them."""
    times = frame.get_column(TS)
    return QueueSegment(segment=store.save(frame), rows=frame.height, min_ts=int(times.item(0)), max_ts=int(times.item(-1)))


def live(store: SegmentStore, segment: QueueSegment) -> pl.DataFrame:
    """Return the rows that are left of a segment."""
    return store.load(segment.segment).slice(segment.consumed)


class TimeQueue:
    """Rows waiting, by (``_ts``, arrival); arrival is the order of appending.

    Args:
        state: what ``snapshot`` returned, or None.
        step_rows: how many are merged at once, and so held in memory; more make several segments of one run. None: ``MERGED_AT_ONCE``.
    """

    def __init__(self, store: SegmentStore, state: list[dict[str, Any]] | None, *, step_rows: int | None = None) -> None:
        self._store = store
        self._segments = SegmentList(QueueSegment, store, state, step_rows)

    @property
    def rows(self) -> int:
        """Rows that wait."""
        return self._segments.rows

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the manifest and tell the store what it no longer names."""
        return self._segments.snapshot()

    def append(self, frame: pl.DataFrame) -> None:
        """Add rows, sorted by ``_ts`` and then arrival, that arrived after all before."""
        if frame.height:
            self._segments.append(frame.height, lambda old, _: self._run(old, frame))

    def take(self, until: int) -> list[pl.DataFrame]:
        """Remove and return all rows with ``_ts <= until``: sorted parts, earlier arrivals first at equal times."""
        parts: list[pl.DataFrame] = []

        def rest(segment: QueueSegment) -> QueueSegment | None:
            if segment.min_ts > until:
                return segment
            frame = self._live(segment)
            times = frame.get_column(TS).to_numpy()
            count = int(np.searchsorted(times, until, "right"))
            parts.append(frame[:count])
            return segment.without(count, times)

        self._segments.change(rest)
        return [part for part in parts if part.height]

    def _live(self, segment: QueueSegment) -> pl.DataFrame:
        return live(self._store, segment)

    def _run(self, old: list[QueueSegment], new: pl.DataFrame) -> Iterator[QueueSegment]:
        """Save what is new, merged with older segments in steps of bounded size, by time.

        Large ones that lie apart from all others need no merging: what comes in the order of time, or nearly, is hardly rewritten,
        however much waits.
        """
        times = new.get_column(TS)
        ranges = [_Range(segment.min_ts, place, segment.max_ts) for place, segment in enumerate(old)]
        pending: list[int] = []
        for group in _apart([*ranges, _Range(int(times.item(0)), len(old), int(times.item(-1)))]):
            segment = old[group[0]] if len(group) == 1 and group[0] < len(old) else None
            if segment is None or segment.left * LEAST_KEPT < self._segments.step_rows or segment.left < segment.consumed:
                pending += group
                continue
            yield from self._steps(old, new, pending)
            yield segment
            pending = []
        yield from self._steps(old, new, pending)

    def _steps(self, old: list[QueueSegment], new: pl.DataFrame, places: list[int]) -> Iterator[QueueSegment]:
        """Merge some of the segments; the place behind the last is that of the new rows."""
        parts = [new if place == len(old) else self._live(old[place]) for place in sorted(places)]
        times = [[part.get_column(TS).to_numpy()] for part in parts]
        for slices in sliced(parts, cuts(times, self._segments.step_rows, parts_ties=True)):
            yield queue_segment(self._store, _by_time(slices))


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


def _by_time(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Merge parts, each sorted by time; earlier ones come first at equal times."""
    frame = pl.concat(parts)
    times = frame.get_column(TS).to_numpy()
    return frame if (times[1:] >= times[:-1]).all() else taken(frame, np.argsort(times, kind="stable"))
