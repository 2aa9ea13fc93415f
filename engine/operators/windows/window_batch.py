"""What one batch brings to windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from engine.operators.windows.window_grid import Int64s


@dataclass(frozen=True, slots=True)
class WindowBatch:
    """The records that were not dropped, in processing order.

    Attributes:
        frame: their rows.
        hashes: hash of each one's group.
        arrivals: how many records arrived before each.
        before: time before the place of each.
        first: first window of each that still takes it.
        last: last window of each; a record with first > last is taken by none.
        refused: how many windows refused each: they had closed.
        beyond: how many windows of each would end too late to be (T8).
    """

    frame: pl.DataFrame
    hashes: pl.Series
    arrivals: pl.Series
    before: Int64s
    first: Int64s
    last: Int64s
    refused: Int64s
    beyond: Int64s

    def parts(self, rows: int) -> Iterator[WindowBatch]:
        """Cut into parts of at most so many records, at least one part."""
        for start in range(0, max(self.frame.height, 1), rows):
            columns = (self.before, self.first, self.last, self.refused, self.beyond)
            own = (column[start : start + rows] for column in columns)
            yield WindowBatch(
                self.frame.slice(start, rows), self.hashes.slice(start, rows), self.arrivals.slice(start, rows), *own
            )
