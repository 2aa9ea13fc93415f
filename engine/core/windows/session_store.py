"""Open sessions' partial results, as immutable segments by group hash.

A row is a whole session as it stood when its batch ended. Sessions only grow, and the open ones of a group lie apart; so of the
rows whose end is not before the horizon, the ones that count are those within no newer row of their group: nothing is ever marked
or rewritten. A row whose end is before the horizon is closed or has been replaced. A segment goes when that holds for all its
rows; until then it is read only where a group is touched or where an end comes before the horizon. Neighbouring segments are
merged as in ``segments``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.core.aggregation.running import Groups
from engine.core.clocks import I64, Bools
from engine.core.ports import SegmentStore
from engine.core.structures.segments import expand, merge_start
from engine.core.structures.sorted_search import runs_of
from engine.core.structures.spans import Span, SpanCache, behind, ranked

U64 = NDArray[np.uint64]

HASH: Final = "_hash"
START: Final = "_start"
END: Final = "_end"
"""Time of a session's last record, itself part of the session."""

DUE_END: Final = "_due_end"
"""A segment's ends in ascending order: which rows pass a horizon is found by two binary searches."""

DUE_ROW: Final = "_due_row"
"""The row of each of these ends."""

_AGE: Final = "_age"


class _Segment(NamedTuple):
    """``last_end`` is the greatest end of its rows."""

    segment: str
    rows: int
    last_end: int


class SessionStore:
    """The segments of one operator.

    Args:
        store: where segments live.
        group: the group's columns in the rows; two groups can share a hash.
        state: what ``manifest`` returned, or None.
    """

    def __init__(self, store: SegmentStore, group: Sequence[str], state: list[dict[str, Any]] | None) -> None:
        self._store = store
        self._group = list(group)
        self._segments = [_Segment(**entry) for entry in state or ()]
        self._released: list[str] = []
        self._spans = SpanCache(lambda name: ranked(store.load(name)[DUE_END].to_numpy(), is_exact=False))

    @property
    def rows(self) -> int:
        """Rows held, replaced and closed ones in shared segments included."""
        return sum(segment.rows for segment in self._segments)

    def manifest(self) -> list[dict[str, Any]]:
        """The state as JSON-able values, all segments durable; tells the store what it no longer names."""
        if self._released:
            self._store.release(self._released)
            self._released = []
        return [segment._asdict() for segment in self._segments]

    def matching(self, hashes: U64, horizon: int) -> pl.DataFrame | None:
        """The open sessions of some groups, sorted by group and time; None where there are none.

        Args:
            hashes: of the groups, distinct and ascending.
            horizon: sessions that end before it are closed.
        """
        parts = []
        for segment in self._segments if len(hashes) else ():
            frame = self._store.load(segment.segment)
            runs = runs_of(frame[HASH].to_numpy(), hashes)
            rows = expand(runs.starts, runs.stops)
            rows = rows[frame[END].to_numpy()[rows] >= horizon]
            if len(rows):
                parts.append(frame.drop(DUE_END, DUE_ROW)[rows])
        return self._latest(parts) if parts else None

    def due(self, begin: int, end: int) -> U64:
        """Hashes of the groups that may have sessions with ends in ``begin..end-1``, with repetitions: replaced rows count."""
        found = []
        for segment in self._segments:
            frame = self._store.load(segment.segment)
            first, stop = np.searchsorted(frame[DUE_END].to_numpy(), (begin, end)).tolist()
            if stop > first:
                found.append(frame[HASH].to_numpy()[frame[DUE_ROW].to_numpy()[first:stop]])
        return np.concatenate(found) if found else np.empty(0, np.uint64)

    def earliest_end(self, horizon: int) -> int | None:
        """The least end of an open session, or less where a row at that end has been replaced; None where there is none."""
        found = []
        for segment in self._segments:
            ends = self._store.load(segment.segment)[DUE_END].to_numpy()
            place = int(np.searchsorted(ends, horizon))
            if place < len(ends):
                found.append(int(ends[place]))
        return min(found, default=None)

    def spans(self, horizon: int) -> list[Span]:
        """Open sessions by their ends; replaced rows count too, so that there may be none."""
        return behind([span for spans in self._spans.of(name for name, _, _ in self._segments) for span in spans], horizon)

    def append(self, sessions: pl.DataFrame, horizon: int) -> None:
        """Add sessions as they stand now, all of them open, and forget what ends before ``horizon``."""
        self._keep([segment for segment in self._segments if segment.last_end >= horizon])
        if sessions.is_empty():
            return
        start = merge_start([*(segment.rows for segment in self._segments), sessions.height])
        if start < len(self._segments):
            older = (self._store.load(segment.segment) for segment in self._segments[start:])
            open_ones = [frame.drop(DUE_END, DUE_ROW).filter(pl.col(END) >= horizon) for frame in older]
            sessions = self._latest([*open_ones, sessions])
        else:
            sessions = sessions.sort(HASH)
        ends = sessions[END].to_numpy()
        order = np.argsort(ends, kind="stable")
        saved = sessions.with_columns(pl.Series(DUE_END, ends[order]), pl.Series(DUE_ROW, order.astype(np.uint32)))
        self._keep([*self._segments[:start], _Segment(self._store.save(saved), saved.height, int(ends[order[-1]]))])

    def _latest(self, parts: list[pl.DataFrame]) -> pl.DataFrame:
        """Drop the rows that lie within a newer one of their group; ``parts`` stand from older to newer."""
        if len(parts) == 1:
            return parts[0].sort(HASH, *self._group, START)
        ages = np.repeat(np.arange(len(parts)), [part.height for part in parts])
        rows = pl.concat(parts, how="diagonal").with_columns(pl.Series(_AGE, ages))
        is_descending = [False] * (len(self._group) + 2) + [True, True]
        rows = rows.sort(HASH, *self._group, START, END, _AGE, descending=is_descending)
        groups = Groups.of(rows.select(HASH, *self._group))
        is_kept = _is_apart(groups, rows[START].to_numpy(), rows[END].to_numpy())
        return rows.filter(pl.Series(is_kept)).drop(_AGE)

    def _keep(self, segments: list[_Segment]) -> None:
        self._released += [segment.segment for segment in self._segments if segment not in segments]
        self._segments = segments


def _is_apart(groups: Groups, starts: I64, ends: I64) -> Bools:
    """Whether each row starts behind the ends of all rows before it in its group."""
    is_apart = np.ones(len(starts), np.bool_)
    if len(starts) > 1:
        is_apart[1:] = (groups.ids[1:] != groups.ids[:-1]) | (starts[1:] > groups.latest(ends)[:-1])
    return is_apart
