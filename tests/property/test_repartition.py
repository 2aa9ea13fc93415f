"""Another number of tasks changes no result, whenever it comes: not what rows say, not their order, not what is late (T1)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.frames.frames import Counters, merge_counters
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.frames.places import place_order
from engine.operators.tasks.rescaling import repartitioned
from engine.plan.build import build_plan
from engine.plan.model import Feed, Plan
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.state.segments.memory import MemorySegmentStore
from engine.state.segments.ports import named_segments
from tests.examples import examples
from tests.lane_readings import Pipeline
from tests.late_frames import DESCRIBED
from tests.property.hashings import hashings
from tests.property.test_definitions import CATALOG as DRAWN
from tests.property.test_definitions_run import Record, _comparable, run, runs
from tests.property.tiny_steps import tiny_steps
from tests.stored.kinds import CATALOG, FEED, KINDS, MINUTE_MS, closing, definition, slices
from tests.stored.kinds import records as some_records


def stores_of(plan: Plan, hashing: KeyHash = UNSEEDED) -> dict[tuple[int, int], MemorySegmentStore]:
    return {(stage.index, task): MemorySegmentStore(hashing) for stage in plan.stages for task in range(plan.tasks)}


class Tasks:
    """A plan that runs with one number of tasks and then with another.

    Attributes:
        plan: with the tasks of now.
        counters: of all batches.
        late: records, as tests compare them, of all batches.
    """

    def __init__(self, plan: Plan, tasks: int, hashing: KeyHash = UNSEEDED) -> None:
        self.plan, self._hashing = replace(plan, tasks=tasks), hashing
        self._stores = stores_of(self.plan, hashing)
        self._pipeline = Pipeline(self.plan, None, lambda *place: self._stores[place])
        self.counters: Counters = {}
        self.late: list[tuple[Any, ...]] = []

    def change(self, tasks: int) -> None:
        """Share the state out; nothing of the old tasks is there afterwards."""
        kept = json.loads(json.dumps(self._pipeline.snapshot()))
        states = kept["tasks"]
        after = replace(self.plan, tasks=tasks)
        stores = stores_of(after, self._hashing)
        shared = [
            repartitioned(
                stage,
                self.plan,
                [(state, self._stores[stage.index, task]) for task, state in enumerate(states[stage.index])],
                [stores[stage.index, task] for task in range(tasks)],
            )
            for stage in self.plan.stages
        ]
        self.plan, self._stores = after, stores
        shared = json.loads(json.dumps(shared))
        for stage, found in enumerate(shared):
            for task, state in enumerate(found):
                assert named_segments(state) <= self._stores[stage, task].segment_ids
        self._pipeline = Pipeline(self.plan, {**kept, "tasks": shared}, lambda *place: self._stores[place])

    def process(self, records: Sequence[Any], first: int, now_ms: int) -> tuple[list[tuple[Any, ...]], bool]:
        """Handle a batch; returns the changes in the order of their places, and whether the query goes on."""
        step = self._pipeline.process(slices(self.plan, records, first), now_ms=now_ms)
        merge_counters(self.counters, step.counters)
        self.late += list(map(_comparable, step.late.select(DESCRIBED).rows()))
        changes = [_comparable(row) for frame in step.changes for row in frame.rows()]
        order = place_order(pl.concat(step.causes)) if changes else ()
        return [changes[row] for row in order], step.failure is None


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(runs(), st.lists(st.integers(1, 4), min_size=1, max_size=3), hashings())
def test_state_that_was_shared_out_and_brought_together_gives_every_change_as_before(
    given_run: tuple[Plan, list[Record], list[int]], between: list[int], hashing: KeyHash
) -> None:
    plan, records, cuts = given_run
    for operator in (operator for stage in plan.stages for operator in stage.operators):
        event(type(operator).__name__)
    expected = run(plan, records, cuts)
    tasks, changes = Tasks(plan, 1, hashing), []
    for start, stop in pairwise([0, *cuts, len(records)]):
        for count in (*between, 1):
            tasks.change(count)
        made, is_going_on = tasks.process(records[start:stop], start, start * 40_000)
        changes += made
        if not is_going_on:
            break
    assert changes == expected


def is_bounded_by_task(plan: Plan) -> bool:
    """Whether something is held for each task up to so many rows (J9)."""
    operators = [operator for stage in plan.stages for operator in stage.operators]
    return any(isinstance(operator, StreamTableJoin) and operator.hold is not None for operator in operators)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(runs(), st.lists(st.integers(1, 4), min_size=6, max_size=6))
def test_records_in_any_order_of_time_give_the_same_whatever_the_number_of_tasks_becomes(
    given_run: tuple[Plan, list[Record], list[int]], counts: list[int]
) -> None:
    plan, records, cuts = given_run
    assume(not is_bounded_by_task(plan))
    batches = [*pairwise([0, *cuts, len(records)])]
    found = []
    for numbers in ([1] * len(batches), [counts[place % len(counts)] for place in range(len(batches))]):
        tasks, changes = Tasks(plan, numbers[0]), []
        for (start, stop), count in zip(batches, numbers, strict=True):
            tasks.change(count)
            made, is_going_on = tasks.process(records[start:stop], start, start * 40_000)
            changes += made
            if not is_going_on:
                break
        found.append((changes, tasks.late))
    assert found[1] == found[0]


@pytest.mark.parametrize("tasks", [2, 3, 4])
@pytest.mark.parametrize("kind", ["stream", "table"])
def test_answers_to_one_record_that_changes_both_sides_stand_in_one_order_for_any_number_of_tasks(kind: str, tasks: int) -> None:
    body = {
        "name": "q",
        "from": {"table": "u", "as": "a"},
        "joins": [{"table": "u", "as": "b", "on": "a.origin = b.id", "type": "inner"}],
        "select": {"id": "a.id", "value": "b.id", "y": "b.y"},
        "into": {kind: "out"},
    }
    plan = build_plan(QueryDefinition.model_validate(body), DRAWN)
    plan = replace(plan, inputs=tuple(replace(item, feed=Feed(FEED, "log", "all"), start="earliest") for item in plan.inputs))
    ring = "abcdef"
    rows = [{"id": one, "y": float(turn), "origin": ring[(at + turn) % 6]} for turn in range(4) for at, one in enumerate(ring)]
    records = [Record("u", row, place * 1_000, 0) for place, row in enumerate(rows)]
    running = Tasks(plan, tasks)
    assert running.process(records, 0, 0) == Tasks(plan, 1).process(records, 0, 0)
    assert not any(reason == "superseded" for _, reason in running.counters)


def planned(kind: str) -> Plan:
    plan = build_plan(QueryDefinition.model_validate(definition(kind)), CATALOG)
    feed = Feed(FEED, "log", "all")
    return replace(plan, inputs=tuple(replace(item, feed=feed) for item in plan.inputs))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted({*KINDS} - {"idle", "running_lists"})),
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 25)), min_size=1, max_size=5),
    hashings(),
    st.sampled_from([None, 1, 3]),
)
def test_state_of_every_kind_goes_on_with_another_number_of_tasks(
    kind: str, seed: int, steps: list[tuple[int, int]], hashing: KeyHash, step_rows: int | None
) -> None:
    """Where steps of merges are tiny, runs of several segments are shared out."""
    plan = planned(kind)
    given_records = some_records(seed, sum(count for _, count in steps))
    last = closing(given_records[-1].ts)

    def changes_of(numbers: list[int], own: KeyHash) -> list[Any]:
        tasks, changes, first = Tasks(plan, numbers[0], own), [], 0
        for number, (_, count) in zip(numbers, steps, strict=True):
            tasks.change(number)
            batch = given_records[first : first + count]
            changes += tasks.process(batch, first, batch[-1].ts)[0]
            first += count
        tasks.change(1)
        for place, each in enumerate(last, first):
            changes += tasks.process([each], place, each.ts)[0]
        return changes

    expected = changes_of([1] * len(steps), UNSEEDED)
    with nullcontext() if step_rows is None else tiny_steps(step_rows):
        assert changes_of([tasks for tasks, _ in steps], hashing) == expected


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_waits_of_one_time_keeps_its_order_through_other_numbers_of_tasks(kind: str) -> None:
    plan = planned(kind)
    given_records = [record._replace(ts=record.ts - record.ts % (40 * MINUTE_MS)) for record in some_records(3, 120)]
    given_records += closing(given_records[-1].ts)
    found = []
    for between in ((1,), (1, 4, 3, 1)):
        tasks, changes = Tasks(plan, 1), []
        for first in range(0, len(given_records), 30):
            for count in between:
                tasks.change(count)
            changes += tasks.process(given_records[first : first + 30], first, given_records[first].ts)[0]
        found.append(changes)
    assert found[1] == found[0]


@pytest.mark.parametrize("kind", ["tumbling_final", "session_final", "sliding_final"])
def test_what_closed_under_a_shorter_grace_stays_closed_with_another_number_of_tasks(kind: str) -> None:
    given_records = some_records(1, 40)
    ahead = Record("s", {"k": "a", "g": "X", "n": 1, "x": 1.0}, given_records[-1].ts + 600 * MINUTE_MS, 0)
    found = []
    for counts in ((1, 1), (4, 1), (1, 3), (4, 3)):
        tasks = Tasks(planned(kind), counts[0])
        changes, _ = tasks.process([*given_records, ahead], 0, 0)
        tasks.plan = longer(tasks.plan, 30 * 60 * MINUTE_MS)
        tasks.change(counts[1])
        for place, each in enumerate([*given_records[-5:], *closing(ahead.ts)], 41):
            changes += tasks.process([each], place, 0)[0]
        found.append((changes, tasks.late))
    assert found[0][1]
    assert found[1:] == found[:1] * 3


def longer(plan: Plan, grace_ms: int) -> Plan:
    stages = [
        replace(
            stage,
            operators=tuple(replace(each, grace_ms=grace_ms) if hasattr(each, "grace_ms") else each for each in stage.operators),
        )
        for stage in plan.stages
    ]
    return replace(plan, stages=tuple(stages))
