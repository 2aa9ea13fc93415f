"""What one batch brings to windows."""

from __future__ import annotations

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
        clock: stream time with each record.
        first: first window of each that still takes it.
        last: last window of each; a record with first > last is taken by none.
        refused: how many windows refused each: they had closed.
        beyond: how many windows of each would end too late to be (T8).
    """

    frame: pl.DataFrame
    hashes: pl.Series
    arrivals: pl.Series
    clock: Int64s
    first: Int64s
    last: Int64s
    refused: Int64s
    beyond: Int64s
