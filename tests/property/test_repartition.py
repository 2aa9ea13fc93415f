"""Another number of tasks: state that is shared out and brought together again is the state that it was, and no result changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.errors import RepartitionPremature
from engine.frames.frames import Counters, merge_counters
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.tasks.pipeline import Pipeline
from engine.operators.tasks.rescaling import repartitioned
from engine.plan.build import build_plan
from engine.plan.model import Feed, Plan, needs_ticks
from engine.plan.operators.operator import Operator
from engine.plan.operators.stream_stream_join import StreamStreamJoin
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.plan.operators.suppression import TimeLimitSuppression, WallClockSuppression
from engine.plan.operators.windows import WindowedAggregation
from engine.state.segments.memory import MemorySegmentStore
from engine.state.segments.ports import named_segments
from tests.examples import examples
from tests.property.hashings import hashings
from tests.property.test_definitions import CATALOG as DRAWN
from tests.property.test_definitions_run import Record, _comparable, run, runs, table
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
        clocks: as of the last batch.
    """

    def __init__(self, plan: Plan, tasks: int, hashing: KeyHash = UNSEEDED) -> None:
        self.plan, self._hashing = replace(plan, tasks=tasks), hashing
        self._stores = stores_of(self.plan, hashing)
        self._pipeline = Pipeline(self.plan, None, lambda *place: self._stores[place])
        self.counters: Counters = {}
        self.clocks: dict[str, int | None] = {}

    def change(self, tasks: int) -> None:
        """Share the state out; nothing of the old tasks is there afterwards."""
        states = json.loads(json.dumps(self._pipeline.snapshot()))
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
        self._pipeline = Pipeline(self.plan, shared, lambda *place: self._stores[place])

    def process(self, records: Sequence[Any], first: int, now_ms: int) -> tuple[list[tuple[Any, ...]], bool]:
        step = self._pipeline.process(slices(self.plan, records, first), now_ms=now_ms)
        merge_counters(self.counters, step.counters)
        self.clocks = step.clocks
        return [_comparable(row) for frame in step.changes for row in frame.rows()], step.failure is None


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(runs(), st.lists(st.integers(1, 4), min_size=1, max_size=3), hashings())
def test_state_that_was_shared_out_and_brought_together_gives_every_change_as_before(
    given_run: tuple[Plan, list[Record], list[int]], between: list[int], hashing: KeyHash
) -> None:
    plan, records, cuts = given_run
    for operator in (operator for stage in plan.stages for operator in stage.operators):
        event(type(operator).__name__)
    if holds_by_time(plan):
        records = [record._replace(ts=record.ts + place) for place, record in enumerate(records)]
    expected = run(plan, records, cuts)
    tasks, changes = Tasks(plan, 1, hashing), []
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


def holds_by_time(plan: Plan) -> bool:
    """Whether records wait in the order of time alone: those of one time and of several tasks come together in the order of the tasks."""
    operators = [operator for stage in plan.stages for operator in stage.operators]
    return any(isinstance(operator, StreamTableJoin) and operator.grace_ms is not None for operator in operators)


ARRIVAL = {"first_by_arrival", "last_by_arrival", "collect_list", "concat", "trace"}
FAR_MS = 400 * 86_400_000
LATENESS = {
    "window_closed", "join_window_closed", "late_joined", "late_dropped", "late_diverted", "history_expired", "expired_dropped",
    "expired_diverted", "table_history_expired",
}  # fmt: skip


def depends_on_tasks(plan: Plan) -> bool:
    """Whether results of records in the order of time still depend on which keys share a task's clock or order."""
    for operator in (operator for stage in plan.stages for operator in stage.operators):
        if isinstance(operator, StreamTableJoin) and operator.history_retention_ms is None and operator.grace_ms is not None:
            return True  # what is released meets the latest row of that moment
        if isinstance(operator, TimeLimitSuppression | WallClockSuppression) and operator.buffer is not None:
            return True
        if isinstance(operator, TimeLimitSuppression) and plan.output.kind == "stream":
            return True  # a change that a task's clock has not released yet is replaced by the next one of its key (S1)
        if isinstance(operator, WindowedAggregation) and operator.emit == "corrections":
            return True  # a task whose clock jumps over end and closing gives the final result alone (S6)
        functions = {column.function for column in getattr(operator, "aggregates", ())}
        if len(plan.stages) > 1 and functions & ARRIVAL:
            return True
    return plan.idle_after_ms is not None


def depended_on_tasks(plan: Plan, tasks: Tasks) -> bool:
    """Whether it shows in what a run has counted that its results depend on which keys share a task's clock or order.

    - Something was late, or came for what had expired. Behind an operator that waits, records come as far out of order as one
      task's clock is behind another's, and lateness is what may differ (P4).
    - The last records, which release and close whatever waits, did not reach an operator that waits: a filter, a join or a group
      that is null has dropped them, and dropped records move no clock (T6). Then only what each task's clock had released is seen.
    - Answers of a foreign-key join were superseded, and every change is a record of a stream. One record changed a left row of the
      join twice, or both a left row and the right row that it references, as it may where a relation is read more than once. The
      tasks of two foreign keys then answer for one left row, and what one record causes stands by task (P6): an answer to the
      older left row that stands behind the one to the newer is not shown. A table shows the same in the end.
    """
    reasons = {reason for _, reason in tasks.counters}
    if reasons & LATENESS or (plan.output.kind == "stream" and "superseded" in reasons):
        return True
    waiting = [operator.name for stage in plan.stages for operator in stage.operators if waits_for_its_clock(operator)]
    return any((tasks.clocks[name] or 0) < FAR_MS for name in waiting)


