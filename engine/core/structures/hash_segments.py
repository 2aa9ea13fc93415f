"""Rows found by a hash, as immutable segments that are sorted by it: only touched ones are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from engine.core.ports import SegmentStore
from engine.core.structures.segment_list import LAST_HASH, Segment, SegmentList, taken
from engine.core.structures.sorted_search import U64, expand, runs_of
from engine.core.structures.steps import merged_in_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class HashSegment(Segment):
    """A manifest entry.

    Attributes:
        min_hash: smallest hash.
        max_hash: greatest hash.
    """

    min_hash: int = 0
    max_hash: int = LAST_HASH

    def within(self, hashes: U64) -> slice:
        """Return which of some hashes (ascending) it can hold."""
        first = np.searchsorted(hashes, np.uint64(self.min_hash), "left")
        return slice(int(first), int(np.searchsorted(hashes, np.uint64(self.max_hash), "right")))


def hash_segment(store: SegmentStore, rows: pl.DataFrame, column: str) -> HashSegment:
    """Save rows, sorted by a hash, and describe them."""
    hashes = rows.get_column(column)
    return HashSegment(segment=store.save(rows), rows=rows.height, min_hash=hashes.item(0), max_hash=hashes.item(-1))


class HashSegments:
    """The segments of one operator.

    Args:
        store: where segments live.
        state: what ``snapshot`` returned, or None.
        column: the hash; rows that belong together agree in it.
        step_rows: how many are merged at once; None: ``MERGED_AT_ONCE``.
    """

    def __init__(
        self, store: SegmentStore, state: list[dict[str, Any]] | None, column: str, step_rows: int | None = None
    ) -> None:
        self._store = store
        self._column = column
        self._segments = SegmentList(HashSegment, store, state, step_rows)

    @property
    def rows(self) -> int:
        """Rows held; those of a hash in several segments count in each."""
        return self._segments.rows

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the manifest and tell the store what it no longer names."""
        return self._segments.snapshot()

    def matching(self, hashes: U64) -> list[pl.DataFrame]:
        """Return the rows with these hashes (distinct, ascending), older segments first."""
        found = []
        for segment in self._segments:
            asked = hashes[segment.within(hashes)]
            if len(asked):
                frame = self._segments.load(segment)
                there = runs_of(frame.get_column(self._column).to_numpy(), asked)
                if len(there.keys):
                    found.append(taken(frame, expand(there.starts, there.stops)))
        return found

    def append(self, rows: pl.DataFrame, merge: Callable[[list[pl.DataFrame], bool], pl.DataFrame]) -> None:
        """Add rows that are newer than all before.

        Args:
            rows: sorted by the hash, at least one.
            merge: makes one frame, sorted by the hash, of slices, older ones first; learns whether no older segment holds any of their hashes.
        """

        def run(old: list[HashSegment], is_all: bool) -> Iterator[HashSegment]:
            parts = [*map(self._segments.load, old), rows]
            for part in merged_in_steps(parts, (self._column,), self._segments.step_rows, lambda slices: merge(slices, is_all)):
                yield hash_segment(self._store, part, self._column)

        self._segments.append(rows.height, run)
