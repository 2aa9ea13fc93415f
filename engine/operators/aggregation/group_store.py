"""What is known of each group, or of each key, found by a hash: see ``hash_segments``.

A run is a frame with ``HASH``, sorted by it, whose rows of the same group can be merged into one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import polars as pl

from engine.frames.hashing import U64
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.hash_segments import HashSegments
from engine.state.sorted.segment_list import ascending

HASH: Final = "_hash"

Merge = Callable[[pl.DataFrame, bool], pl.DataFrame]
"""Merges rows of the same group, older ones first, into one; learns whether no older segment holds any of the group."""


class GroupStore:
    """The segments of one operator.

    Args:
        store: where segments live.
        merge: see ``Merge``; its result need not be sorted.
        state: what ``snapshot`` returned, or None.
        step_rows: how many are merged at once; None: ``MERGED_AT_ONCE``.
    """

    def __init__(
        self, store: SegmentStore, merge: Merge, state: list[dict[str, Any]] | None, *, step_rows: int | None = None
    ) -> None:
        self._merge = merge
        self._segments = HashSegments(store, state, HASH, step_rows)

    @property
    def rows(self) -> int:
        """Rows held; those of a group in several segments count in each."""
        return self._segments.rows

    def snapshot(self) -> list[dict[str, Any]]:
        """The state as JSON-able values, all segments durable; tells the store what it no longer names."""
        return self._segments.snapshot()

    def matching(self, hashes: U64) -> list[pl.DataFrame]:
        """Return the rows of groups with these hashes (distinct, ascending), older segments first."""
        return self._segments.matching(hashes)

    def append(self, rows: pl.DataFrame) -> None:
        """Add rows, in any order, that are newer than all before."""
        if rows.height:
            self._segments.append(ascending(rows, HASH), self._merged)

    def _merged(self, slices: list[pl.DataFrame], is_all: bool) -> pl.DataFrame:
        return ascending(self._merge(pl.concat(slices, how="diagonal"), is_all), HASH)
