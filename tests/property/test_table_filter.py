"""The filter over a table equals its record-by-record model, in every slicing and wherever it restarts."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames.hashing import UNSEEDED, KeyHash
from engine.frames.places import place_order
from engine.operators.rows.table_filter import TableFilterer
from engine.plan.operators.table_filter import TableFilter
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import RunningTimes
from tests.examples import examples
from tests.property import table_join_model as model
from tests.property.hashings import hashings
from tests.property.table_join_model import LEFT, FilterModel, Side, Step

STEP = st.builds(
    Step,
    side=st.just("left"),
    key=st.sampled_from(["a", "a", "b", "c", None]),
    value=st.sampled_from(["u", "v", "x", None]),
    ts=st.integers(0, 30),
    is_joined=st.booleans(),
)
STEPS = st.lists(STEP, max_size=12) | st.lists(STEP, min_size=25, max_size=60)
CUTS = st.sets(st.integers(0, 60), max_size=12) | st.just(set(range(60)))
RETENTIONS = st.none() | st.sampled_from([0, 3, 8, 20, 100])


def run(
    retention_ms: int | None, steps: list[Step], cuts: set[int], hashing: KeyHash = UNSEEDED, **options: bool
) -> tuple[list[tuple[Any, ...]], Counter[str]]:
    """Give the steps to the operator in slices; returns what it told and its counters."""
    spec = TableFilter("kept", "not starts_with(l.value, 'x')", ("l.key",), retention_ms, **options)
    store = MemorySegmentStore(hashing)
    operator = TableFilterer(spec, LEFT, None, store)
    told: list[tuple[Any, ...]] = []
    counters: Counter[str] = Counter()
    placed = list(zip(model.positions(steps), steps, strict=True))
    times = RunningTimes()
    for start, stop in pairwise(model.starts(model.positions(steps), cuts)):
        frame = model.frame(placed[start:stop], "l")
        output = operator.process(frame, {}, times.at([model.movers(frame)], is_table=True))
        assert place_order(output.frame).tolist() == list(range(output.frame.height))
        assert (output.frame["_offset"] == output.frame["_pos"] + 1000).all()
        told += output.frame.select("_pos", "_ts", "_op", "l.key", "l.value").rows()
        counters.update({reason: count for (_, reason), count in output.counters.items()})
        assert output.late.height == output.counters.get(("kept", "table_history_expired"), 0)
        state = json.loads(json.dumps(operator.snapshot()))
        store.purge()
        operator = TableFilterer(spec, LEFT, state, store)
    return told, counters


@settings(max_examples=examples(100), deadline=None)
@given(retention_ms=RETENTIONS, is_result_versioned=st.booleans(), steps=STEPS, cuts=CUTS, hashing=hashings())
def test_filter_equals_the_model_in_every_slicing(
    retention_ms: int | None, is_result_versioned: bool, steps: list[Step], cuts: set[int], hashing: KeyHash
) -> None:
    expected = FilterModel(retention_ms, is_result_versioned)
    for pos, step in zip(model.positions(steps), steps, strict=True):
        expected.change(pos, step.key, step.value, step.ts)
    told = run(retention_ms, steps, cuts, hashing, is_result_versioned=is_result_versioned)
    assert told == (expected.told, +expected.counters)


@settings(max_examples=examples(60), deadline=None)
@given(retention_ms=st.sampled_from([0, 8, 100]), tells_every_delete=st.booleans(), steps=STEPS, cuts=CUTS)
def test_the_versions_told_answer_as_the_filtered_history(
    retention_ms: int, tells_every_delete: bool, steps: list[Step], cuts: set[int]
) -> None:
    table, result = Side(retention_ms), Side(retention_ms)
    placed = model.positions(steps)
    for pos, before, step in zip(placed, [None, *placed], steps, strict=False):
        if step.key is not None and step.ts >= table.horizon:
            table.put(step.key, step.value, step.ts, moves=pos != before)
    for _, ts, op, key, value in run(retention_ms, steps, cuts, tells_every_delete=tells_every_delete)[0]:
        result.put(key, None if op else value, ts)
    for key in ("a", "b", "c"):
        for ts in range(int(max(table.horizon, 0)), 32):
            value = table.as_of(key, ts)
            assert result.as_of(key, ts) == (None if value == "x" else value)
