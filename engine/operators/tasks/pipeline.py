"""A whole query in one process: every task of every stage, and the exchanges between them.

What Spark does with packets, without Spark: tests and the conformance corpora run definitions through it. Everything a stage emits
for the next goes to the task of its key's hash, as ``engine.spark`` sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from engine.errors import EngineError
from engine.frames.clocks import BEFORE_ALL_TIME, Clock
from engine.frames.frames import KEY_HASH, Counters, empty_late, merge_counters
from engine.frames.places import place_order
from engine.operators.operators import Emission
from engine.operators.tasks.lateness import Counted, summed
from engine.operators.tasks.order import BatchOrder, LaneReading
from engine.operators.tasks.progress import PartitionProgress
from engine.operators.tasks.query_times import QueryTimes
from engine.operators.tasks.slices import UPSTREAM, Slice
from engine.operators.tasks.slowest import Lane
from engine.operators.tasks.task import build_task
from engine.plan.model import Plan
from engine.state.segments.ports import SegmentStore


class Step:
    """What one batch made of a whole query.

    Attributes:
        changes: ``_ts``, ``_op`` and the output columns: the tasks' emissions one task after the other.
        causes: like ``changes``: where each row stands (``Emission.causes``).
        opened: like ``changes``, apart from them: what open windows have now (``Emission.opened``).
        late: rows that must be kept for reading, over all tasks in the order of their places.
        counters: over all tasks.
        wakes_at_ms: the earliest wall clock at which a task has something to do without input.
        dues: of each task: ``Emission.dues``.
        failure: why the query must fail after this batch.
        lateness: gauge → histogram, over all tasks.
        clocks: operator → the time before it; ``<operator>.table`` → that of the table beside it. Absent before the first record.
        newest_head: how far the merge of the inputs has come with the batch; None where it brought no records.
        order: of the batch.
        clock_behind: the time behind the last operator.
    """

    def __init__(self) -> None:
        self.changes: list[pl.DataFrame] = []
        self.causes: list[pl.DataFrame] = []
        self.opened: list[pl.DataFrame] = []
        self.late: pl.DataFrame = empty_late()
        self.counters: Counters = {}
        self.wakes_at_ms: int | None = None
        self.dues: list[Mapping[str, int]] = []
        self.failure: EngineError | None = None
        self.lateness: dict[str, Counted] = {}
        self.clocks: dict[str, int] = {}
        self.newest_head: int | None = None
        self.order: BatchOrder
        self.clock_behind: Clock

    def add(self, emission: Emission) -> None:
        """Take over what a task made, but for its changes: the last stage's alone are the query's."""
        if emission.late.height:
            self.late = pl.concat([self.late, emission.late])
        merge_counters(self.counters, emission.counters)
        self.failure = self.failure or emission.failure
        self.lateness = summed(self.lateness, emission.lateness)

    def add_waiting(self, wakes_at_ms: int | None, dues: Mapping[str, int]) -> None:
        """Take over what waits in a task, which may have had nothing to do."""
        self.wakes_at_ms = min((ms for ms in (self.wakes_at_ms, wakes_at_ms) if ms is not None), default=None)
        self.dues.append(dues)


class Pipeline:
    """Runs a plan.

    Args:
        plan: what to run, with as many tasks as it says.
        state: what ``snapshot`` returned, or None.
        store: gives each task's place for segments: (stage, task) → store.
    """

    def __init__(self, plan: Plan, state: dict[str, Any] | None, store: Callable[[int, int], SegmentStore]) -> None:
        self._plan = plan
        self._times = QueryTimes.of_snapshot(None if state is None else state["times"])
        # Of a task that was just built nothing is known: the definition may have been edited.
        self._known: dict[tuple[int, int], tuple[int | None, Mapping[str, int]]] = {}
        self._stages = [
            [
                build_task(stage, plan, None if state is None else state["tasks"][stage.index][task], store(stage.index, task))
                for task in range(plan.tasks)
            ]
            for stage in plan.stages
        ]

    def snapshot(self) -> dict[str, Any]:
        """Return the times of the query and every task's state, JSON-able."""
        return {"times": self._times.snapshot(), "tasks": [[task.snapshot() for task in tasks] for tasks in self._stages]}

    def process(
        self,
        slices: Iterable[Slice],
        now_ms: int = 0,
        readings: Sequence[PartitionProgress] = (),
        awake_ms: int | None = None,
        *,
        lanes: Sequence[LaneReading],
        is_release: bool = False,
        idle: Iterable[Lane] = (),
    ) -> Step:
        """Handle one batch. Tasks that get no records and have nothing due do nothing, as in ``engine.runtime.stages``.

        Args:
            slices: records of the plan's inputs, of all tasks together.
            now_ms: the wall clock.
            readings: how far it read the feeds' partitions that some operator holds for (J9).
            awake_ms: see ``QueryTimes.at``.
            lanes: what the readers say of the lanes.
            is_release: see ``Task.process``.
            idle: see ``QueryTimes.at``.
        """
        raw = list(slices)
        times = self._times.at(now_ms, awake_ms, readings, idle)
        order = times.order(self._plan, lanes, is_release=is_release)
        self._times = times.behind(self._plan, order, lanes)
        step = Step()
        step.clocks = {
            name: clock.end for (_, name), clock in order.operator_clocks(self._plan).items() if clock.end != BEFORE_ALL_TIME
        }
        step.newest_head, step.order = order.newest_head, order
        step.clock_behind = order.between[-1][-1]
        emitted: list[tuple[int, Emission]] = []
        for stage in self._plan.stages:
            own = {item.index for item in self._plan.inputs if item.stage == stage.index}
            given = [item for item in raw if item.input_index in own]
            given += [Slice(UPSTREAM, "", ordinal, each.changes) for ordinal, each in emitted if each.changes.height]
            emitted = []
            for ordinal, task in enumerate(self._stages[stage.index]):
                share, place = _share(given, ordinal, self._plan.tasks), (stage.index, ordinal)
                if share or is_release or place not in self._known or task.is_due(order, times.now_ms):
                    emission = task.process(share, order, times.now_ms, is_release=is_release)
                    self._known[place] = emission.wakes_at_ms, emission.dues
                    step.add(emission)
                    emitted.append((ordinal, emission))
                step.add_waiting(*self._known[place])
        wake = self._times.wakes_at_ms(self._plan, order, step.dues)
        known = [ms for ms in (step.wakes_at_ms, wake) if ms is not None]
        step.wakes_at_ms = min(known, default=None)
        step.changes = [each.changes for _, each in emitted if each.changes.height]
        step.late = step.late[place_order(step.late)]
        step.causes = [each.causes for _, each in emitted if each.causes.height]
        step.opened = [each.opened for _, each in emitted if each.opened.height]
        return step


def _share(slices: Iterable[Slice], ordinal: int, tasks: int) -> list[Slice]:
    """Return the rows of one task; rows without a key belong to task 0."""
    if tasks == 1:
        return list(slices)
    shares = []
    for item in slices:
        hashes = item.frame.get_column(KEY_HASH).fill_null(0).to_numpy()
        rows = np.flatnonzero(hashes % np.uint64(tasks) == ordinal)
        if len(rows):
            shares.append(Slice(item.input_index, item.feed_name, item.partition, item.frame[rows]))
    return shares
