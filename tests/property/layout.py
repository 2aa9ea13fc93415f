"""Where the records of a test stand, and how they are spread over tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import polars as pl

from engine.frames.hashing import key_hash
from engine.frames.places import ranked
from engine.operators.operators import Operator
from engine.operators.rescale.shares import Shares, Source
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import unranked

Rescale = Callable[[Sequence[Source], Shares], list[dict[str, Any]]]


class Layout:
    """Where records stand: behind silences, and some where time released them together with the one before them.

    Args:
        records: in order; the first item of each says which input it is of.
        running: the input whose records time may have released.
        silences: offset of a record → milliseconds before it.
        released: offsets of records that stand at the place of the record of the same input before them.
    """

    def __init__(self, records: Sequence[tuple[Any, ...]], running: str, silences: dict[int, int], released: set[int]) -> None:
        self.records = records
        self.silences = {offset: ms for offset, ms in silences.items() if offset < len(records)}
        self.positions: list[int] = []
        for offset, record in enumerate(records):
            are_running = offset > 0 and record[0] == records[offset - 1][0] == running
            if are_running and offset in released and offset not in self.silences:
                self.positions.append(self.positions[-1])
            else:
                last = self.positions[-1] if offset else -1
                self.positions.append(last + 1 + self.silences.get(offset, 0))

    def bounds(self, cuts: Iterable[int]) -> list[int]:
        """Where batches begin, and the end: never inside of a place, always at a silence."""
        count = len(self.positions)
        inner = {cut for cut in cuts if 0 < cut < count and self.positions[cut] != self.positions[cut - 1]}
        return sorted({0, count, *inner, *self.silences})

    @property
    def rows(self) -> list[tuple[int, int, Any]]:
        """Records with their positions and offsets."""
        return [(position, offset, self.records[offset]) for offset, position in enumerate(self.positions)]

    def places(self) -> Iterator[tuple[int, int, list[tuple[int, Any]]]]:
        """Yield each place: its position, the silence before it, its records with their offsets."""
        for position, rows in groupby(self.rows, key=lambda row: row[0]):
            own = [(offset, record) for _, offset, record in rows]
            yield position, self.silences.get(own[0][0], 0), own


def released_together(frame: pl.DataFrame) -> pl.DataFrame:
    """Give records their ranks: time released those that share a position, in the order of their offsets."""
    frame = unranked(frame)
    ranks = ranked(frame, 1, frame["_offset"].to_numpy())["_rank"]
    return frame.with_columns(ranks.zip_with(frame["_pos"].is_duplicated(), frame["_rank"]))


def rescaled(
    rescale: Rescale,
    operators: Sequence[Operator],
    stores: Sequence[MemorySegmentStore],
    new: Sequence[MemorySegmentStore],
    key: str,
    other: str,
) -> list[dict[str, Any]]:
    """The states of as many tasks as there are new stores, made of those of the tasks before.

    Args:
        rescale: of the operator, given the states before and how they are shared.
        operators: of the tasks before.
        stores: of the tasks before.
        new: of the new tasks.
        key: of the running relation.
        other: of input 0 or 1.
    """
    states = [json.loads(json.dumps(operator.snapshot())) for operator in operators]
    sources = [Source(ordinal, state, store) for ordinal, (state, store) in enumerate(zip(states, stores, strict=True))]
    return rescale(sources, Shares(len(stores), (key,), {0: (other,), 1: (other,)}, new))


def shares(frame: pl.DataFrame, key: str, tasks: int) -> list[pl.DataFrame]:
    """The rows of each task."""
    owners = key_hash(frame, [key]).fill_null(0).to_numpy() % tasks
    return [frame.filter(pl.Series(owners == task)) for task in range(tasks)]
