"""Window aggregation under any slicing, any restart, any order of times, any number of tasks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames.hashing import KeyHash
from engine.operators.windows.hopping import WindowAggregator
from engine.plan.operators.windows import WindowAggregation
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.lone_operator import LoneOperator
from tests.property import window_model as model
from tests.property import windowed_runs as runs
from tests.property.hashings import hashings
from tests.property.places_model import KINDS, SILENCES, places_of, silences_between
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


def run(spec: WindowAggregation, rows: Sequence[model.Row], cuts: Sequence[int] = (), **how: Any) -> runs.Seen:
    """Give the rows to the operator in the batches that ``cuts`` make."""
    return runs.run(lambda state, store: WindowAggregator(spec, model.SCHEMA, state, store), rows, cuts, **how)


@pytest.mark.parametrize("emit", ["final", "changes"])
@settings(max_examples=examples(60), deadline=None)
@given(rows=ROWS, window=WINDOWS, grace=st.sampled_from([0, 1, 7, 30]), cuts=CUTS, hashing=hashings())
def test_any_slicing_equals_the_record_by_record_model(
    emit: str, rows: list[model.Row], window: tuple[int, int], grace: int, cuts: list[int], hashing: KeyHash
) -> None:
    seen = run(model.spec(*window, grace, emit), rows, cuts, hashing=hashing)
    emitted, late = model.run(rows, *window, grace, emit)
    assert seen.emitted == emitted
    assert [row["offset"] - 1000 for row in seen.late] == late


@pytest.mark.parametrize("emit", ["final", "changes"])
@settings(max_examples=examples(60), deadline=None)
@given(rows=ROWS, kinds=KINDS, window=WINDOWS, grace=st.sampled_from([0, 5]), cuts=CUTS, silences=SILENCES)
def test_rows_that_share_a_place_are_judged_by_the_time_before_it(
    emit: str,
    rows: list[model.Row],
    kinds: list[int],
    window: tuple[int, int],
    grace: int,
    cuts: list[int],
    silences: dict[int, int],
) -> None:
    places = places_of(kinds, len(rows))
    silences = silences_between(places, silences)
    seen = run(model.spec(*window, grace, emit), rows, cuts, places=places, silences=silences, restarts=True)
    emitted, late = model.run(rows, *window, grace, emit, places=places, silences=silences)
    assert seen.emitted == emitted
    assert [row["offset"] - 1000 for row in seen.late] == late


@pytest.mark.parametrize("emit", ["final", "changes", "corrections"])
@settings(max_examples=examples(60), deadline=None)
@given(
    rows=ROWS,
    kinds=st.none() | KINDS,
    window=WINDOWS,
    grace=st.sampled_from([0, 5]),
    cuts=CUTS,
    silences=SILENCES,
    tasks=st.sampled_from([2, 3]),
)
def test_any_number_of_tasks_gives_the_same(
    emit: str,
    rows: list[model.Row],
    kinds: list[int] | None,
    window: tuple[int, int],
    grace: int,
    cuts: list[int],
    silences: dict[int, int],
    tasks: int,
) -> None:
    one, several = runs.in_one_task_and_in_several(
        partial(run, model.spec(*window, grace, emit)), rows, kinds, silences, cuts, tasks
    )
    assert several.results == one.results


@pytest.mark.parametrize("emit", ["final", "changes"])
@settings(max_examples=examples(30), deadline=None)
@given(rows=ROWS, window=WINDOWS, grace=st.sampled_from([0, 5]), cuts=CUTS)
def test_restarts_and_slices_change_neither_emissions_nor_late_rows_nor_counters(
    emit: str, rows: list[model.Row], window: tuple[int, int], grace: int, cuts: list[int]
) -> None:
    spec = model.spec(*window, grace, emit)
    assert run(spec, rows, cuts, restarts=True).results == run(spec, rows).results


@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, window=WINDOWS, cuts=CUTS, least=st.integers(1, 4))
def test_having_filters_final_results(rows: list[model.Row], window: tuple[int, int], cuts: list[int], least: int) -> None:
    seen = run(model.spec(*window, 3, "final", f"rows >= {least}"), rows, cuts)
    assert seen.emitted == model.run(rows, *window, 3, "final", least)[0]


@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, window=WINDOWS, cuts=CUTS, most=st.integers(1, 3))
def test_a_change_that_stops_matching_having_is_deleted_once(
    rows: list[model.Row], window: tuple[int, int], cuts: list[int], most: int
) -> None:
    seen = run(model.spec(*window, 3, "changes", f"rows <= {most}"), rows, cuts)
    assert seen.emitted == model.run(rows, *window, 3, "changes", most)[0]


@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, window=WINDOWS, grace=st.sampled_from([0, 5]))
def test_each_final_result_is_the_last_change_of_its_window(rows: list[model.Row], window: tuple[int, int], grace: int) -> None:
    last: dict[tuple[str, int], dict[str, Any]] = {}
    for change in run(model.spec(*window, grace, "changes"), rows).emitted:
        last[change["key"], change["window_start"]] = {name: change[name] for name in change if name not in ("_pos", "_offset")}
    for final in run(model.spec(*window, grace, "final"), rows).emitted:
        known = last.pop((final["key"], final["window_start"]))
        assert known == {name: final[name] for name in known}


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
        LoneOperator(WindowAggregator(replace(spec, is_folded=is_folded), model.SCHEMA, None, MemorySegmentStore()))
        for is_folded in (False, True)
    )
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for start, end in itertools.pairwise(edges):
        batch = model.frame(rows[start:end], start)
        assert_folds_to(folding.process(batch).frame, full.process(batch).frame, ["key", "window_start", "window_end"])


def test_silence_closes_windows_at_its_own_places() -> None:
    windows = LoneOperator(WindowAggregator(model.spec(10, 5, 3, "final"), model.SCHEMA, None, MemorySegmentStore()))
    windows.process(model.frame([model.Row(7, "a", 1, None, None)]))
    assert windows.operator.due_ms == 13
    nothing = model.frame([])
    assert windows.process(nothing, silence_ms=5, first=50).frame.is_empty()
    closed = model.emitted(windows.process(nothing, silence_ms=3, first=60).frame)
    assert [(row["_pos"], row["_offset"], row["window_start"], row["rows"]) for row in closed] == [(60, -1, 0, 1)]
    late = windows.process(model.frame([model.Row(8, "a", 1, None, None)], 60))
    assert late.counters == {("w", "window_closed"): 1}
    assert windows.operator.due_ms == 18
