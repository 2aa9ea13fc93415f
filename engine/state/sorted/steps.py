"""Merging sorted segments in steps of bounded size: all are cut at the same places of their merged order.

Where to cut follows from samples, so steps are about equally large however the rows are spread. Rows that agree in what they are
sorted by are never parted, unless that is asked for; so one of many rows makes a large step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.frames.clocks import I64

SAMPLES: Final = 512
"""Rows of each step that are looked at to find where a merge is cut."""

FILLED: Final = 2
"""All segments of a run but the last have at least this part of a step's rows."""

Order = Sequence[NDArray[Any]]
"""The columns that a part is sorted by, one or two, the more significant one first."""


def cuts(parts: Sequence[Order], step_rows: int, *, parts_ties: bool = False) -> Iterator[list[int]]:
    """Cut sorted parts at the same places of their merged order, into steps of about so many rows.

    Args:
        parts: what each is sorted by.
        step_rows: rows of a step.
        parts_ties: equal rows may be parted, older parts first.

    Yields:
        For each cut the number of rows of each part before it.
    """
    total = sum(len(part[0]) for part in parts)
    steps = -(-total // step_rows)
    if steps < 2:
        return
    sampled = _samples(parts, max(step_rows // SAMPLES, 1))
    for step in range(1, steps):
        wanted = tuple(column[step * len(column) // steps] for column in sampled)
        first = np.array([_place(part, wanted, is_behind=False) for part in parts])
        if parts_ties:
            ties = np.array([_place(part, wanted, is_behind=True) for part in parts]) - first
            missing = step * total // steps - int(first.sum())
            first += np.clip(missing - (np.cumsum(ties) - ties), 0, ties)
        yield first.tolist()


def sliced(parts: Sequence[pl.DataFrame], places: Iterable[list[int]]) -> Iterator[list[pl.DataFrame]]:
    """Yield what lies between the cuts, older parts first; empty slices are left out."""
    bounds = [[0] * len(parts), *places, [part.height for part in parts]]
    for starts, stops in pairwise(bounds):
        slices = [part[start:stop] for part, start, stop in zip(parts, starts, stops, strict=True) if start < stop]
        if slices:
            yield slices


def merged_in_steps(
    parts: Sequence[pl.DataFrame], order: Sequence[str], step_rows: int, merge: Callable[[list[pl.DataFrame]], pl.DataFrame]
) -> Iterator[pl.DataFrame]:
    """Merge parts step by step.

    Args:
        parts: sorted by ``order``, older ones first.
        order: one or two columns of numbers.
        step_rows: rows that are merged, and so held in memory, at once.
        merge: makes one frame of the same order of the slices of a step; rows that agree in ``order`` are in one step.

    Yields:
        Frames of a run, in order and apart: none is empty, all but the last have at least half a step's rows.
    """
    if sum(part.height for part in parts) <= step_rows:
        held = [part for part in parts if part.height]
        if held and (merged := merge(held)).height:
            yield merged
        return
    ready: list[pl.DataFrame] = []
    columns = [[part.get_column(name).to_numpy() for name in order] for part in parts]
    for slices in sliced(parts, cuts(columns, step_rows)):
        ready.append(merge(slices))
        if sum(frame.height for frame in ready) * FILLED >= step_rows:
            yield _joined(ready)
            ready = []
    if any(frame.height for frame in ready):
        yield _joined(ready)


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal")


def _samples(parts: Sequence[Order], stride: int) -> list[NDArray[Any]]:
    columns = [np.concatenate([column[::stride] for column in column_parts]) for column_parts in zip(*parts, strict=True)]
    order: I64 = np.lexsort(columns[::-1])
    return [column[order] for column in columns]


def _place(part: Order, wanted: Sequence[Any], *, is_behind: bool) -> int:
    """Return how many rows of a part come before the wanted one, or before those behind it."""
    low, high = 0, len(part[0])
    for column, value in zip(part[:-1], wanted[:-1], strict=True):
        low, high = (low + int(np.searchsorted(column[low:high], value, side)) for side in ("left", "right"))
    return low + int(np.searchsorted(part[-1][low:high], wanted[-1], "right" if is_behind else "left"))
