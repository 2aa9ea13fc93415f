"""Segments in memory that tell how they were written."""

from __future__ import annotations

import polars as pl

from engine.state.memory import MemorySegmentStore


class WatchedStore(MemorySegmentStore):
    """Remembers how many rows each save had."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[int] = []

    def save(self, frame: pl.DataFrame) -> str:
        self.saved.append(frame.height)
        return super().save(frame)
