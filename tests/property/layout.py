"""Where the records of a test stand, and how they are spread over tasks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Generic, TypeVar

import polars as pl

from engine.frames.hashing import KeyHash
from engine.frames.places import ranked
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.operators.rescale.shares import Shares, Source
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import RunningTimes, unranked
from tests.property.task_shares import in_place_order, shares

Spec = TypeVar("Spec")
Join = TypeVar("Join", bound=Operator)
Make = Callable[[Spec, dict[str, Any] | None, MemorySegmentStore], Join]
Rescale = Callable[[Spec, Sequence[Source], Shares], list[dict[str, Any]]]


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


class JoinRunner(Generic[Spec, Join]):
    """Feeds batches to the tasks of a join, which go on from their states, in another number of tasks if one is given.

    Args:
        spec: of the join.
        make: makes the operator of one task.
        rescale: makes the states of other tasks of those of a spec's.
        keys: columns of the keys of both sides.
        hashing: of the stores.
        tasks: how many.
    """

    def __init__(
        self, spec: Spec, make: Make[Spec, Join], rescale: Rescale[Spec], keys: tuple[str, str], hashing: KeyHash, tasks: int
    ) -> None:
        self._make, self._rescale, self._keys, self._hashing = make, rescale, keys, hashing
        self._stores = [MemorySegmentStore(hashing) for _ in range(tasks)]
        self.times = RunningTimes()
        self.position = 0
        self.output: list[tuple[Any, ...]] = []
        self.counters: Counter[str] = Counter()
        self.late: list[tuple[Any, ...]] = []
        self.joins: list[Join] = []
        self._start(spec, [None] * tasks)

    def _start(self, spec: Spec, states: Sequence[dict[str, Any] | None]) -> None:
        self.joins = [self._make(spec, state, store) for state, store in zip(states, self._stores, strict=True)]

    def handle(
        self, running: pl.DataFrame, other: pl.DataFrame, beside: int, name: str, moment: BatchTime
    ) -> list[OperatorOutput]:
        """Give each task its share of both sides, and count.

        Args:
            running: rows of the running relation.
            other: of the one beside it.
            beside: its index.
            name: of the join.
            moment: when.
        """
        count = len(self.joins)
        sides = (shares(rows, [key], count) for rows, key in zip((running, other), self._keys, strict=True))
        tasks = zip(self.joins, *sides, strict=True)
        results = [join.process(own, {beside: rows} if rows.height else {}, moment) for join, own, rows in tasks]
        for result in results:
            assert in_place_order(result.frame)
            for (operator, reason), number in result.counters.items():
                assert operator == name
                self.counters[reason] += number
        return results

    def restart(self, spec: Spec, tasks: int | None = None) -> None:
        """Go on from the states."""
        states = [json.loads(json.dumps(join.snapshot())) for join in self.joins]
        if tasks in (None, len(self.joins)):
            for store in self._stores:
                store.purge()
        else:
            sources = [Source(ordinal, *each) for ordinal, each in enumerate(zip(states, self._stores, strict=True))]
            new = [MemorySegmentStore(self._hashing) for _ in range(tasks or 1)]
            key, other = self._keys
            states = self._rescale(spec, sources, Shares(len(self._stores), (key,), {0: (other,), 1: (other,)}, new))
            self._stores = new
        self._start(spec, states)
