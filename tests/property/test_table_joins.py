"""The table-table join equals its record-by-record models, in every slicing and wherever it restarts."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames.hashing import UNSEEDED, KeyHash
from engine.frames.places import place_order
from engine.operators.joins.table_table import TableTableJoiner
from engine.plan.operators.table_table_join import TableTableJoin
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import RunningTimes
from tests.examples import examples
from tests.property import table_join_model as model
from tests.property.hashings import hashings
from tests.property.table_join_model import LEFT, RIGHT, JoinModel, Step, Told

TYPES = st.sampled_from(["inner", "left", "right", "outer"])
RETENTIONS = st.sampled_from([0, 3, 8, 20, 100])
STEP = st.builds(
    Step,
    side=st.sampled_from(["left", "right"]),
    key=st.sampled_from(["a", "a", "b", "c", None]),
    value=st.sampled_from(["u", "v", None]),
    ts=st.integers(0, 30),
    is_joined=st.booleans(),
)
STEPS = st.lists(STEP, max_size=12) | st.lists(STEP, min_size=25, max_size=60)  # long ones are rare otherwise
CUTS = st.sets(st.integers(0, 60), max_size=12) | st.just(set(range(60)))


def run(
    spec: TableTableJoin, steps: list[Step], cuts: set[int], hashing: KeyHash = UNSEEDED, *, restarts: bool = True
) -> tuple[list[Told], Counter[str], list[tuple[int, int]]]:
    """Give the steps to the operator in slices; returns what it told, its counters, its late rows."""
    store = MemorySegmentStore(hashing)
    joiner = TableTableJoiner(spec, LEFT, RIGHT, None, store)
    told: list[Told] = []
    counters: Counter[str] = Counter()
    late: list[tuple[int, int]] = []
    placed = list(zip(model.positions(steps), steps, strict=True))
    times = RunningTimes()
    for start, stop in pairwise(model.starts(model.positions(steps), cuts)):
        rows, puts = (
            model.frame([item for item in placed[start:stop] if item[1].side == side], prefix)
            for side, prefix in (("left", "l"), ("right", "r"))
        )
        moment = times.at([model.movers(rows)], {0: puts}, is_table=True)
        output = joiner.process(rows, {0: puts} if puts.height else {}, moment)
        assert place_order(output.frame).tolist() == list(range(output.frame.height))
        assert output.frame.columns[6:] == list(joiner.schema.names)
        told += [told_of(row, spec.key[0]) for row in output.frame.to_dicts()]
        late += output.late.select("event_time_ms", "offset").rows()
        counters.update({reason: count for (_, reason), count in output.counters.items()})
        if restarts:
            state = json.loads(json.dumps(joiner.snapshot()))
            store.purge()
            joiner = TableTableJoiner(spec, LEFT, RIGHT, state, store)
    return told, counters, sorted(late)


def told_of(row: dict[str, Any], key: str) -> Told:
    """Read an emission; every column of a side that is absent is null, its key among them, but for the result's own key."""
    assert row["_offset"] == row["_pos"] + 1000
    for side in ("l", "r"):
        is_there = row[f"{side}.value"] is not None or key == f"{side}.key"
        assert row[f"{side}.key"] == (row[key] if is_there else None)
    return Told(row["_pos"], row["_ts"], row["_op"], row[key], row["l.value"], row["r.value"])


def expected(join: JoinModel, steps: list[Step]) -> tuple[list[Told], Counter[str], list[tuple[int, int]]]:
    for pos, step in zip(model.positions(steps), steps, strict=True):
        join.change(pos, step)
    return join.told, +join.counters, sorted(join.late)


@settings(max_examples=examples(100), deadline=None)
@given(type_=TYPES, left_ms=st.none() | RETENTIONS, right_ms=st.none() | RETENTIONS, steps=STEPS, cuts=CUTS, hashing=hashings())
def test_latest_rows_equal_the_model_in_every_slicing(
    type_: str, left_ms: int | None, right_ms: int | None, steps: list[Step], cuts: set[int], hashing: KeyHash
) -> None:
    assert run(model.spec(type_, left_ms, right_ms), steps, cuts, hashing) == expected(JoinModel(type_, left_ms, right_ms), steps)


@settings(max_examples=examples(100), deadline=None)
@given(type_=TYPES, left_ms=st.none() | RETENTIONS, right_ms=RETENTIONS, steps=STEPS, cuts=CUTS, hashing=hashings())
def test_rows_for_a_versioned_result_equal_the_model_in_every_slicing(
    type_: str, left_ms: int | None, right_ms: int, steps: list[Step], cuts: set[int], hashing: KeyHash
) -> None:
    join = JoinModel(type_, left_ms, right_ms, is_result_versioned=True)
    assert run(model.spec(type_, left_ms, right_ms, is_result_versioned=True), steps, cuts, hashing) == expected(join, steps)


