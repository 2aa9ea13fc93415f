"""Another number of tasks: state that is shared out and brought together again is the state that it was, and no result changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from engine.core.pipeline import Pipeline
from engine.core.ports import SegmentStore, named_segments
from engine.core.repartition.tasks import repartitioned
from engine.plan.clock import needs_ticks
from engine.plan.folding import unfolded
from engine.plan.model import Plan
from engine.state.memory import MemorySegmentStore
from tests.property.test_definitions_run import Record, _comparable, _slices, run, runs


class Tasks:
    """A plan that runs with one number of tasks and then with another."""

    def __init__(self, plan: Plan, tasks: int) -> None:
        self.plan = replace(plan, tasks=tasks)
        self._stores: dict[tuple[int, int], MemorySegmentStore] = {}
        self._pipeline = Pipeline(self.plan, None, self._store)

    def _store(self, stage: int, task: int) -> SegmentStore:
        return self._stores.setdefault((stage, task), MemorySegmentStore())

    def change(self, tasks: int) -> None:
        """Share the state out; nothing of the old tasks is there afterwards."""
        states = json.loads(json.dumps(self._pipeline.snapshot()))
        old, self._stores = self._stores, {}
        shared = [
            repartitioned(
                stage,
                self.plan,
                [(state, old[stage.index, task]) for task, state in enumerate(states[stage.index])],
                [self._store(stage.index, task) for task in range(tasks)],
            )
            for stage in self.plan.stages
        ]
        self.plan = replace(self.plan, tasks=tasks)
        shared = json.loads(json.dumps(shared))
        for stage, found in enumerate(shared):
            for task, state in enumerate(found):
                assert named_segments(state) <= self._stores[stage, task].segment_ids
        self._pipeline = Pipeline(self.plan, shared, self._store)

    def process(self, records: Sequence[Record], first: int, now_ms: int) -> tuple[list[tuple[Any, ...]], bool]:
        step = self._pipeline.process(_slices(self.plan, records, first), now_ms=now_ms)
        return [_comparable(row) for frame in step.changes for row in frame.rows()], step.failure is None


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(runs(), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_state_that_was_shared_out_and_brought_together_gives_every_change_as_before(
    given_run: tuple[Plan, list[Record], list[int]], between: list[int]
) -> None:
    plan, records, cuts = given_run
    for operator in (operator for stage in plan.stages for operator in stage.operators):
        event(type(operator).__name__)
    plan = unfolded(plan)
    expected = run(plan, records, cuts)
    tasks, changes = Tasks(plan, 1), []
    for start, stop in pairwise([0, *cuts, len(records)]):
        for count in (*between, 1):
            tasks.change(count)
        made, is_going_on = tasks.process(records[start:stop], start, start * 40_000)
        changes += made
        if not is_going_on:
            break
    if needs_ticks(plan):
        assert sorted(changes) == sorted(expected)
    else:
        assert changes == expected
