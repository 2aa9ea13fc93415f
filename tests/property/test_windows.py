"""Window aggregation under any slicing, any restart, any order of times."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.operators import BatchTime
from engine.operators.windows.hopping import WindowAggregator
from engine.plan.operators.windows import WindowAggregation
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.property import window_model as model
from tests.property.hashings import hashings
from tests.property.sink_fold import assert_folds_to

DOUBLES = st.one_of(
    st.sampled_from([0.0, -0.0, 0.1, 1e308, -1e308, 5e-324, -1e16, 1.0, 1e16]),
    st.floats(min_value=-1e300, max_value=1e300, allow_nan=False),
)
ROWS = st.lists(
    st.builds(
        model.Row,
        ts=st.integers(0, 60),
        key=st.sampled_from(["a", "b", "c", "", None]),
        number=st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**60), 2**60)),
        double=st.one_of(st.none(), DOUBLES),
        text=st.one_of(st.none(), st.sampled_from(["x", "y", "zz", ""])),
        op=st.sampled_from([0, 0, 0, 0, 1]),
    ),
    max_size=40,
)
WINDOWS = st.sampled_from([(5, 5), (10, 5), (12, 5), (6, 5), (1, 1), (40, 3), (40, 1), (60, 60)])
CUTS = st.lists(st.integers(0, 40), max_size=12)


def run(
    spec: WindowAggregation,
    rows: Sequence[model.Row],
    cuts: Sequence[int],
    *,
    restarts: bool = False,
    hashing: KeyHash = UNSEEDED,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[tuple[str, str], int]]:
    """Give the rows to the operator in the slices that ``cuts`` make; returns what it emitted, its late rows, its counters."""
    store = MemorySegmentStore(hashing)
    operator = WindowAggregator(spec, model.SCHEMA, None, store)
    emitted: list[dict[str, Any]] = []
    late: list[dict[str, Any]] = []
    counters: dict[tuple[str, str], int] = {}
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for start, end in itertools.pairwise(edges):
        output = operator.process(model.frame(rows[start:end], start))
        emitted += model.emitted(output.frame)
        late += output.late.to_dicts()
        for name, count in output.counters.items():
            counters[name] = counters.get(name, 0) + count
        if restarts:
            operator = WindowAggregator(spec, model.SCHEMA, json.loads(json.dumps(operator.snapshot())), store)
    return emitted, late, counters


@pytest.mark.parametrize("emit", ["final", "changes"])
@settings(max_examples=examples(60), deadline=None)
@given(rows=ROWS, window=WINDOWS, grace=st.sampled_from([0, 1, 7, 30]), cuts=CUTS, hashing=hashings())
def test_any_slicing_equals_the_record_by_record_model(
    emit: str, rows: list[model.Row], window: tuple[int, int], grace: int, cuts: list[int], hashing: KeyHash
) -> None:
    emitted, _, _ = run(model.spec(*window, grace, emit), rows, cuts, hashing=hashing)
    assert emitted == model.run(rows, *window, grace, emit)


@pytest.mark.parametrize("emit", ["final", "changes"])
@settings(max_examples=examples(30), deadline=None)
@given(rows=ROWS, window=WINDOWS, grace=st.sampled_from([0, 5]), cuts=CUTS)
def test_restarts_and_slices_change_neither_emissions_nor_late_rows_nor_counters(
    emit: str, rows: list[model.Row], window: tuple[int, int], grace: int, cuts: list[int]
) -> None:
    spec = model.spec(*window, grace, emit)
    assert run(spec, rows, cuts, restarts=True) == run(spec, rows, [])


@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, window=WINDOWS, cuts=CUTS, least=st.integers(1, 4))
def test_having_filters_final_results(rows: list[model.Row], window: tuple[int, int], cuts: list[int], least: int) -> None:
    emitted, _, _ = run(model.spec(*window, 3, "final", f"rows >= {least}"), rows, cuts)
    assert emitted == model.run(rows, *window, 3, "final", least)


@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, window=WINDOWS, cuts=CUTS, most=st.integers(1, 3))
def test_a_change_that_stops_matching_having_is_deleted_once(
    rows: list[model.Row], window: tuple[int, int], cuts: list[int], most: int
) -> None:
    emitted, _, _ = run(model.spec(*window, 3, "changes", f"rows <= {most}"), rows, cuts)
    assert emitted == model.run(rows, *window, 3, "changes", most)


@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, window=WINDOWS, grace=st.sampled_from([0, 5]))
def test_each_final_result_is_the_last_change_of_its_window(rows: list[model.Row], window: tuple[int, int], grace: int) -> None:
    last: dict[tuple[str, int], dict[str, Any]] = {}
    for change in run(model.spec(*window, grace, "changes"), rows, [])[0]:
        last[change["key"], change["window_start"]] = {name: change[name] for name in change if name not in ("_pos", "_offset")}
    for final in run(model.spec(*window, grace, "final"), rows, [])[0]:
        known = last.pop((final["key"], final["window_start"]))
        assert known == {name: final[name] for name in known}


@pytest.mark.parametrize("emit", ["final", "changes"])
@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, window=WINDOWS, grace=st.sampled_from([0, 5]))
def test_rows_that_share_a_position_keep_their_order(
    emit: str, rows: list[model.Row], window: tuple[int, int], grace: int
) -> None:
    operator = WindowAggregator(model.spec(*window, grace, emit), model.SCHEMA, None, MemorySegmentStore())
    shared = model.frame(rows).with_columns(pl.lit(70, pl.Int64).alias("_pos"))
    expected = [{**row, "_pos": 70} for row in model.run(rows, *window, grace, emit)]
    assert model.emitted(operator.process(shared).frame) == expected


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=ROWS,
    window=WINDOWS,
    grace=st.sampled_from([0, 7, 30]),
    cuts=CUTS,
    having=st.sampled_from([None, "rows <= 2", "rows % 2 = 1", "window_start < timestamp '1970-01-01 00:00:00.020'"]),
)
def test_folded_changes_are_the_last_ones_of_every_change(
    rows: list[model.Row], window: tuple[int, int], grace: int, cuts: list[int], having: str | None
) -> None:
    spec = model.spec(*window, grace, "changes", having)
    full, folding = (
        WindowAggregator(replace(spec, is_folded=is_folded), model.SCHEMA, None, MemorySegmentStore())
        for is_folded in (False, True)
    )
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for start, end in itertools.pairwise(edges):
        batch = model.frame(rows[start:end], start)
        assert_folds_to(folding.process(batch).frame, full.process(batch).frame, ["key", "window_start", "window_end"])


def test_an_idle_task_closes_its_windows_by_the_advance_of_its_time() -> None:
    operator = WindowAggregator(model.spec(10, 5, 3, "final"), model.SCHEMA, None, MemorySegmentStore())
    operator.process(model.frame([model.Row(7, "a", 1, None, None)]))
    assert (operator.due_in_ms, operator.clocks) == (6, {"w": 7})
    nothing = model.frame([])
    assert operator.process(nothing, {}, BatchTime(position=50, advance_ms=5)).frame.is_empty()
    closed = model.emitted(operator.process(nothing, {}, BatchTime(position=51, advance_ms=1)).frame)
    assert [(row["_pos"], row["window_start"], row["rows"]) for row in closed] == [(51, 0, 1)]
    late = operator.process(model.frame([model.Row(8, "a", 1, None, None)], 60))
    assert late.counters == {("w", "window_closed"): 1}
    assert operator.due_in_ms == 5
