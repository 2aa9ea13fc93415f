"""What is known of each group, or of each key, as immutable sorted segments: only touched ones are read.

A run is a frame with ``HASH``, sorted by it, whose rows of the same group can be merged into one. Appending writes one segment;
neighbours are merged as in ``segments``, so there are few and a row is rewritten logarithmically often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from engine.core.hashing import U64
from engine.core.ports import SegmentStore
from engine.core.structures.segments import expand, merge_start
from engine.core.structures.sorted_search import runs_of

HASH: Final = "_hash"

Merge = Callable[[pl.DataFrame, bool], pl.DataFrame]
"""Merges rows of the same group, older ones first, into one; learns whether no older segment holds any of the group."""


class _Segment(NamedTuple):
    segment: str
    rows: int
    min_hash: int
    max_hash: int


class GroupStore:
    """The segments of one operator.

    Args:
        store: where segments live.
        merge: see ``Merge``; its result need not be sorted.
        state: what ``manifest`` returned, or None.
    """

    def __init__(self, store: SegmentStore, merge: Merge, state: list[dict[str, Any]] | None) -> None:
        self._store = store
        self._merge = merge
        self._segments = [_Segment(**entry) for entry in state or []]
        self._released: list[str] = []

    @property
    def rows(self) -> int:
        """Rows held; those of a group in several segments count in each."""
        return sum(segment.rows for segment in self._segments)

    def manifest(self) -> list[dict[str, Any]]:
        """The state as JSON-able values, all segments durable; tells the store what it no longer names."""
        if self._released:
            self._store.release(self._released)
            self._released = []
        return [segment._asdict() for segment in self._segments]

    def matching(self, hashes: U64) -> list[pl.DataFrame]:
        """Return the rows of groups with these hashes (distinct, ascending), older segments first."""
        found = []
        for segment in self._segments:
            first = np.searchsorted(hashes, np.uint64(segment.min_hash), "left")
            asked = hashes[first : np.searchsorted(hashes, np.uint64(segment.max_hash), "right")]
            if len(asked):
                run = self._store.load(segment.segment)
                there = runs_of(run[HASH].to_numpy(), asked)
                if len(there.keys):
                    found.append(run[expand(there.starts, there.stops)])
        return found

    def append(self, rows: pl.DataFrame) -> None:
        """Add rows, in any order, that are newer than all before."""
        if rows.is_empty():
            return
        start = merge_start([*(segment.rows for segment in self._segments), rows.height])
        replaced = self._segments[start:]
        parts = [*(self._store.load(segment.segment) for segment in replaced), rows]
        run = pl.concat(parts, how="diagonal") if replaced else rows
        run = self._merge(run, start == 0).sort(HASH)
        self._released += [segment.segment for segment in replaced]
        self._segments = self._segments[:start]
        if run.height:
            hashes = run[HASH]
            self._segments.append(_Segment(self._store.save(run), run.height, int(hashes.item(0)), int(hashes.item(-1))))
