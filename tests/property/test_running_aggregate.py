"""Running aggregation under any slicing and any restart (A3, T3, T6)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames.frames import SERVICE_COLUMNS
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.aggregation.running_aggregate import RunningAggregator
from engine.operators.operators import BatchTime
from engine.plan.operators.aggregation import AggregateColumn, RunningAggregation
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.property import aggregate_model as model
from tests.property.hashings import hashings
from tests.property.sink_fold import assert_folds_to
from tests.property.task_shares import merged, rows_of, shares

Outputs = tuple[list[dict[str, Any]], dict[tuple[str, str], int]]


def spec(columns: Sequence[AggregateColumn], having: str | None = None) -> RunningAggregation:
    return RunningAggregation("totals", (("group", "s.group"),), tuple(columns), having)


def run(
    spec: RunningAggregation,
    rows: Sequence[model.Row],
    cuts: Sequence[int],
    *,
    restarts: bool = False,
    hashing: KeyHash = UNSEEDED,
) -> Outputs:
    """Give the rows to the operator in the slices that ``cuts`` make; returns what it emitted and its counters."""
    store = MemorySegmentStore(hashing)
    operator = RunningAggregator(spec, model.SCHEMA, None, store)
    emitted: list[dict[str, Any]] = []
    counters: dict[tuple[str, str], int] = {}
    for start, end in model.slices(rows, cuts):
        output = operator.process(model.frame(rows[start:end], start), {}, BatchTime())
        assert output.frame.columns == [*SERVICE_COLUMNS, *operator.schema.names]
        emitted += output.frame.to_dicts()
        for name, count in output.counters.items():
            counters[name] = counters.get(name, 0) + count
        if restarts:
            state = json.loads(json.dumps(operator.snapshot()))
            store.purge()
            operator = RunningAggregator(spec, model.SCHEMA, state, store)
    return emitted, counters


@settings(max_examples=examples(60), deadline=None)
@given(rows=model.ROWS, cuts=model.CUTS, restarts=st.booleans(), hashing=hashings())
def test_any_slicing_equals_the_record_by_record_model(
    rows: list[model.Row], cuts: list[int], restarts: bool, hashing: KeyHash
) -> None:
    emitted, counters = run(spec(model.ALL), rows, cuts, restarts=restarts, hashing=hashing)
    expected = model.run_stream(rows, model.ALL)
    assert [model.plain(row) for row in emitted] == expected
    assert counters.get(("totals", "collection_full"), 0) == sum(model.full(row, model.ALL) for row in expected)
    assert counters.get(("totals", "null_key"), 0) == sum(row.group is None for row in rows)
    assert counters.get(("totals", "null_value"), 0) == sum(row.group is not None and row.op == 1 for row in rows)


@settings(max_examples=examples(60), deadline=None)
@given(rows=model.ROWS, cuts=model.CUTS)
def test_slices_and_restarts_change_no_bit_and_no_counter(rows: list[model.Row], cuts: list[int]) -> None:
    sliced, whole = run(spec(model.ALL), rows, cuts, restarts=True), run(spec(model.ALL), rows, [])
    assert repr(sliced[0]) == repr(whole[0])
    assert sliced[1] == whole[1]


@settings(max_examples=examples(60), deadline=None)
@given(rows=model.ROWS, cuts=model.CUTS, most=st.integers(1, 4), restarts=st.booleans())
def test_a_group_that_stops_matching_having_is_deleted_once(
    rows: list[model.Row], cuts: list[int], most: int, restarts: bool
) -> None:
    emitted, _ = run(spec(model.ALL, f"rows <= {most}"), rows, cuts, restarts=restarts)
    assert [model.plain(row) for row in emitted] == model.run_stream(rows, model.ALL, most)


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=model.ROWS,
    cuts=model.CUTS,
    having=st.sampled_from([None, "rows <= 2", "rows % 2 = 1", "\"group\" <> 'a'", "joined is not null"]),
)
def test_folded_changes_are_the_last_ones_of_every_change(rows: list[model.Row], cuts: list[int], having: str | None) -> None:
    full = RunningAggregator(spec(model.ALL, having), model.SCHEMA, None, MemorySegmentStore())
    folding = RunningAggregator(replace(spec(model.ALL, having), is_folded=True), model.SCHEMA, None, MemorySegmentStore())
    for start, end in model.slices(rows, cuts):
        batch = model.frame(rows[start:end], start)
        assert_folds_to(folding.process(batch, {}, BatchTime()).frame, full.process(batch, {}, BatchTime()).frame, ["group"])


@settings(max_examples=examples(40), deadline=None)
@given(rows=model.ROWS, cuts=model.CUTS, having=st.sampled_from([None, "rows <= 2"]))
def test_groups_that_are_shared_out_to_tasks_give_the_same(rows: list[model.Row], cuts: list[int], having: str | None) -> None:
    found = []
    for tasks in (1, 2, 3):
        operators = [RunningAggregator(spec(model.ALL, having), model.SCHEMA, None, MemorySegmentStore()) for _ in range(tasks)]
        found.append(
            rows_of(
                [
                    merged(
                        [
                            operator.process(share, {}, BatchTime()).frame
                            for operator, share in zip(
                                operators, shares(model.frame(rows[a:b], a), ["s.group"], tasks), strict=True
                            )
                        ]
                    )
                    for a, b in model.slices(rows, cuts)
                ]
            )
        )
    assert repr(found[1]) == repr(found[0])
    assert repr(found[2]) == repr(found[0])


def test_a_list_that_grows_in_one_batch_is_written_once_when_folded() -> None:
    rows = [model.Row(i, "k", "a", i, None, str(i), None) for i in range(20_000)]
    operator = RunningAggregator(replace(spec(model.OTHERS), is_folded=True), model.SCHEMA, None, MemorySegmentStore())
    result = operator.process(model.frame(rows), {}, BatchTime())
    output = result.frame
    assert output["list"].to_list() == [[str(i) for i in range(10_000)]]
    assert output["_pos"].to_list() == [model.frame(rows)["_pos"][-1]]
