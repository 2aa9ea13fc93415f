"""Frames cut to a number of rows and of bytes: what is encoded, sent or copied at once has a bound, whatever single rows hold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from engine.frames.clocks import I64
from engine.frames.row_bytes import RowBytes


def slices(frame: pl.DataFrame, max_rows: int, max_bytes: int) -> Iterator[pl.DataFrame]:
    """Yield consecutive parts of a frame, none of which has more rows or more bytes; a single larger row is a part of its own.

    Rows are measured only where the frame as a whole is too large.
    """
    if frame.estimated_size() <= max_bytes:
        yield from frame.iter_slices(max_rows) if frame.height > max_rows else [frame]
        return
    start = 0
    for end in ends_within(RowBytes(frame.schema).of(frame), max_rows, max_bytes):
        yield frame.slice(start, end - start)
        start = end


def ends_within(sizes: I64, max_rows: int, max_bytes: int) -> list[int]:
    """Return where to cut rows of these sizes: the ends of parts within both bounds, of at least one row."""
    totals = np.cumsum(sizes)
    ends: list[int] = []
    start = 0
    while start < len(sizes):
        before = int(totals[start - 1]) if start else 0
        fitting = int(np.searchsorted(totals, before + max_bytes, "right"))
        start = max(start + 1, min(fitting, start + max_rows))
        ends.append(min(start, len(sizes)))
    return ends
