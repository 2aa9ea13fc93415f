"""Accepted records of sliding windows, as immutable sorted segments.

A *run* is a frame of records sorted by (group hash, event time, arrival) that also names its rows in the order of event time. So it
answers two questions without being read whole: which groups have records in a range of time, and which records some groups have
there. Where many records wait, a run is several segments, which are apart by group hash. A segment goes when no open or later window can
reach its last record; until then only the groups and times that are asked for are read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from engine.frames.clocks import I64
from engine.frames.frames import TS
from engine.operators.pending.spans import Span, SpanCache, behind, ranked
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.hash_segments import HashSegment
from engine.state.sorted.segment_list import SegmentList, taken
from engine.state.sorted.sorted_search import U64, expand, key_order, time_order, upper_bound
from engine.state.sorted.steps import merged_in_steps

HASH: Final = "_hash"
"""Hash of the group."""

SEQ: Final = "_seq"
"""Number of the record's arrival at the operator."""

BY_TIME: Final = "_by_time"
"""The run's rows in the order of event time: the n-th value is the place of the n-th row by time."""


class Band(NamedTuple):
    """Event times from ``low`` to ``high``, both inclusive; none where ``low > high``."""

    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingSegment(HashSegment):
    """A manifest entry.

    Attributes:
        min_ts: smallest event time.
        max_ts: greatest event time.
    """

    min_ts: int
    max_ts: int


def sliding_segment(store: SegmentStore, run: pl.DataFrame) -> SlidingSegment:
    """Save a run and describe it."""
    hashes, times = run[HASH], run[TS].to_numpy()
    order = run[BY_TIME]
    return SlidingSegment(
        segment=store.save(run),
        rows=run.height,
        min_hash=hashes.item(0),
        max_hash=hashes.item(-1),
        min_ts=int(times[order.item(0)]),
        max_ts=int(times[order.item(-1)]),
    )


def sorted_run(records: pl.DataFrame) -> pl.DataFrame:
    """Make a run of records in any order."""
    return _with_times(_in_order(records, is_merge=False))


def hashes_between(run: pl.DataFrame, bands: Sequence[Band]) -> U64:
    """Return the hashes, with repetitions, of the run's records within the bands."""
    order, times = run[BY_TIME].to_numpy(), run[TS].to_numpy()
    places = []
    for low, high in bands:
        if low <= high:
            first = bisect_left(order, low, key=lambda place: times[place])
            places.append(order[first : bisect_right(order, high, lo=first, key=lambda place: times[place])])
    return run[HASH].to_numpy()[np.concatenate(places)] if places else np.empty(0, np.uint64)


def matching(run: pl.DataFrame, hashes: U64, low: I64, high: I64) -> pl.DataFrame:
    """Return each group's records from its ``low`` to its ``high``, by (group hash, time, arrival), without ``BY_TIME``.

    Args:
        run: the run.
        hashes: distinct, ascending.
        low: per hash, the first time.
        high: per hash, the last time; not below ``low``.
    """
    own, times = run[HASH].to_numpy(), run[TS].to_numpy()
    starts, stops = np.searchsorted(own, hashes, "left"), np.searchsorted(own, hashes, "right")
    begin = upper_bound(times, low - 1, starts, stops)
    rows = expand(begin, upper_bound(times, high, begin, stops))
    records = run.drop(BY_TIME)
    return records if len(rows) == run.height else taken(records, rows)


class SlidingStore:
    """The segments of one operator.

    Args:
        store: where segments live.
        state: what ``snapshot`` returned, or None.
    """

    def __init__(self, store: SegmentStore, state: list[dict[str, Any]] | None) -> None:
        self._store = store
        self._segments = SegmentList(SlidingSegment, store, state)
        self._spans = SpanCache(self._record_spans)

    @property
    def rows(self) -> int:
        """Records held, those in shared segments that no window needs included."""
        return self._segments.rows

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the manifest and tell the store what it no longer names."""
        return self._segments.snapshot()

    def hashes_between(self, bands: Sequence[Band]) -> U64:
        """Return the hashes, with repetitions, of the records within the bands."""
        bands = [band for band in bands if band.low <= band.high]
        held = [
            segment
            for segment in self._segments
            if any(segment.min_ts <= band.high and segment.max_ts >= band.low for band in bands)
        ]
        parts = [hashes_between(self._segments.load(segment), bands) for segment in held]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)

    def matching(self, hashes: U64, low: I64, high: I64) -> list[pl.DataFrame]:
        """Return some groups' records, one part per segment; see ``matching``."""
        if not len(hashes):
            return []
        first, last = int(low.min()), int(high.max())
        found = []
        for segment in self._segments:
            asked = segment.within(hashes)
            if segment.min_ts <= last and segment.max_ts >= first and asked.start < asked.stop:
                found.append(matching(self._segments.load(segment), hashes[asked], low[asked], high[asked]))
        return [part for part in found if part.height]

    def first_time(self, low: int) -> int | None:
        """Return the smallest event time from ``low`` on; None where there is none."""
        found = []
        for segment in self._segments:
            if segment.max_ts >= low:
                run = self._segments.load(segment)
                order, times = run[BY_TIME].to_numpy(), run[TS].to_numpy()
                found.append(int(times[order[bisect_left(order, low, key=lambda place: times[place])]]))
        return min(found, default=None)

    def window_spans(self, difference: int, boundary: int) -> list[Span]:
        """Windows by their ends, those that end before ``boundary`` left out."""
        records = [span for spans in self._spans.of(self._segments.names) for span in spans]
        return behind([Span(low, high + 1 + difference, 0, 2 * most) for low, high, _, most in records], boundary)

    def _record_spans(self, segment: str) -> list[Span]:
        run = self._store.load(segment)
        return ranked(run[TS].to_numpy()[run[BY_TIME].to_numpy()], is_exact=False)

    def append(self, run: pl.DataFrame, horizon: int) -> None:
        """Add a run; forget every record before ``horizon``, wherever that costs nothing more."""
        self._segments.drop(lambda segment: segment.max_ts < horizon)
        run = _reachable(run, horizon)
        if not run.is_empty():
            self._segments.append(run.height, lambda old, _: self._run(old, run, horizon))

    def _run(self, old: list[SlidingSegment], new: pl.DataFrame, horizon: int) -> Iterator[SlidingSegment]:
        """Save what is new, merged with older segments step by step."""

        def merged(slices: list[pl.DataFrame]) -> pl.DataFrame:
            records = pl.concat(slices, how="diagonal")
            return _in_order(records.filter(pl.col(TS) >= horizon), is_merge=True)

        parts = [run.drop(BY_TIME) for run in (*map(self._segments.load, old), new)]
        runs = map(_with_times, merged_in_steps(parts, (HASH,), self._segments.step_rows, merged)) if old else [new]
        for run in runs:
            yield sliding_segment(self._store, run)


def _in_order(records: pl.DataFrame, *, is_merge: bool) -> pl.DataFrame:
    hashes, times, arrivals = (records[name].to_numpy() for name in (HASH, TS, SEQ))
    return taken(records, key_order(hashes, times, arrivals, is_merge=is_merge).rows)


def _with_times(run: pl.DataFrame) -> pl.DataFrame:
    return run.with_columns(pl.Series(BY_TIME, time_order(run[TS].to_numpy()).astype(np.uint32)))


def _reachable(run: pl.DataFrame, horizon: int) -> pl.DataFrame:
    """Return a run without the records before ``horizon``."""
    is_reachable = run[TS] >= horizon
    return run if is_reachable.all() else _with_times(run.drop(BY_TIME).filter(is_reachable))
