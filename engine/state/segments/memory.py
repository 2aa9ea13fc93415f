"""Segments in memory, for tests and for queries whose state need not survive the process."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from engine.errors import StateCorrupt
from engine.frames.hashing import UNSEEDED, KeyHash


class MemorySegmentStore:
    """Keeps frames in a dictionary. ``purge`` removes the released ones; until then older manifests can be loaded."""

    def __init__(self, hashing: KeyHash = UNSEEDED) -> None:
        self.hashing = hashing
        self._frames: dict[str, pl.DataFrame] = {}
        self._released: set[str] = set()
        self._saved = 0

    def save(self, frame: pl.DataFrame) -> str:
        self._saved += 1
        segment_id = f"{self._saved:012d}"
        self._frames[segment_id] = frame.rechunk()
        return segment_id

    def load(self, segment_id: str) -> pl.DataFrame:
        try:
            return self._frames[segment_id]
        except KeyError as error:
            raise StateCorrupt(f"segment {segment_id} does not exist") from error

    def release(self, segment_ids: Collection[str]) -> None:
        self._released.update(segment_ids)

    def purge(self) -> int:
        """Remove what was released and return how many segments that were."""
        removed = self._released & self._frames.keys()
        for segment_id in removed:
            del self._frames[segment_id]
        self._released.clear()
        return len(removed)

    @property
    def segment_ids(self) -> frozenset[str]:
        """What could be loaded now."""
        return frozenset(self._frames)
