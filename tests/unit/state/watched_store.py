"""Segments in memory that tell how they were written and read."""

from __future__ import annotations

import polars as pl

from engine.state.segments.memory import MemorySegmentStore


class WatchedStore(MemorySegmentStore):
    """Remembers how many rows each save had, and what was loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[int] = []
        self.loaded: list[str] = []

    def save(self, frame: pl.DataFrame) -> str:
        self.saved.append(frame.height)
        return super().save(frame)

    def load(self, segment_id: str) -> pl.DataFrame:
        self.loaded.append(segment_id)
        return super().load(segment_id)
