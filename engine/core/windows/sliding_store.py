"""Accepted records of sliding windows, as immutable sorted segments.

A *run* is a frame of records sorted by (group hash, event time, arrival) that also names its rows in the order of event time. So it
answers two questions without being read whole: which groups have records in a range of time, and which records some groups have
there. Appending writes one segment; neighbours are merged as in ``segments``. A segment goes when no open or later window
can reach its last record; until then only the groups and times that are asked for are read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.core.clocks import I64
from engine.core.frames import TS
from engine.core.ports import SegmentStore
from engine.core.structures.segments import expand, merge_start, upper_bound
from engine.core.structures.spans import Span, SpanCache, behind, ranked

U64 = NDArray[np.uint64]

HASH: Final = "_hash"
"""Hash of the group."""

SEQ: Final = "_seq"
"""Number of the record's arrival at the operator."""

BY_TIME: Final = "_by_time"
"""The run's rows in the order of event time: the n-th value is the place of the n-th row by time."""


TOLD: Final = "_told"
"""Of records that came from another task: its windows that end before this are told. Only where tasks had told differently far."""


class Band(NamedTuple):
    """Event times from ``low`` to ``high``, both inclusive; none where ``low > high``."""

    low: int
    high: int


class _Segment(NamedTuple):
    """What a manifest says of a segment."""

    segment: str
    rows: int
    min_ts: int
    max_ts: int


def sorted_run(records: pl.DataFrame) -> pl.DataFrame:
    """Make a run of records in any order."""
    run = records.sort(HASH, TS, SEQ)
    return run.with_columns(run[TS].arg_sort().cast(pl.UInt32).alias(BY_TIME))


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
    return records if len(rows) == run.height else records[rows]


class SlidingStore:
    """The segments of one operator.

    Args:
        store: where segments live.
        state: what ``manifest`` returned, or None.
    """

    def __init__(self, store: SegmentStore, state: list[dict[str, Any]] | None) -> None:
        self._store = store
        self._segments = [_Segment(**entry) for entry in state or ()]
        self._released: list[str] = []
        self._spans = SpanCache(self._record_spans)

    @property
    def rows(self) -> int:
        """Records held, those in shared segments that no window needs included."""
        return sum(segment.rows for segment in self._segments)

    def manifest(self) -> list[dict[str, Any]]:
        """Return the state as JSON-able values, all segments durable; tell the store what it no longer names."""
        if self._released:
            self._store.release(self._released)
            self._released = []
        return [segment._asdict() for segment in self._segments]

    def hashes_between(self, bands: Sequence[Band]) -> U64:
        """Return the hashes, with repetitions, of the records within the bands."""
        bands = [band for band in bands if band.low <= band.high]
        held = [
            segment
            for segment in self._segments
            if any(segment.min_ts <= band.high and segment.max_ts >= band.low for band in bands)
        ]
        parts = [hashes_between(self._store.load(segment.segment), bands) for segment in held]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)

    def matching(self, hashes: U64, low: I64, high: I64) -> list[pl.DataFrame]:
        """Return some groups' records, one part per segment; see ``matching``."""
        if not len(hashes):
            return []
        first, last = int(low.min()), int(high.max())
        held = [segment for segment in self._segments if segment.min_ts <= last and segment.max_ts >= first]
        found = [matching(self._store.load(segment.segment), hashes, low, high) for segment in held]
        return [part for part in found if part.height]

    def first_time(self, low: int) -> int | None:
        """Return the smallest event time from ``low`` on; None where there is none."""
        found = []
        for segment in self._segments:
            if segment.max_ts >= low:
                run = self._store.load(segment.segment)
                order, times = run[BY_TIME].to_numpy(), run[TS].to_numpy()
                found.append(int(times[order[bisect_left(order, low, key=lambda place: times[place])]]))
        return min(found, default=None)

    def window_spans(self, difference: int, boundary: int) -> list[Span]:
        """Windows by their ends, those that end before ``boundary`` left out."""
        records = [span for spans in self._spans.of(name for name, *_ in self._segments) for span in spans]
        return behind([Span(low, high + 1 + difference, 0, 2 * most) for low, high, _, most in records], boundary)

    def _record_spans(self, segment: str) -> list[Span]:
        run = self._store.load(segment)
        return ranked(run[TS].to_numpy()[run[BY_TIME].to_numpy()], is_exact=False)

    def append(self, run: pl.DataFrame, horizon: int) -> None:
        """Add a run; forget every record before ``horizon``, wherever that costs nothing more."""
        self._keep([segment for segment in self._segments if segment.max_ts >= horizon])
        if run.is_empty() or int(run[TS].max()) < horizon:  # type: ignore[arg-type]
            return
        start = merge_start([*(segment.rows for segment in self._segments), run.height])
        if start < len(self._segments):
            older = [self._store.load(segment.segment) for segment in self._segments[start:]]
            merged = pl.concat([*older, run], how="diagonal").drop(BY_TIME)
            run = sorted_run(merged.filter(pl.col(TS) >= horizon))
        elif int(run[TS].min()) < horizon:  # type: ignore[arg-type]
            run = sorted_run(run.drop(BY_TIME).filter(pl.col(TS) >= horizon))
        times = run[TS]
        saved = _Segment(self._store.save(run), run.height, int(times.min()), int(times.max()))  # type: ignore[arg-type]
        self._keep([*self._segments[:start], saved])

    def _keep(self, segments: list[_Segment]) -> None:
        self._released += [segment.segment for segment in self._segments if segment not in segments]
        self._segments = segments
