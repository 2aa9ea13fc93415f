"""T2: the one order of the records that a query reads in a batch, over all partitions and tasks, and how time rises along it (T1).

A *lane* is what has an order of its own: a partition of a source feed, or a whole derived feed, whose records are numbered across its
partitions (``engine.log.sequence``). The *head* of a record is the running maximum of event time in its lane: the merge of a batch's
lanes takes the smallest head first.

Whoever reads a part of a lane says where its head and its time rise (``LaneReading``), whatever tasks its records go to. From all readings
of a batch each process computes the same order, so each task knows the positions of its own records without those of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64, NEVER, Clock, Rises, running_clock
from engine.operators.operators import TableProgress
from engine.operators.tasks.slowest import PartitionTimes
from engine.plan.model import Input, Plan
from engine.plan.times import HandOn, clocks_between, first_input, time_sources, triggering_inputs

PARTITION_BITS: Final = 20
"""A lane is the declared index of its feed, and below it the partition."""


@dataclass(frozen=True, slots=True)
class LaneReading:
    """What a reader says of a part of a lane that it read.

    Attributes:
        feed_name: ``Feed.name``.
        partition: partition of the feed.
        end: the offset behind the last record.
        heads: where the head rises; its first entry is where the part begins.
        times: input index → where the time of its relation rises: a record moves it unless the stage that reads it drops it for a null
            key or value (T1a); of a derived relation its marks do (P14). Before these stands the relation's first record, with
            ``BEFORE_ALL_TIME``: it may move nothing.
        marks: numbers of the records before which a mark stands, non-decreasing; a mark has a place of its own, right before that record.
            With marks ``heads``, ``times`` and ``end`` count *slots* instead of offsets: the offset and the marks up to it.
        waits: input index → how far behind its sources that relation's time is at most (L).
    """

    feed_name: str
    partition: int
    end: int
    heads: Rises
    times: Mapping[int, Rises]
    marks: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    waits: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchOrder:
    """The order of one batch, the same for all tasks of a query.

    Positions from ``first`` on are those of the silence (T10), a millisecond each; then, where partitions no longer count, one more (T12);
    then those of the records; ``end`` is behind all of them.

    Attributes:
        first: the first position.
        silence_ms: by how much time rose in the silence before the records.
        end: the position behind the last record: what the wall clock causes stands there.
        clocks: of the inputs, by the index that ``time_sources`` gives.
        waits: input index → how far its time is behind its sources (T1d), of the derived ones.
        between: by stage: the clock of the running relation before each operator, and behind the last one (T1c).
        closed_ms: operator (``name_of``) → what lies before has closed for good (W6), by time less grace.
        progress: input index → how far that table has been read with the batch (J9); absent where nothing waits for it.
        partitions: with ``clock: slowest`` the times of the lanes behind the batch (T12); else None.
    """

    first: int
    silence_ms: int
    end: int
    clocks: Mapping[int, Clock]
    waits: Mapping[int, int]
    _sources: Mapping[int, int]
    _lanes: Mapping[tuple[str, int], _Lane]
    _readers: Mapping[str, list[int]]
    between: Sequence[Sequence[Clock]] = ()
    closed_ms: Mapping[str, int] = field(default_factory=dict)
    progress: Mapping[int, TableProgress] = field(default_factory=dict)
    partitions: PartitionTimes | None = None

    @classmethod
    def of(
        cls,
        plan: Plan,
        readings: Sequence[LaneReading],
        first: int,
        times: Mapping[int, int],
        silence_ms: int,
        waits: Mapping[int, int] | None = None,
        partitions: PartitionTimes | None = None,
    ) -> BatchOrder:
        """Merge what the readers of a batch say.

        Args:
            plan: the query's.
            readings: of all parts of lanes, in any order.
            first: the first position of the batch.
            times: time before the batch, by the index that ``time_sources`` gives; absent before the first record.
            silence_ms: by how much time rises before the records.
            waits: of the inputs as of the batch before.
            partitions: with ``clock: slowest`` the times of the lanes before the batch, and which do not count as of it; else None.
        """
        readers, sources = _readers(plan.inputs), time_sources(plan)
        known = dict(waits or {})
        for reading in readings:
            known |= reading.waits
        streams = [item for item in plan.inputs if sources[item.index] == first_input(plan)]
        set_back = _set_back(streams, known)
        partitions = None if partitions is None else replace(partitions, set_back=set_back)
        silence_ends = times.get(first_input(plan), BEFORE_ALL_TIME) + silence_ms
        has_jump = partitions is not None and partitions.least > silence_ends
        begin = first + silence_ms + has_jump
        lanes = _merged(readings, declared_indices(plan.inputs), readers, begin)
        end = max([begin, *(lane.last_end for lane in lanes.values())])
        order = cls(first, silence_ms, end, {}, known, sources, lanes, readers)
        # A table that is looked up has a time of its own records alone.
        idle = {sources[index] for index in triggering_inputs(plan)}
        clocks = {}
        for source in set(sources.values()):
            start = times.get(source, BEFORE_ALL_TIME)
            silent_ms = silence_ms if source in idle and start != BEFORE_ALL_TIME else 0
            waited_ms = max((ms for index, ms in known.items() if sources[index] == source), default=0)
            clock = Clock(start, first=first, silence_ms=silent_ms, waited_ms=waited_ms)
            read = order._read(source, readings)
            if source != first_input(plan):
                clocks[source] = _fastest(clock, read, {})
            elif partitions is None:
                clocks[source] = _fastest(clock, read, set_back)
            else:
                entered = begin - 1 if has_jump else _first_place(read)
                clocks[source] = partitions.moved(replace(clock, entered=entered, has_jump=has_jump), read)
                order = replace(order, partitions=partitions.behind(read))
        return replace(order, clocks=clocks)

    def handed_on(self, plan: Plan, hand_on: HandOn) -> BatchOrder:
        """Return the order with the times that operators hand on."""
        return replace(self, between=clocks_between(plan, self.clocks, hand_on))

    def clock_of(self, input_index: int) -> Clock:
        """Return the clock of an input."""
        return self.clocks[self._sources[input_index]]

    def operator_clocks(self, plan: Plan) -> dict[tuple[int, str], Clock]:
        """Return the clock before each operator by stage and name, and that of the table beside it under ``<name>.table``."""
        found = {}
        for stage in plan.stages:
            for operator, clock in zip(stage.operators, self.between[stage.index], strict=False):
                if operator.name is not None:
                    found[stage.index, operator.name] = clock
                    table = operator.table_beside if operator.looked_up_table is None else operator.looked_up_table
                    if table is not None:
                        found[stage.index, f"{operator.name}.table"] = self.clock_of(table)
        return found

    @property
    def newest_head(self) -> int | None:
        """How far the merge has come with the batch's records; None where it brings none with a time."""
        newest = max((int(lane.heads[-1]) for lane in self._lanes.values()), default=-1)
        return None if newest < 0 else newest  # no event time is negative (T8)

    def positions(self, input_index: int, feed_name: str, partition: int, offsets: I64) -> I64:
        """Return where records of an input stand.

        Of a record that two inputs of a feed read, the one with the smaller index (the table) comes first.
        """
        readers = self._readers[feed_name]
        return self._lanes[feed_name, partition].positions_of(offsets, len(readers)) + readers.index(input_index)

    def heads(self, positions: I64) -> I64:
        """Return how far the merge had come with each position; before or behind all time where the clock causes what stands there."""
        starts, heads = self._heads
        found = heads[np.searchsorted(starts, positions, "right")]
        of_records: I64 = np.where(positions < self.end, found, AFTER_ALL_TIME)
        return of_records

    @cached_property
    def _heads(self) -> tuple[I64, I64]:
        lanes = self._lanes.values()
        starts = np.concatenate([np.empty(0, np.int64), *(lane.starts for lane in lanes)])
        heads = np.concatenate([np.empty(0, np.int64), *(lane.heads for lane in lanes)])
        order = np.argsort(starts)
        return starts[order], np.append(BEFORE_ALL_TIME, heads[order])

    def _read(self, source: int, readings: Sequence[LaneReading]) -> dict[tuple[str, int], Rises]:
        """Return where the lanes of a source of time let it rise, and to what."""
        found: dict[tuple[str, int], list[Rises]] = {}
        for reading in readings:
            name = reading.feed_name, reading.partition
            lane, readers = self._lanes.get(name), self._readers[reading.feed_name]
            for index, (slots, rises) in reading.times.items() if lane is not None else ():
                if self._sources[index] == source and lane is not None:
                    places = lane.positions(lane.shifted(reading, slots), len(readers)) + readers.index(index)
                    found.setdefault(name, []).append((places, rises))
        return {name: _concatenated(parts) for name, parts in found.items()}