def waits_for_its_clock(operator: Operator) -> bool:
    match operator:
        case WindowedAggregation():
            return operator.emit != "changes"
        case StreamTableJoin():
            return operator.grace_ms is not None
        case StreamStreamJoin():
            return any(operator.shown_alone) and not operator.is_eager
    return isinstance(operator, TimeLimitSuppression)


def in_order(records: Sequence[Record]) -> list[Record]:
    """The records at rising times, and behind them, twice, one of each relation that releases and closes what waits.

    The second time for what a later operator holds of what the first time brought it. Of each relation it is the record with the
    fewest nulls, which operators drop. Those of tables come last: what streams have waiting meets the tables as they were.
    """
    rising = [record._replace(ts=place * 300_000) for place, record in enumerate(records)]
    by_relation: dict[str, Record] = {}
    for record in sorted(records, key=lambda each: -sum(value is None for value in each.row.values())):
        if record.op == 0:
            by_relation[record.relation] = record
    kinds = [
        [record for name, record in by_relation.items() if DRAWN[name].relation.kind == kind] for kind in ("stream", "table")
    ]
    last = [record for of_kind in kinds for record in (*of_kind, *of_kind)]
    return [*rising, *(record._replace(ts=FAR_MS * place) for place, record in enumerate(last, 1))]


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(runs(), st.lists(st.integers(1, 4), min_size=6, max_size=6))
def test_records_in_the_order_of_time_give_the_same_whatever_the_number_of_tasks_becomes(
    given_run: tuple[Plan, list[Record], list[int]], counts: list[int]
) -> None:
    plan, given_records, cuts = given_run
    assume(not depends_on_tasks(plan))
    records = in_order(given_records)
    batches = [*pairwise([0, *(cut for cut in cuts if cut < len(given_records)), len(given_records)])]
    found = []
    for numbers in ([1] * len(batches), [1, *counts]):
        tasks, changes = Tasks(plan, 1), []
        steps = [(*batch, batch[0] * 40_000) for batch in batches]
        for (start, stop, now_ms), count in zip(steps, numbers, strict=False):
            tasks.change(count)
            made, _ = tasks.process(records[start:stop], start, now_ms)
            changes += made
        tasks.change(1)
        for place in range(
            len(given_records), len(records) + 1
        ):  # the last time without a record, for what waits for the wall clock
            made, _ = tasks.process(records[place : place + 1], place, FAR_MS * (place + 1))
            changes += made
        assume(not depended_on_tasks(plan, tasks))
        found.append(changes)
    assert comparable(plan, found[1]) == comparable(plan, found[0])


def comparable(plan: Plan, changes: list[tuple[Any, ...]]) -> Any:
    """Give changes a form that does not depend on how tasks took turns: what a table shows at the end, or all of them sorted."""
    operators = [operator for stage in plan.stages for operator in stage.operators]
    has_finals = any(isinstance(operator, WindowedAggregation) and operator.emit != "changes" for operator in operators)
    return sorted(changes) if plan.output.kind == "stream" or has_finals else table(plan, changes)


@pytest.mark.parametrize("tasks", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["stream", "table"])
def test_answers_that_another_to_the_same_record_supersedes_are_counted_and_change_no_table(kind: str, tasks: int) -> None:
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
    found = []
    for number in (1, tasks):
        running = Tasks(plan, number)
        found.append(running.process(records, 0, 0)[0])
    whole, shared = found
    superseded = sum(count for (_, reason), count in running.counters.items() if reason == "superseded")
    assert bool(superseded) == (tasks > 1)
    assert (Counter(whole) - Counter(shared)).total() == superseded
    assert Counter(shared) <= Counter(whole)
    assert table(plan, shared) == table(plan, whole)


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

    found = [changes_of([1] * len(steps), UNSEEDED)]
    with nullcontext() if step_rows is None else tiny_steps(step_rows):
        found.append(changes_of([tasks for tasks, _ in steps], hashing))
    if kind.endswith("_corrected"):  # a task whose clock jumps over end and closing gives the final result alone (S6)
        found = [[change for change in changes if "'final'" in change] for changes in found]
    assert comparable(plan, found[1]) == comparable(plan, found[0])


@pytest.mark.parametrize("kind", [kind for kind in sorted(KINDS) if not holds_by_time(planned(kind))])
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


def test_tasks_that_closed_more_than_a_raised_grace_would_do_not_come_together_yet() -> None:
    plan = planned("tumbling_final")
    tasks = Tasks(plan, 4)
    given_records = some_records(1, 40)
    ahead = Record("s", {"k": "a", "g": "X", "n": 1, "x": 1.0}, given_records[-1].ts + 600 * MINUTE_MS, 0)
    tasks.process([*given_records, ahead], 0, 0)
    tasks.plan = longer(tasks.plan, 30 * 60 * MINUTE_MS)
    with pytest.raises(RepartitionPremature, match="the grace was raised"):
        tasks.change(1)
    tasks.plan = longer(tasks.plan, 0)
    tasks.change(1)
    assert tasks.process(closing(ahead.ts), 41, 0)[0]


def longer(plan: Plan, grace_ms: int) -> Plan:
    stages = [
        replace(
            stage,
            operators=tuple(replace(each, grace_ms=grace_ms) if hasattr(each, "grace_ms") else each for each in stage.operators),
        )
        for stage in plan.stages
    ]
    return replace(plan, stages=tuple(stages))