@settings(max_examples=examples(100), deadline=None)
@given(type_=TYPES, left_ms=RETENTIONS, right_ms=RETENTIONS, steps=STEPS, cuts=CUTS, hashing=hashings())
def test_what_is_read_now_of_a_versioned_result_is_what_the_newest_position_gives(
    type_: str, left_ms: int, right_ms: int, steps: list[Step], cuts: set[int], hashing: KeyHash
) -> None:
    """TT3: with ``history: latest`` too, at whatever time a side changed or was deleted."""
    told, _, _ = run(model.spec(type_, left_ms, right_ms, is_result_versioned=True), steps, cuts, hashing)
    join = JoinModel(type_, left_ms, right_ms)
    versions: dict[str, dict[int, tuple[str | None, str | None] | None]] = {}
    placed = model.positions(steps)
    for place, (pos, step) in enumerate(zip(placed, steps, strict=True)):
        join.change(pos, step)
        if pos in placed[place + 1 :]:
            continue  # what was told at a position is the work of all its rows
        for each in [each for each in told if each.pos == pos]:
            versions.setdefault(each.key, {})[each.ts] = None if each.op else (each.left, each.right)
        for key, own in versions.items():
            assert own[max(own)] == join.as_of(key, float("inf"))


@settings(max_examples=examples(100), deadline=None)
@given(type_=TYPES, left_ms=RETENTIONS, right_ms=RETENTIONS, steps=STEPS, cuts=CUTS, hashing=hashings())
def test_complete_history_equals_the_model_in_every_slicing(
    type_: str, left_ms: int, right_ms: int, steps: list[Step], cuts: set[int], hashing: KeyHash
) -> None:
    told = run(model.spec(type_, left_ms, right_ms, "complete"), steps, cuts, hashing)
    assert told == expected(JoinModel(type_, left_ms, right_ms, is_complete=True), steps)


@settings(max_examples=examples(100), deadline=None)
@given(type_=TYPES, left_ms=RETENTIONS, right_ms=RETENTIONS, steps=STEPS, cuts=CUTS)
def test_told_versions_answer_as_the_join_of_the_histories_at_every_time(
    type_: str, left_ms: int, right_ms: int, steps: list[Step], cuts: set[int]
) -> None:
    told, _, _ = run(model.spec(type_, left_ms, right_ms, "complete"), steps, cuts, restarts=False)
    join = JoinModel(type_, left_ms, right_ms, is_complete=True)
    folded: dict[str, dict[int, tuple[str | None, str | None] | None]] = {}
    placed = model.positions(steps)
    for place, (pos, step) in enumerate(zip(placed, steps, strict=True)):
        join.change(pos, step)
        if pos in placed[place + 1 :]:
            continue  # what was told at a position is the work of all its rows
        for each in [each for each in told if each.pos == pos]:
            folded.setdefault(each.key, {})[each.ts] = None if each.op else (each.left, each.right)
        for key in ("a", "b", "c"):
            for ts in range(int(max(join.horizon, 0)), 32):
                found = max((other for other in folded.get(key, {}) if other <= ts), default=None)
                answer = None if found is None else folded[key][found]
                assert answer == join.as_of(key, ts)


@settings(max_examples=examples(60), deadline=None)
@given(type_=TYPES, steps=STEPS)
def test_in_order_complete_history_tells_what_latest_tells(type_: str, steps: list[Step]) -> None:
    steps = sorted(steps, key=lambda step: step.ts)
    complete, latest = (run(model.spec(type_, 5, 10, history), steps, {7, 20}) for history in ("complete", "latest"))
    assert complete == latest


@settings(max_examples=examples(60), deadline=None)
@given(type_=TYPES, left_ms=RETENTIONS, right_ms=RETENTIONS, steps=STEPS)
def test_a_delete_ends_a_row_that_was_told(type_: str, left_ms: int, right_ms: int, steps: list[Step]) -> None:
    """Latest: the last thing told for the key was a row. Complete: one that begins no later than the delete was told."""
    rows: dict[str, bool] = {}
    for each in run(model.spec(type_, left_ms, right_ms), steps, set())[0]:
        assert not each.op or rows[each.key]
        rows[each.key] = not each.op
    starts: dict[str, int] = {}
    for each in run(model.spec(type_, left_ms, right_ms, "complete"), steps, set())[0]:
        if each.op:
            assert starts[each.key] <= each.ts
        else:
            starts[each.key] = min(each.ts, starts.get(each.key, each.ts))
