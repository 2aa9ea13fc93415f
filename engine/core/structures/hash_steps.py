"""Merging segments that are sorted by a hash in steps of bounded size: hashes are spread evenly, so ranges of them are about equally large.

What one merge makes is a run of several segments, which counts as one when it is decided what to merge next (``merge_start``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Protocol, TypeVar

import numpy as np
import polars as pl

FILLED: Final = 2
"""All segments of a run but the last have at least this part of a step's rows."""


class Hashed(Protocol):
    """A manifest entry: rows, and the first and the last hash."""

    @property
    def rows(self) -> int: ...

    @property
    def min_hash(self) -> int: ...

    @property
    def max_hash(self) -> int: ...


S = TypeVar("S", bound=Hashed)


def hash_slices(parts: Sequence[pl.DataFrame], column: str, step_rows: int) -> Iterator[list[pl.DataFrame]]:
    """Cut parts, each sorted by a hash, at the same hashes into steps of about so many rows; empty slices are left out."""
    steps = -(-sum(part.height for part in parts) // step_rows)
    bounds = np.array([step * 2**64 // steps for step in range(1, steps)], np.uint64)
    cuts = [np.searchsorted(part.get_column(column).to_numpy(), bounds).tolist() for part in parts]
    ranges = [list(pairwise([0, *places, part.height])) for part, places in zip(parts, cuts, strict=True)]
    for step in range(steps):
        slices = [part[slice(*own[step])] for part, own in zip(parts, ranges, strict=True)]
        if filled := [each for each in slices if each.height]:
            yield filled


def merged_in_steps(
    parts: Sequence[pl.DataFrame], column: str, step_rows: int, merge: Callable[[list[pl.DataFrame]], pl.DataFrame]
) -> Iterator[pl.DataFrame]:
    """Merge parts step by step.

    Args:
        parts: sorted by the hash.
        column: the hash.
        step_rows: rows that are merged, and so held in memory, at once.
        merge: makes one frame, sorted by the hash, of the slices of a step; rows of one hash are in one step.

    Yields:
        Frames of a run, in the order of the hash: none is empty, all but the last have at least half a step's rows.
    """
    ready: list[pl.DataFrame] = []
    for slices in hash_slices(parts, column, step_rows):
        ready.append(merge(slices))
        if sum(frame.height for frame in ready) * FILLED >= step_rows:
            yield pl.concat(ready, how="diagonal")
            ready = []
    if any(frame.height for frame in ready):
        yield pl.concat(ready, how="diagonal")


def hash_runs(segments: Sequence[S], step_rows: int) -> list[list[S]]:
    """Put segments that one merge has made together; two that follow each other by chance do no harm."""
    runs: list[list[S]] = []
    for segment in segments:
        before = runs[-1][-1] if runs else None
        if before is not None and before.rows * FILLED >= step_rows and before.max_hash < segment.min_hash:
            runs[-1].append(segment)
        else:
            runs.append([segment])
    return runs