def _fastest(clock: Clock, read: Mapping[tuple[str, int], Rises], set_back: Mapping[str, int]) -> Clock:
    """Let a clock rise with the records of all lanes (T1)."""
    places, times = _concatenated([(places, times - set_back.get(feed, 0)) for (feed, _), (places, times) in read.items()])
    return replace(clock, entered=_first_place(read)).rising(places, times, clock.start + clock.silence_ms)


def _first_place(read: Mapping[tuple[str, int], Rises]) -> int:
    return min((int(places.min(initial=NEVER)) for places, _ in read.values()), default=NEVER)


def _concatenated(parts: Sequence[Rises]) -> Rises:
    nothing = np.empty(0, np.int64)
    return np.concatenate([nothing, *(places for places, _ in parts)]), np.concatenate([nothing, *(times for _, times in parts)])


def _set_back(inputs: Sequence[Input], waits: Mapping[int, int]) -> dict[str, int]:
    """Return by how much the time of each feed is set back, because others have waited longer (T1d)."""
    longest_ms = max(waits.get(item.index, 0) for item in inputs)
    return {item.feed.name: longest_ms - waits.get(item.index, 0) for item in inputs}


@dataclass(frozen=True, slots=True)
class _Lane:
    """Where the records and marks of a lane stand in the merge: runs of equal head, each of which stands together.

    Attributes:
        slots: the first slot of each run, ascending.
        starts: its position.
        heads: its head.
        last_end: the position behind the last run.
        marks: of all parts.
        shifts: by how many marks of earlier parts the slots of each part are behind those of the lane, by its first slot.
    """

    slots: I64
    starts: I64
    heads: I64
    last_end: int
    marks: I64
    shifts: Mapping[int, int]

    def shifted(self, reading: LaneReading, slots: I64) -> I64:
        """Return slots of a part as slots of the lane."""
        return slots + self.shifts[int(reading.heads[0][0])]

    def positions_of(self, offsets: I64, readers: int) -> I64:
        """Return where records stand."""
        return self.positions(offsets + np.searchsorted(self.marks, offsets, "right") if len(self.marks) else offsets, readers)

    def positions(self, slots: I64, readers: int) -> I64:
        """Return where records and marks stand."""
        runs = np.searchsorted(self.slots, slots, "right") - 1
        found: I64 = self.starts[runs] + (slots - self.slots[runs]) * readers
        return found


