"""Rows found by a hash, as immutable segments that are sorted by it: only touched ones are read.

Appending writes one segment; neighbours are merged as in ``segments``, so there are few and a row is rewritten logarithmically
often. A merge holds a bounded number of rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from engine.core.ports import SegmentStore
from engine.core.structures.hash_steps import hash_runs, merged_in_steps
from engine.core.structures.segments import expand, merge_start
from engine.core.structures.sorted_search import U64, runs_of


class _Segment(NamedTuple):
    """A manifest entry; hashes are the first and the last one in it."""

    segment: str
    rows: int
    min_hash: int
    max_hash: int


class HashSegments:
    """The segments of one operator.

    Args:
        store: where segments live.
        state: what ``manifest`` returned, or None.
        column: the hash; rows that belong together agree in it.
        step_rows: how many are merged at once.
    """

    def __init__(self, store: SegmentStore, state: list[dict[str, Any]] | None, column: str, step_rows: int) -> None:
        self._store = store
        self._column = column
        self._step_rows = step_rows
        self._segments = [_Segment(**entry) for entry in state or ()]
        self._released: list[str] = []

    @property
    def rows(self) -> int:
        """Rows held; those of a hash in several segments count in each."""
        return sum(segment.rows for segment in self._segments)

    def manifest(self) -> list[dict[str, Any]]:
        """The state as JSON-able values, all segments durable; tells the store what it no longer names."""
        if self._released:
            self._store.release(self._released)
            self._released = []
        return [segment._asdict() for segment in self._segments]

    def matching(self, hashes: U64) -> list[pl.DataFrame]:
        """Return the rows with these hashes (distinct, ascending), older segments first."""
        found = []
        for segment in self._segments:
            first = np.searchsorted(hashes, np.uint64(segment.min_hash), "left")
            asked = hashes[first : np.searchsorted(hashes, np.uint64(segment.max_hash), "right")]
            if len(asked):
                frame = self._store.load(segment.segment)
                there = runs_of(frame.get_column(self._column).to_numpy(), asked)
                if len(there.keys):
                    found.append(frame[expand(there.starts, there.stops)])
        return found

    def append(self, rows: pl.DataFrame, merge: Callable[[list[pl.DataFrame], bool], pl.DataFrame]) -> None:
        """Add rows that are newer than all before.

        Args:
            rows: sorted by the hash.
            merge: makes one frame, sorted by the hash, of slices, older ones first; learns whether no older segment holds any of their hashes.
        """
        runs = hash_runs(self._segments, self._step_rows)
        start = merge_start([*(sum(segment.rows for segment in run) for run in runs), rows.height])
        merged = [segment for run in runs[start:] for segment in run]
        parts = [self._store.load(segment.segment) for segment in merged]
        self._released += [segment.segment for segment in merged]
        self._segments = self._segments[: len(self._segments) - len(merged)]
        is_all = start == 0
        for made in merged_in_steps([*parts, rows], self._column, self._step_rows, lambda slices: merge(slices, is_all)):
            hashes = made.get_column(self._column)
            self._segments.append(_Segment(self._store.save(made), made.height, hashes.item(0), hashes.item(-1)))
