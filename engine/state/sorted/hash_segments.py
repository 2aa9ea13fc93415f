"""Rows found by a hash, as immutable segments that are sorted by it: only touched ones are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from engine.state.segments.ports import SegmentStore
from engine.state.sorted.segment_list import TINY_ROWS, Segment, SegmentList, taken
from engine.state.sorted.sorted_search import U64, expand, runs_of
from engine.state.sorted.steps import merged_in_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class HashSegment(Segment):
    """A manifest entry."""

    min_hash: int
    max_hash: int

    def within(self, hashes: U64) -> slice:
        """Return which of some hashes (ascending) it can hold."""
        first = np.searchsorted(hashes, np.uint64(self.min_hash), "left")
        return slice(int(first), int(np.searchsorted(hashes, np.uint64(self.max_hash), "right")))


class _SegmentLookup(NamedTuple):
    """A segment, and those of the hashes asked for that it can hold."""

    segment: HashSegment
    hashes: U64


def hash_segment(store: SegmentStore, rows: pl.DataFrame, column: str) -> HashSegment:
    """Save rows, sorted by a hash, and describe them."""
    hashes = rows.get_column(column)
    return HashSegment(segment=store.save(rows), rows=rows.height, min_hash=hashes.item(0), max_hash=hashes.item(-1))


class HashSegments:
    """The segments of one operator.

    Args:
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
        found: list[pl.DataFrame | None] = []
        for is_tiny, asked in groupby(self._lookups(hashes), key=lambda each: each.segment.rows <= TINY_ROWS):
            if is_tiny:
                found.append(self._among([self._segments.load(each.segment) for each in asked], hashes))
            else:
                found.extend(self._within(each) for each in asked)
        return [part for part in found if part is not None]

    def _lookups(self, hashes: U64) -> list[_SegmentLookup]:
        """Return the segments that can hold some of these hashes."""
        least, greatest = (
            np.array([getattr(segment, name) for segment in self._segments], np.uint64) for name in ("min_hash", "max_hash")
        )
        bounds = zip(
            np.searchsorted(hashes, least, "left").tolist(), np.searchsorted(hashes, greatest, "right").tolist(), strict=True
        )
        found = (
            _SegmentLookup(segment, hashes[first:stop]) for segment, (first, stop) in zip(self._segments, bounds, strict=True)
        )
        return [each for each in found if len(each.hashes)]

    def _among(self, frames: list[pl.DataFrame], hashes: U64) -> pl.DataFrame | None:
        """Return the rows with these hashes of a few tiny segments, all of whose rows are looked at together."""
        own = np.concatenate([frame.get_column(self._column).to_numpy() for frame in frames])
        places = np.searchsorted(hashes, own)
        rows = np.flatnonzero(hashes.take(places, mode="clip") == own)
        return taken(pl.concat(frames, how="diagonal"), rows) if len(rows) else None

    def _within(self, asked: _SegmentLookup) -> pl.DataFrame | None:
        """Return the rows of one segment."""
        frame = self._segments.load(asked.segment)
        there = runs_of(frame.get_column(self._column).to_numpy(), asked.hashes)
        return taken(frame, expand(there.starts, there.stops)) if len(there.keys) else None

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