def _merged(
    readings: Sequence[LaneReading], declared: Mapping[str, int], readers: Mapping[str, list[int]], base: int
) -> dict[tuple[str, int], _Lane]:
    """Put the runs of equal head of all lanes into order: by head, declared index of the feed, partition, slot."""
    parts: dict[tuple[str, int], list[LaneReading]] = {}
    for reading in readings:
        if reading.end > reading.heads[0][0]:
            parts.setdefault((reading.feed_name, reading.partition), []).append(reading)
    keys = sorted(parts, key=lambda key: lane_of(declared[key[0]], key[1]))
    if not keys:
        return {}
    joined, extents = zip(*(_joined(parts[key]) for key in keys), strict=True)
    slots, heads = (np.concatenate([getattr(lane, name) for lane in joined]) for name in ("slots", "heads"))
    sizes = np.concatenate(extents)
    runs = [len(lane.slots) for lane in joined]
    lanes = np.repeat(np.arange(len(keys)), runs)
    sizes = sizes * np.array([len(readers[feed]) for feed, _ in keys])[lanes]
    order = np.lexsort((slots, lanes, heads))
    starts = np.empty(len(order), np.int64)
    starts[order] = base + np.cumsum(sizes[order]) - sizes[order]
    own = zip(*(np.split(values, np.cumsum(runs)[:-1]) for values in (starts, starts + sizes)), strict=True)
    return {
        key: replace(lane, starts=begins, last_end=int(ends.max()))
        for key, lane, (begins, ends) in zip(keys, joined, own, strict=True)
    }


def _joined(readings: Sequence[LaneReading]) -> tuple[_Lane, I64]:
    """Put the parts of a lane one behind the other; where its runs stand is not known yet. Return the lane, and the extent of each run.

    Offsets between two parts are no one's.
    """
    ordered = sorted(readings, key=lambda reading: int(reading.heads[0][0]))
    earlier = np.cumsum([0, *(len(reading.marks) for reading in ordered)]).tolist()
    head, parts = None, []
    for reading, shift in zip(ordered, earlier, strict=False):
        before, heads = running_clock(head, reading.heads[1])
        is_risen = heads > before
        is_risen[0] = True
        head, slots = int(heads[-1]), reading.heads[0][is_risen]
        parts.append((slots + shift, np.diff(slots, append=reading.end), heads[is_risen]))
    slots, extents, heads = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    has_rows = extents > 0  # of what rises at one slot the last counts
    shifts = {int(reading.heads[0][0]): shift for reading, shift in zip(ordered, earlier, strict=False)}
    marks = np.concatenate([reading.marks for reading in ordered])
    return _Lane(slots[has_rows], slots[has_rows], heads[has_rows], 0, marks, shifts), extents[has_rows]


def rises(offsets: I64, times: I64, head: int | None = None) -> Rises:
    """Return where the running maximum of event times rises.

    Args:
        offsets: of records, ascending.
        times: their event times.
        head: the maximum of what was read of the lane before; None: nothing, and the first record counts as a rise.
    """
    before, after = running_clock(head, times)
    is_risen = after > before
    is_risen[:1] |= head is None
    return offsets[is_risen], after[is_risen]


def declared_indices(inputs: Sequence[Input]) -> dict[str, int]:
    """Return the declared index of each feed, by name: the smallest of the inputs that read it."""
    declared: dict[str, int] = {}
    for item in inputs:
        declared[item.feed.name] = min(item.index, declared.get(item.feed.name, item.index))
    return declared


def lane_of(declared_index: int, partition: int) -> int:
    """Return the lane of a partition of a feed."""
    return declared_index << PARTITION_BITS | partition


def _readers(inputs: Sequence[Input]) -> dict[str, list[int]]:
    readers: dict[str, list[int]] = {}
    for item in sorted(inputs, key=lambda item: item.index):
        readers.setdefault(item.feed.name, []).append(item.index)
    return readers
