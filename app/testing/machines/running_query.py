"""A query of the workbench at work: how far it reads, and what it made so far."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from app.testing.machines.memory_feed import MemoryFeed
from engine.commit.task_states import Cursor
from engine.frames.clocks import BEFORE_ALL_TIME
from engine.frames.frames import Counters, empty_late, merge_counters
from engine.log.marks import marks_of
from engine.log.sequence import CAUSES_SCHEMA, numbered
from engine.log.sequences import LANE_PARTITION
from engine.operators.tasks.pipeline import Pipeline, Step
from engine.operators.tasks.progress import PartitionProgress
from engine.operators.tasks.rescaling import repartitioned
from engine.operators.tasks.slices import Slice
from engine.plan.catalog import derived_entry
from engine.plan.model import Input, Plan, feeds_held_for, needs_ticks
from engine.records.canonical import LOGGED, canonicalise
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.admission import Admitted, Backlog, FeedPartition, admit
from engine.runtime.planning.idle_partitions import AT_END, PartitionEnds, idle_partitions
from engine.runtime.planning.upstream import Reached
from engine.sources.lane_times import LaneTimes
from engine.sources.shaping import for_input
from engine.state.segments.memory import MemorySegmentStore


@dataclass(slots=True)
class Outcome:
    """What a query made so far.

    Attributes:
        changes: ``_ts``, ``_op`` and the result's columns, in order of emission.
        late: rows that were refused, with the reason.
        counters: how many, by operator and reason.
        failure: why it stopped, None while it goes on.
    """

    changes: list[pl.DataFrame] = field(default_factory=list)
    late: pl.DataFrame = field(default_factory=empty_late)
    counters: Counters = field(default_factory=dict)
    failure: Exception | None = None


class RunningQuery:
    """One query at work, with its own position in each feed."""

    def __init__(self, plan: Plan, feeds: Mapping[str, MemoryFeed]) -> None:
        self.plan = plan
        self.outcome = Outcome()
        self.wakes_at_ms: int | None = None
        self.position: dict[str, dict[str, int]] = {
            item.feed.name: {str(partition): 0 for partition in feeds[item.feed.name].ends} for item in plan.inputs
        }
        self.read_to: dict[str, dict[str, int]] = {name: {} for name in self.position}
        self.last_marks: dict[str, int] = {}
        self._heads: dict[FeedPartition, int] = {}
        self._ends = PartitionEnds()
        self._cursor: Cursor = {"feeds": {}, "now_ms": 0}
        self._feeds = feeds
        self._has_ticks = needs_ticks(plan)
        self._held = feeds_held_for(plan)
        self._stores: dict[tuple[int, int, int], MemorySegmentStore] = {}
        self._generation = 0
        self._pipeline = self._built(None)

    def replan(self, plan: Plan) -> None:
        """Stop and start again with a plan that fits what is kept, which may read further feeds."""
        for item in plan.inputs:
            places = {str(partition): 0 for partition in self._feeds[item.feed.name].ends}
            self.position.setdefault(item.feed.name, places)
            self.read_to.setdefault(item.feed.name, {})
        self.plan = replace(plan, tasks=self.plan.tasks)
        self.restart()

    def restart(self, tasks: int | None = None) -> None:
        """Stop and start again from what is kept, perhaps with another number of tasks."""
        kept = json.loads(json.dumps(self._pipeline.snapshot()))
        state = kept["tasks"]
        if tasks is not None and tasks != self.plan.tasks:
            before = [[self._store(stage.index, task) for task in range(self.plan.tasks)] for stage in self.plan.stages]
            self._generation += 1
            after = replace(self.plan, tasks=tasks)
            state = [
                repartitioned(
                    stage,
                    after,
                    list(zip(state[stage.index], before[stage.index], strict=True)),
                    [self._store(stage.index, task) for task in range(tasks)],
                )
                for stage in self.plan.stages
            ]
            self.plan = after
            state = [[None if each is None else json.loads(json.dumps(each)) for each in of_stage] for of_stage in state]
        for place, store in self._stores.items():
            if place[0] == self._generation:
                store.purge()
        self._pipeline = self._built({**kept, "tasks": state})

    def _built(self, state: dict[str, Any] | None) -> Pipeline:
        return Pipeline(self.plan, state, self._store)

    def _store(self, stage: int, task: int) -> MemorySegmentStore:
        return self._stores.setdefault((self._generation, stage, task), MemorySegmentStore())

    def read(self, now_ms: int, limit: BatchLimit, behind: Mapping[str, Reached]) -> pl.DataFrame | None:
        """Handle a batch; returns the changes, None where there was nothing to do.

        Args:
            now_ms: the wall clock.
            limit: how much is read.
            behind: of the derived feeds, how far what stands behind them has come.
        """
        if self.outcome.failure is not None:
            return None
        admitted = self._with_marks(self._admit(limit, behind))
        is_due = self.wakes_at_ms is not None and self.wakes_at_ms <= now_ms
        if not admitted.ends and not (self._has_ticks and is_due):
            return None
        lanes = {place: self._lane_times(*place) for place in admitted.ends}
        slices = [piece for item in self.plan.inputs for piece in self._slices(item, admitted, lanes, now_ms)]
        readings = [lanes[place].reading(*place, end) for place, end in admitted.ends.items()]
        idle, idle_at_ms = self._idle(admitted, behind, now_ms)
        step = self._pipeline.process(slices, now_ms, self._readings(admitted, behind), lanes=readings, idle=idle)
        self._advance(admitted)
        self.wakes_at_ms, self.outcome.failure = step.wakes_at_ms, step.failure
        if idle_at_ms is not None:
            self.wakes_at_ms = min(idle_at_ms, self.wakes_at_ms or idle_at_ms)
        merge_counters(self.outcome.counters, step.counters)
        if step.late.height:
            self.outcome.late = pl.concat([self.outcome.late, step.late])
        return self._emitted(step)

    def _admit(self, limit: BatchLimit, behind: Mapping[str, Reached]) -> Admitted:
        backlogs = []
        for name, partitions in self.position.items():
            is_table = all(item.relation.kind == "table" for item in self.plan.inputs if item.feed.name == name)
            for partition, end in self._feeds[name].ends.items():
                start = partitions.setdefault(str(partition), 0)
                if start < end:
                    chunks = self._feeds[name].chunks(partition, start)
                    head = self._heads.get((name, partition))
                    backlogs.append(Backlog(name, partition, start, chunks, is_table, is_whole=True, head=head))
        is_merged = sum(len(self._feeds[name].ends) for name in self.position) > 1
        late = [each.merged_to_ms for name, each in behind.items() if not each.is_at_end and name not in self._held]
        horizon_ms = min((-1 if ms is None else ms for ms in late), default=None) if is_merged else None
        return admit(backlogs, limit, self._first_at if is_merged else None, horizon_ms)

    def _with_marks(self, admitted: Admitted) -> Admitted:
        """Let the batch read also the marks of derived feeds of which it reads no row (P14)."""
        derived = {item.feed.name for item in self.plan.inputs if item.feed.is_derived}
        places = {name: self.position[name].setdefault(str(LANE_PARTITION), 0) for name in sorted(derived)}
        newest = {name: self._feeds[name].marks(start, start, admitted.cut_ms).last_ms for name, start in places.items()}
        ends = {
            (name, LANE_PARTITION): places[name]
            for name, last_ms in newest.items()
            if last_ms is not None and last_ms > self.last_marks.get(name, BEFORE_ALL_TIME)
        }
        return replace(admitted, ends={**ends, **admitted.ends})

    def _first_at(self, backlog: Backlog, start: int, end: int, bound_ms: int) -> int:
        return self._feeds[backlog.feed].first_at(backlog.partition, start, end, bound_ms)

    def _lane_times(self, feed: str, partition: int) -> LaneTimes:
        return LaneTimes(self._heads.get((feed, partition)), self.position[feed][str(partition)])

    def _slices(self, item: Input, admitted: Admitted, lanes: Mapping[FeedPartition, LaneTimes], now_ms: int) -> Iterator[Slice]:
        """Give an input's records of a batch; note in ``lanes`` where they let head and time rise."""
        for (name, partition), end in admitted.ends.items():
            if name != item.feed.name:
                continue
            start = self.position[name][str(partition)]
            inputs = [each for each in self.plan.inputs if each.feed.name == name]
            if item == inputs[0]:
                lanes[name, partition].add_times(*self._feeds[name].heads(partition, start, end))
                if item.feed.is_derived:
                    marks = self._feeds[name].marks(start, end, admitted.cut_ms)
                    lanes[name, partition].add_marks(marks, inputs)
                    if marks.last_ms is not None:
                        self.last_marks[name] = max(marks.last_ms, self.last_marks.get(name, marks.last_ms))
            for frame in self._feeds[name].read(item.source_name, partition, start, end):
                accepted = frame if item.part_of is None else _of_part(frame, item, now_ms)
                if accepted.height:
                    lanes[name, partition].add_records(item, accepted)
                records = for_input(accepted, item)
                if records.height:
                    yield Slice(item.index, name, partition, records)

    def _readings(self, admitted: Admitted, behind: Mapping[str, Reached]) -> list[PartitionProgress]:
        """Say how far the feeds are read that some operator holds for."""
        readings = []
        for name in self._held:
            for partition, end in self._feeds[name].ends.items():
                start = self.position[name][str(partition)]
                last = admitted.ends.get((name, partition), start)
                newest, is_read = self._feeds[name].newest(partition, start, last), last >= end
                if name in behind and is_read:
                    readings.append(PartitionProgress(name, partition, behind[name].read_to_ms, behind[name].is_at_end))
                else:
                    readings.append(PartitionProgress(name, partition, newest, is_read and name not in behind))
        return readings

    def _idle(
        self, admitted: Admitted, behind: Mapping[str, Reached], now_ms: int
    ) -> tuple[tuple[FeedPartition, ...], int | None]:
        """Return the partitions that do not make time (T12), and when the next one no longer will."""
        after_ms = self.plan.slowest_after_ms
        if after_ms is None:
            return (), None
        start = self._cursor
        ends = {(name, partition): end for name in self.position for partition, end in self._feeds[name].ends.items()}
        feeds = {name: dict(partitions) for name, partitions in self.position.items()}
        for (name, partition), end in admitted.ends.items():
            feeds[name][str(partition)] = end
        at_end = self._ends.look(start, ends, admitted.ends, behind, now_ms)
        self._cursor = {"feeds": feeds, "now_ms": now_ms, AT_END: at_end}
        coming = (since_ms + after_ms for partitions in at_end.values() for since_ms in partitions.values())
        return idle_partitions(start, self._cursor, after_ms), min((ms for ms in coming if ms > now_ms), default=None)

    def _advance(self, admitted: Admitted) -> None:
        """Take over how far the batch reads."""
        for (name, partition), end in admitted.ends.items():
            start = self.position[name][str(partition)]
            newest = self._feeds[name].newest(partition, start, end)
            self.position[name][str(partition)] = end
            if end > start:
                self._heads.pop((name, partition), None)
            if newest is not None:
                known = self.read_to[name]
                known[str(partition)] = max(known.get(str(partition), newest), newest)
        self._heads |= admitted.heads

    def _emitted(self, step: Step) -> pl.DataFrame | None:
        """Append what came out to the result's feed."""
        feed = self._feeds[derived_entry(self.plan).feed.name]
        numbers = numbered(step.causes, feed.reached_ms, step.newest_head)
        causes = numbers.in_order(step.causes, CAUSES_SCHEMA)
        reached = (feed.reached_ms, step.newest_head)
        marks = marks_of(causes, step.clock_behind, step.order.heads, feed.ends[0], reached, feed.last_mark_ms)
        feed.append_rows(self.plan.output.name, step.changes, numbers, marks)
        if not step.changes:
            return None
        changes = numbers.in_order(step.changes)
        self.outcome.changes.append(changes)
        return changes


def _of_part(frame: pl.DataFrame, item: Input, now_ms: int) -> pl.DataFrame:
    """Judge what another query wrote as records of the stream that it appends to."""
    accepted, _ = canonicalise(frame, item.relation, now_ms, LOGGED, None)
    return accepted
