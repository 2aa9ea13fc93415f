"""Open sessions' partial results, as immutable segments by group hash.

A row is a whole session as it stood when its batch ended. Sessions only grow, and the open ones of a group lie apart; so of the
rows whose end is not before the horizon, the ones that count are those within no newer row of their group: nothing is ever marked
or rewritten. A row whose end is before the horizon is closed or has been replaced. A segment goes when that holds for all its
rows; until then it is read only where a group is touched or where an end comes before the horizon. The rows of a group are merged in one
step, so a run has each group in one segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from engine.frames.clocks import I64, Bools
from engine.operators.pending.spans import Span, SpanCache, behind, ranked
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.hash_segments import HashSegment
from engine.state.sorted.running import Groups
from engine.state.sorted.segment_list import SegmentList, taken
from engine.state.sorted.sorted_search import U64, are_shared, expand, runs_of, stable_order, time_order
from engine.state.sorted.steps import merged_in_steps

HASH: Final = "_hash"
START: Final = "_start"
END: Final = "_end"
"""Time of a session's last record, itself part of the session."""

DUE_END: Final = "_due_end"
"""A segment's ends in ascending order: which rows pass a horizon is found by two binary searches."""

DUE_ROW: Final = "_due_row"
"""The row of each of these ends."""

_AGE: Final = "_age"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSegment(HashSegment):
    """A manifest entry.

    Attributes:
        last_end: the greatest end of its rows.
    """

    last_end: int


def session_segment(store: SegmentStore, sessions: pl.DataFrame) -> SessionSegment:
    """Save sessions, sorted by hash, with what finds those that end, and describe them."""
    ends, hashes = sessions[END].to_numpy(), sessions[HASH]
    order = time_order(ends)
    saved = sessions.with_columns(pl.Series(DUE_END, ends[order]), pl.Series(DUE_ROW, order.astype(np.uint32)))
    return SessionSegment(
        segment=store.save(saved),
        rows=saved.height,
        min_hash=hashes.item(0),
        max_hash=hashes.item(-1),
        last_end=int(ends[order[-1]]),
    )


