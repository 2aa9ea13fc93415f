"""A query as it runs, without Spark and without a database: splits, packets, and tasks whose state is bytes between two batches."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from engine.frames.clocks import BEFORE_ALL_TIME
from engine.frames.frames import POS, RANK, empty_late
from engine.frames.places import place_order
from engine.log.marks import marks_of
from engine.log.sequence import CAUSES_SCHEMA, numbered
from engine.operators.operators import Emission
from engine.operators.tasks.order import BatchOrder, LaneReading, declared_indices, lane_of
from engine.operators.tasks.progress import PartitionProgress
from engine.operators.tasks.query_times import QueryTimes
from engine.operators.tasks.rescaling import repartitioned
from engine.operators.tasks.slices import UPSTREAM, Slice
from engine.operators.tasks.task import Task, build_task
from engine.plan.model import Input, Plan
from engine.sources.lane_times import LaneTimes, decode_reading, encode_reading
from engine.sources.packets import Packet, Route, data_packets, emitted_by, frame_in
from engine.sources.shaping import for_input
from engine.state.segments.memory import MemorySegmentStore
from tests.stored.kinds import CATALOG, MINUTE_MS, SOURCES


@dataclass(frozen=True)
class Record:
    """A record with its place in the merge of all lanes."""

    relation: str
    partition: int
    offset: int
    head: int
    ts: int
    row: dict[str, Any]
    is_delete: bool


_ROWS = st.fixed_dictionaries({
    "k": st.sampled_from(["a", "b", "c", "d", None]), "g": st.sampled_from(["X", "Y", "X", "Y", None]),
    "n": st.integers(0, 3), "x": st.sampled_from([0.5, 1.0]),
})  # fmt: skip
_TIMES = st.builds(lambda minute, ms: minute * MINUTE_MS + ms, st.integers(0, 25), st.integers(0, 3))
"""Some a few milliseconds apart: a reader of a derived relation is told of such a rise only with the next row (P14)."""
_LANES = st.lists(st.tuples(_TIMES, _ROWS, st.booleans()), max_size=16)


@st.composite
def merges(draw: st.DrawFn, plan: Plan) -> list[Record]:
    """Records of everything that a plan reads, in the order of the merge."""
    declared = declared_indices(plan.inputs)
    found: list[tuple[int, int, Record]] = []
    for name in sorted({item.relation.name for item in plan.inputs}):
        _, body = SOURCES[name]
        for partition in range(draw(st.integers(1, 2))):
            given_records = draw(_LANES)
            heads = accumulate((ts for ts, _, _ in given_records), max)
            for offset, (head, (ts, row, flag)) in enumerate(zip(heads, given_records, strict=True)):
                is_delete = flag and row["n"] == 0
                own = {column: row[column] if column in body["key"] or not is_delete else None for column in body["columns"]}
                lane = lane_of(declared[CATALOG[name].feed.name], partition)
                found.append((head, lane, Record(name, partition, offset, head, ts, own, is_delete)))
    return [record for _, _, record in sorted(found, key=lambda each: (each[0], each[1], each[2].offset))]


@dataclass
class Made:
    """What a query made.

    Attributes:
        rows: number, head, event time, kind of change and columns of each row, by number.
        late: late rows, in the order of their places.
        marks: number, head and time of each mark (P14).
        counters: over all batches.
    """

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    late: list[tuple[Any, ...]] = field(default_factory=list)
    marks: list[tuple[int, int, int]] = field(default_factory=list)
    counters: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def events(self) -> dict[tuple[str, str], int]:
        """The counters that tell of records, not of how a batch was worked on."""
        return {name: count for name, count in self.counters.items() if name[1] != "exact_path"}


class QueryRun:
    """A query whose batches are read in splits and worked on task by task, as workers do it.

    Args:
        plan: with any number of tasks.
        tasks: how many there are at first.
        chance: decides where splits end and in which order packets arrive; None: one split for each lane, packets in order.

    Attributes:
        made: what it made.
        time_behind: the time behind its last operator.
        wakes_at_ms: when it has something to do without records; None for never.
    """

    def __init__(self, plan: Plan, tasks: int, chance: random.Random | None = None) -> None:
        self.plan = replace(plan, tasks=tasks)
        self.made = Made()
        self.time_behind = BEFORE_ALL_TIME
        self.wakes_at_ms: int | None = None
        self._waiting: dict[tuple[int, int], tuple[int | None, dict[str, int]]] = {}
        self._chance = chance
        self._times = b"null"
        self._reached_ms: int | None = None
        self._stores = self._new_stores()
        self._states: dict[tuple[int, int], bytes] = {}
        self._tasks: dict[tuple[int, int], Task] = {}

    def restart(self, tasks: int | None = None) -> None:
        """Stop and start again from what is committed, perhaps with another number of tasks."""
        self._tasks = {}
        if tasks is None or tasks == self.plan.tasks:
            return
        before, stores, self._waiting = self.plan, self._stores, {}
        self.plan = replace(before, tasks=tasks)
        self._stores = self._new_stores()
        states = {}
        for stage in before.stages:
            places = [(stage.index, task) for task in range(before.tasks)]
            kept = [(self._state(place), stores[place]) for place in places]
            new = [self._stores[stage.index, task] for task in range(tasks)]
            shared = repartitioned(stage, self.plan, kept, new)
            states |= {(stage.index, task): json.dumps(state).encode() for task, state in enumerate(shared) if state is not None}
        self._states = states

    def process(self, records: Sequence[Record], now_ms: int = 0, progress: Sequence[PartitionProgress] = ()) -> None:
        """Handle a batch.

        Args:
            records: in the order of the merge.
            now_ms: the wall clock.
            progress: see ``QueryTimes.at``.
        """
        packets = list(self._read(records))
        if self._chance is not None:
            self._chance.shuffle(packets)
        times = QueryTimes.of_snapshot(json.loads(self._times)).at(now_ms, None, progress)
        readings = [self._reading(packet) for packet in packets if packet.kind == "times"]
        order = times.order(self.plan, readings)
        behind = times.behind(self.plan, order, readings)
        self._times = json.dumps(behind.snapshot()).encode()
        emissions: list[Emission] = []
        late = [empty_late()]
        for stage in self.plan.stages:
            is_last = stage.index == len(self.plan.stages) - 1
            emissions = []
            for task in range(self.plan.tasks):
                own = [
                    packet
                    for packet in packets
                    if packet.kind == "data" and self._reads(stage.index, packet) and packet.task == task
                ]
                emission = self._worked((stage.index, task), [self._slice(packet) for packet in own], order, times.now_ms)
                if emission is None:
                    continue
                emissions.append(emission)
                late.append(emission.late)
                for name, count in emission.counters.items():
                    self.made.counters[name] = self.made.counters.get(name, 0) + count
                if not is_last and emission.changes.height:
                    packets += data_packets(emission.changes, self.plan.tasks, Route(emitted_by(stage.index), task, 0))
        self._commit(emissions, order)
        self.time_behind = order.between[-1][-1].end
        wakes = [ms for ms, _ in self._waiting.values()]
        wakes.append(behind.wakes_at_ms(self.plan, order, [dues for _, dues in self._waiting.values()]))
        self.wakes_at_ms = min((ms for ms in wakes if ms is not None), default=None)
        rows = pl.concat(late)
        self.made.late += [tuple(map(repr, row)) for row in rows[place_order(rows)].drop(POS, RANK).rows()]

    def _commit(self, emissions: Sequence[Emission], order: BatchOrder) -> None:
        causes = [emission.causes for emission in emissions if emission.causes.height]
        next_number = len(self.made.rows)
        numbers = numbered(causes, self._reached_ms, order.newest_head)
        every = numbers.in_order(causes, CAUSES_SCHEMA)
        last_mark_ms = self.made.marks[-1][2] if self.made.marks else None
        marks = marks_of(
            every, order.between[-1][-1], order.heads, next_number, (self._reached_ms, order.newest_head), last_mark_ms
        )
        self._reached_ms = numbers.reached_ms
        frames = [emission.changes for emission in emissions if emission.causes.height]
        batch = sorted(
            (next_number + number, head, *map(repr, row))
            for frame, own, heads in zip(frames, numbers.sequences, numbers.heads, strict=True)
            for number, head, row in zip(own.tolist(), heads.tolist(), frame.rows(), strict=True)
        )
        assert [number for number, *_ in batch] == list(range(next_number, next_number + len(batch)))
        self.made.rows += batch
        self.made.marks += zip(marks.numbers.tolist(), marks.heads.tolist(), marks.times.tolist(), strict=True)

    def _worked(self, place: tuple[int, int], slices: list[Slice], order: BatchOrder, now_ms: int) -> Emission | None:
        """Let a task work; None where nothing came for it and nothing is due, as ``engine.runtime.stages`` finds."""
        task = self._tasks.get(place)
        if task is not None and not slices and not task.is_due(order, now_ms):
            return None
        if task is None:
            stage = self.plan.stages[place[0]]
            task = self._tasks[place] = build_task(stage, self.plan, self._state(place), self._stores[place])
        emission = task.process(slices, order, now_ms)
        self._waiting[place] = emission.wakes_at_ms, emission.dues
        self._states[place] = json.dumps(task.snapshot()).encode()
        return emission

    def _state(self, place: tuple[int, int]) -> dict[str, Any] | None:
        state: dict[str, Any] | None = json.loads(self._states.get(place, b"null"))
        return state

    def _new_stores(self) -> dict[tuple[int, int], MemorySegmentStore]:
        return {(stage.index, task): MemorySegmentStore() for stage in self.plan.stages for task in range(self.plan.tasks)}

    def _reads(self, stage: int, packet: Packet) -> bool:
        return packet.input == emitted_by(stage - 1) if packet.input < 0 else self.plan.inputs[packet.input].stage == stage

    def _slice(self, packet: Packet) -> Slice:
        if packet.input < 0:
            return Slice(UPSTREAM, "", packet.partition, frame_in(packet))
        return Slice(packet.input, self.plan.inputs[packet.input].feed.name, packet.partition, frame_in(packet))

    def _reading(self, packet: Packet) -> LaneReading:
        return decode_reading(self.plan.inputs[packet.input].feed.name, packet.partition, packet.blob)

    def _read(self, records: Sequence[Record]) -> Iterator[Packet]:
        for feed in dict.fromkeys(item.feed.name for item in self.plan.inputs):
            inputs = [item for item in self.plan.inputs if item.feed.name == feed]
            for partition in (0, 1):
                own = [each for each in records if CATALOG[each.relation].feed.name == feed and each.partition == partition]
                for part in self._splits(own):
                    yield from self._split(feed, partition, inputs, part)

    def _splits(self, own: list[Record]) -> Iterator[list[Record]]:
        while own:
            size = len(own) if self._chance is None else self._chance.randint(1, len(own))
            yield own[:size]
            own = own[size:]

    def _split(self, feed: str, partition: int, inputs: Sequence[Input], own: Sequence[Record]) -> Iterator[Packet]:
        times = LaneTimes(None, own[0].offset)
        times.add_times(*(np.array([getattr(each, name) for each in own], np.int64) for name in ("offset", "head")))
        for item in inputs:
            frame = _accepted(item, own)
            if frame is not None:
                times.add_records(item, frame)
                records = for_input(frame, item)
                yield from data_packets(records, self.plan.tasks, Route(item.index, partition, 0)) if records.height else ()
        blob = encode_reading(times.reading(feed, partition, own[-1].offset + 1))
        yield Packet(0, "times", inputs[0].index, partition, own[0].offset, 0, None, None, 0, blob)


def _accepted(item: Input, records: Sequence[Record]) -> pl.DataFrame | None:
    """What an input's relation has in a split."""
    own = [each for each in records if each.relation == item.relation.name]
    if not own:
        return None
    return pl.DataFrame([each.row for each in own], schema=item.relation.columns.polars(), orient="row").with_columns(
        pl.Series("_ts", [each.ts for each in own], dtype=pl.Int64),
        pl.Series("_op", [int(each.is_delete) for each in own], dtype=pl.Int8),
        pl.Series("_offset", [each.offset for each in own], dtype=pl.Int64),
    )
