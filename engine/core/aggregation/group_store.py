"""What is known of each group, or of each key, as immutable sorted segments: only touched ones are read.

A run is a frame with ``HASH``, sorted by it, whose rows of the same group can be merged into one. Appending writes one segment;
neighbours are merged as in ``segments``, so there are few and a row is rewritten logarithmically often. A merge holds a bounded number of
rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from engine.core.hashing import U64
from engine.core.ports import SegmentStore
from engine.core.structures.hash_steps import hash_runs, merged_in_steps
from engine.core.structures.segments import MERGED_AT_ONCE, expand, merge_start
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
        step_rows: how many are merged at once.
    """

    def __init__(
        self, store: SegmentStore, merge: Merge, state: list[dict[str, Any]] | None, *, step_rows: int = MERGED_AT_ONCE
    ) -> None:
        self._store = store
        self._step_rows = step_rows
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
        runs = hash_runs(self._segments, self._step_rows)
        start = merge_start([*(sum(segment.rows for segment in run) for run in runs), rows.height])
        replaced = [segment for run in runs[start:] for segment in run]
        parts = [self._store.load(segment.segment) for segment in replaced]
        self._released += [segment.segment for segment in replaced]
        self._segments = self._segments[: len(self._segments) - len(replaced)]
        for made in self._merged([*parts, rows], is_all=start == 0):
            hashes = made[HASH]
            self._segments.append(_Segment(self._store.save(made), made.height, int(hashes.item(0)), int(hashes.item(-1))))

    def _merged(self, parts: list[pl.DataFrame], *, is_all: bool) -> Iterator[pl.DataFrame]:
        """Merge sorted parts and new rows, the last, into a run."""

        def merge(slices: list[pl.DataFrame]) -> pl.DataFrame:
            return self._merge(pl.concat(slices, how="diagonal"), is_all).sort(HASH)

        parts[-1] = parts[-1].sort(HASH, maintain_order=True)
        return merged_in_steps(parts, HASH, self._step_rows, merge)
