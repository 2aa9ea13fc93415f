"""The list of immutable segments that every structure of state is made of: which there are, when they are merged, when they go.

This is an LSM tree without levels. A batch appends one *run* at most: one segment, or several where it is large. Neighbouring runs are
merged when the newer ones have together as many rows as the older one, so there are at most logarithmically many and a row is rewritten
at most logarithmically often, also when every batch is one record. A merge goes in steps, so it holds a bounded number of rows
in memory (``steps``). A segment once saved never changes; what has become unnecessary is left out when its run is merged, or goes
with its segment when that is over as a whole.

What a structure keeps to itself: how rows are sorted, which of them still count, how they are found, what else its entries say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np
import polars as pl

from engine.frames.clocks import I64
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.sorted_search import stable_order

MIN_MERGED: Final = 6
"""Runs that are merged at once at the least: fewer would rewrite tiny segments in nearly every batch."""

TINY_ROWS: Final = 1024
"""Rows that are cheaper to rewrite than to keep as a file of their own."""

MERGED_AT_ONCE: Final = 1 << 19
"""Rows that are merged in one step, and so held in memory (about 70 bytes each beside the payload); more make several segments of one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A manifest entry. Structures add what they must know of a segment without opening it.

    Attributes:
        segment: id in the store.
        is_continued: it and the segment before it were made by one merge: they are one run.
    """

    segment: str
    rows: int
    is_continued: bool = False

    @property
    def left(self) -> int:
        """Rows that still count."""
        return self.rows

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Self:
        """Read what ``entry`` returned."""
        return cls(**entry)

    def entry(self) -> dict[str, Any]:
        """Return the entry as JSON-able values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}  # ``asdict`` copies, at ten times the cost


S = TypeVar("S", bound=Segment)


def merge_start(rows: Sequence[int]) -> int:
    """Return from which run on all are merged into one, given the rows of each, oldest first; ``len(rows)`` for none.

    The longest series of newest ones is taken whose oldest one is not larger than the others together. So a row that is
    rewritten lands in a run twice as large (amortised cost), and those that stay double from newer to older (number).
    """
    newer = TINY_ROWS
    start = len(rows)
    for place in range(len(rows) - 1, -1, -1):
        if rows[place] <= newer and len(rows) - place >= MIN_MERGED:
            start = place
        newer += rows[place]
    return start


class SegmentList(Generic[S]):
    """The segments of one structure, oldest first.

    Args:
        kind: what an entry says.
        state: what ``snapshot`` returned, or None.
        step_rows: how many rows are merged at once; None: ``MERGED_AT_ONCE``.
    """

    def __init__(
        self, kind: type[S], store: SegmentStore, state: list[dict[str, Any]] | None, step_rows: int | None = None
    ) -> None:
        self._store = store
        self._held: list[S] = [kind.of(entry) for entry in state or ()]
        self._released: list[str] = []
        self.step_rows = MERGED_AT_ONCE if step_rows is None else step_rows

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[S]:
        return iter(self._held)

    def __reversed__(self) -> Iterator[S]:
        return reversed(self._held)

    @property
    def rows(self) -> int:
        """Rows that still count; those that newer ones replace, and those that are over in shared segments, included."""
        return sum(segment.left for segment in self._held)

    @property
    def names(self) -> list[str]:
        """Ids of the segments in the store."""
        return [segment.segment for segment in self._held]

    def load(self, segment: S) -> pl.DataFrame:
        """Return the rows of a segment as they were saved."""
        return self._store.load(segment.segment)

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the manifest, all segments durable, and tell the store what it no longer names."""
        if self._released:
            self._store.release(self._released)
            self._released = []
        return [segment.entry() for segment in self._held]

    def change(self, change: Callable[[S], S | None]) -> None:
        """Give every segment another entry, or None: it goes."""
        held: list[S] = []
        is_headless = False
        for segment in self._held:
            is_headless &= segment.is_continued
            kept = change(segment)
            if kept is None:
                self._released.append(segment.segment)
                is_headless |= not segment.is_continued
            else:
                held.append(replace(kept, is_continued=False) if is_headless else kept)
                is_headless = False
        self._held = held

    def drop(self, is_over: Callable[[S], bool]) -> None:
        """Let segments go of which no row counts any more."""
        if any(map(is_over, self._held)):
            self.change(lambda segment: None if is_over(segment) else segment)

    def append(self, rows: int, make: Callable[[list[S], bool], Iterable[S]]) -> None:
        """Add a run that is newer than all before, merged with the newest of them if it is their turn.

        Args:
            rows: about how many the new run has.
            make: gets the segments that are to be merged with what is new, older ones first, none where that stays alone, and whether
                nothing older is left; gives the segments of the run, step by step: saved ones, and such as stay as they are.
        """
        runs: list[list[S]] = []
        for segment in self._held:
            if segment.is_continued and runs:
                runs[-1].append(segment)
            else:
                runs.append([segment])
        start = merge_start([*(sum(segment.left for segment in run) for run in runs), rows])
        merged = [segment for run in runs[start:] for segment in run]
        made: list[S] = []
        for segment in make(merged, start == 0):
            made.append(segment if segment.is_continued == bool(made) else replace(segment, is_continued=bool(made)))
        self._held = [*self._held[: len(self._held) - len(merged)], *made]
        stays = {segment.segment for segment in made}
        self._released.extend(segment.segment for segment in merged if segment.segment not in stays)


def taken(frame: pl.DataFrame, rows: I64) -> pl.DataFrame:
    """Gather rows; Polars converts and checks wider indexes first, at half the cost of gathering."""
    return frame[pl.Series(rows.astype(np.uint32))]


def taken_or_null(frame: pl.DataFrame, rows: I64) -> pl.DataFrame:
    """Gather rows; nulls for those below 0."""
    is_missing = rows < 0
    if frame.is_empty() or is_missing.all():
        return frame.clear(len(rows))
    if not is_missing.any():
        return taken(frame, rows)
    return frame[pl.Series(np.where(is_missing, 0, rows).astype(np.uint32)).set(pl.Series(is_missing), None)]


def ascending(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return the rows in the order of a hash, equal ones as they stand: the frame itself where that is their order."""
    hashes = frame.get_column(column).to_numpy()
    return frame if bool((hashes[1:] >= hashes[:-1]).all()) else taken(frame, stable_order(hashes))
