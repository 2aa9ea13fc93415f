"""Which rows of kept state belong to which task, before and after the number of tasks changes.

A row's task follows from the hash of the columns that spread its stage's records, so every kept row must have these columns under some
name. That the rows of a task really hash to it is checked row by row: a mistake here would send a key's records to one task and its
state to another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from engine.errors import InvariantBroken
from engine.frames.frames import KEY_HASH
from engine.frames.hashing import key_hash
from engine.state.segments.ports import SegmentStore

Rows = tuple[str, ...] | Callable[[pl.DataFrame], pl.Series]
"""How the hash that spread a stage's records follows from kept rows: of which columns it is made, or a function that gives it."""


@dataclass(frozen=True, slots=True)
class Source:
    """What one task before kept, or one part of that.

    Attributes:
        ordinal: of the task.
        state: as ``snapshot`` returned it; empty for a part that never was.
        store: where its segments are.
    """

    ordinal: int
    state: Any
    store: SegmentStore

    def part(self, name: str) -> Source:
        """Return a part of the state."""
        return Source(self.ordinal, self.state.get(name) or {}, self.store)


@dataclass(frozen=True, slots=True)
class Shares:
    """What the new tasks take over.

    Attributes:
        tasks_before: how many tasks there were.
        key: the columns that spread the stage's records, by their names before the operator at hand.
        inputs: input index → the columns of that input that spread its records.
        stores: where each new task keeps its segments, by ordinal.
        has_open: open windows are kept for reading beside final ones (``Output.has_open``).
    """

    tasks_before: int
    key: tuple[str, ...]
    inputs: Mapping[int, tuple[str, ...]]
    stores: Sequence[SegmentStore]
    has_open: bool = False

    def split(self, frame: pl.DataFrame, rows: Rows, source: Source) -> list[pl.DataFrame]:
        """Return the rows of each new task, in their order.

        Args:
            frame: rows that the source kept.
            rows: see ``Rows``; columns are in the order of ``key``.
            source: whose they are.

        Raises:
            InvariantBroken: rows are not in the task that their key says.
        """
        hashed = rows(frame) if callable(rows) else key_hash(frame, rows)
        hashes = hashed.fill_null(0).to_numpy()
        if (hashes % np.uint64(self.tasks_before) != source.ordinal).any():
            raise InvariantBroken(
                f"task {source.ordinal} of {self.tasks_before} keeps rows of another task's keys, so the number of tasks cannot be changed"
            )
        ordinals = hashes % np.uint64(len(self.stores))
        return [frame[np.flatnonzero(ordinals == ordinal)] for ordinal in range(len(self.stores))]

    def gather(self, parts: Sequence[tuple[Source, pl.DataFrame]], rows: Rows) -> list[list[pl.DataFrame]]:
        """Split several parts; returns for each new task what it gets of them, in their order."""
        gathered: list[list[pl.DataFrame]] = [[] for _ in self.stores]
        for source, frame in parts:
            for own, part in zip(gathered, self.split(frame, rows, source), strict=True):
                own.append(part)
        return gathered

    def states(self, parts: Mapping[str, Sequence[Any]], **same: Any) -> list[dict[str, Any]]:
        """Put each new task's state together.

        Args:
            parts: name → its value of each new task.
            same: what all new tasks have alike.
        """
        return [{**same, **{name: values[place] for name, values in parts.items()}} for place in range(len(self.stores))]


def hashed(frame: pl.DataFrame) -> pl.Series:
    """Say that ``_key_hash``, without a seed, is the hash that spread the records."""
    return frame.get_column(KEY_HASH)


def greatest(sources: Sequence[Source], name: str, default: int) -> int:
    """Return the greatest value of a count or boundary; the default where no source has one."""
    return max((source.state[name] for source in sources if source.state.get(name) is not None), default=default)