def session_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the sessions of a segment alone."""
    return frame.drop(DUE_END, DUE_ROW)


class SessionStore:
    """The segments of one operator.

    Args:
        store: where segments live.
        group: the group's columns in the rows; two groups can share a hash.
        state: what ``snapshot`` returned, or None.
    """

    def __init__(self, store: SegmentStore, group: Sequence[str], state: list[dict[str, Any]] | None) -> None:
        self._store = store
        self._group = list(group)
        self._segments = SegmentList(SessionSegment, store, state)
        self._spans = SpanCache(lambda name: ranked(store.load(name)[DUE_END].to_numpy(), is_exact=False))

    @property
    def rows(self) -> int:
        """Rows held, replaced and closed ones in shared segments included."""
        return self._segments.rows

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the manifest and tell the store what it no longer names."""
        return self._segments.snapshot()

    def matching(self, hashes: U64, horizon: int) -> pl.DataFrame | None:
        """The open sessions of some groups, sorted by group and time; None where there are none.

        Args:
            hashes: of the groups, distinct and ascending.
            horizon: sessions that end before it are closed.
        """
        parts = []
        for segment in self._segments:
            asked = hashes[segment.within(hashes)]
            if not len(asked):
                continue
            frame = self._segments.load(segment)
            runs = runs_of(frame[HASH].to_numpy(), asked)
            rows = expand(runs.starts, runs.stops)
            rows = rows[frame[END].to_numpy()[rows] >= horizon]
            if len(rows):
                parts.append(taken(session_rows(frame), rows))
        if len(parts) < 2:
            return parts[0].sort(HASH, *self._group, START) if parts else None
        return self._latest(pl.concat(parts, how="diagonal"), _ages(parts))

    def due(self, begin: int, end: int) -> U64:
        """Hashes of the groups that may have sessions with ends in ``begin..end-1``, with repetitions: replaced rows count."""
        found = []
        for segment in self._segments:
            frame = self._segments.load(segment)
            first, stop = np.searchsorted(frame[DUE_END].to_numpy(), (begin, end)).tolist()
            if stop > first:
                found.append(frame[HASH].to_numpy()[frame[DUE_ROW].to_numpy()[first:stop]])
        return np.concatenate(found) if found else np.empty(0, np.uint64)

    def earliest_end(self, horizon: int) -> int | None:
        """The least end of an open session, or less where a row at that end has been replaced; None where there is none."""
        found = []
        for segment in self._segments:
            ends = self._segments.load(segment)[DUE_END].to_numpy()
            place = int(np.searchsorted(ends, horizon))
            if place < len(ends):
                found.append(int(ends[place]))
        return min(found, default=None)

    def spans(self, horizon: int) -> list[Span]:
        """Open sessions by their ends; replaced rows count too, so that there may be none."""
        return behind([span for spans in self._spans.of(self._segments.names) for span in spans], horizon)

    def append(self, sessions: pl.DataFrame, horizon: int) -> None:
        """Add sessions as they stand now, all of them open, and forget what ends before ``horizon``."""
        self._segments.drop(lambda segment: segment.last_end < horizon)
        if not sessions.is_empty():
            self._segments.append(sessions.height, lambda old, _: self._run(old, _by_hash(sessions), horizon))

    def _run(self, old: list[SessionSegment], new: pl.DataFrame, horizon: int) -> Iterator[SessionSegment]:
        """Save what is new, merged with older segments step by step."""

        def merged(slices: list[pl.DataFrame]) -> pl.DataFrame:
            return self._merged([part.filter(pl.col(END) >= horizon) for part in slices])

        parts = [*(session_rows(self._segments.load(segment)) for segment in old), new]
        runs = merged_in_steps(parts, (HASH,), self._segments.step_rows, merged) if old else [new]
        for run in runs:
            yield session_segment(self._store, run)

    def _merged(self, parts: list[pl.DataFrame]) -> pl.DataFrame:
        """Merge parts, older ones first, into one by hash. Most groups have one row: only the others are looked at closely."""
        rows, ages = pl.concat(parts, how="diagonal"), _ages(parts)
        hashes = rows[HASH].to_numpy()
        order = np.argsort(hashes, kind="stable")
        is_shared = are_shared(hashes[order])
        shared, alone = order[is_shared], taken(rows, order[~is_shared])
        if not len(shared):
            return alone
        return _by_hash(pl.concat([alone, self._latest(taken(rows, shared), ages[shared])]))

    def _latest(self, rows: pl.DataFrame, ages: I64) -> pl.DataFrame:
        """Drop the rows that lie within a newer one of their group; the greatest age is the newest. Sort by group and time."""
        is_descending = [False] * (len(self._group) + 2) + [True, True]
        rows = rows.with_columns(pl.Series(_AGE, ages)).sort(HASH, *self._group, START, END, _AGE, descending=is_descending)
        groups = Groups.of(rows.select(HASH, *self._group))
        is_kept = _is_apart(groups, rows[START].to_numpy(), rows[END].to_numpy())
        return rows.filter(pl.Series(is_kept)).drop(_AGE)


def _by_hash(sessions: pl.DataFrame) -> pl.DataFrame:
    return taken(sessions, stable_order(sessions[HASH].to_numpy()))


def _ages(parts: Sequence[pl.DataFrame]) -> I64:
    return np.repeat(np.arange(len(parts)), [part.height for part in parts])


def _is_apart(groups: Groups, starts: I64, ends: I64) -> Bools:
    """Whether each row starts behind the ends of all rows before it in its group."""
    is_apart = np.ones(len(starts), np.bool_)
    if len(starts) > 1:
        is_apart[1:] = (groups.ids[1:] != groups.ids[:-1]) | (starts[1:] > groups.latest(ends)[:-1])
    return is_apart
