"""Sliding windows under any slicing, any restart, any order of times, any number of tasks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import BIGINT, DOUBLE, STRING, Schema
from engine.frames.hashing import KeyHash
from engine.operators.windows.sliding.sliding import SlidingAggregator
from engine.operators.windows.sliding.sliding_store import HASH, SEQ
from engine.operators.windows.sliding.sliding_windows import BOUNDARY, timelines
from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.windows import SlidingAggregation
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import STREAMS
from tests.examples import examples
from tests.lone_operator import LoneOperator
from tests.property import sliding_model, window_model
from tests.property import windowed_runs as runs
from tests.property.hashings import hashings
from tests.property.places_model import KINDS, SILENCES, STEP, follow, places_alone, places_of, silences_between
from tests.property.sink_fold import assert_folds_to

DOUBLES = st.one_of(
    st.sampled_from([0.0, -0.0, 0.1, 1e308, -1e308, 5e-324, -1e16, 1.0, 1e16]),
    st.floats(min_value=-1e300, max_value=1e300, allow_nan=False),
)
ROWS = st.lists(
    st.builds(
        window_model.Row,
        ts=st.one_of(st.integers(0, 12), st.integers(0, 60)),
        key=st.sampled_from(["a", "a", "a", "b", "c", None]),
        number=st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**60), 2**60)),
        double=st.one_of(st.none(), DOUBLES),
        text=st.one_of(st.none(), st.sampled_from(["x", "y", "zz", ""])),
        op=st.sampled_from([0, 0, 0, 0, 0, 1]),
    ),
    max_size=40,
)
IN_ORDER = ROWS.map(lambda rows: sorted(rows, key=lambda row: row.ts))
DIFFERENCES = st.sampled_from([0, 1, 3, 5, 12, 40, 100])
GRACES = st.sampled_from([0, 1, 4, 20, 100])
CUTS = st.lists(st.integers(0, 40), max_size=12)

EVERY_AGGREGATE = (
    *window_model.AGGREGATES,
    AggregateColumn("deviation", "stddev", "s.number"),
    AggregateColumn("spread", "variance", "s.double"),
    AggregateColumn("earliest", "first", "s.text"),
    AggregateColumn("latest", "last", "s.number"),
    AggregateColumn("came_first", "first_by_arrival", "s.text"),
    AggregateColumn("came_last", "last_by_arrival", "s.text"),
    AggregateColumn("all_texts", "collect_list", "s.text"),
    AggregateColumn("each_text", "collect_set", "s.text"),
    AggregateColumn("greatest", "top_k", "s.number", 2),
    AggregateColumn("texts_by_count", "histogram", "s.text"),
)


def run(spec: SlidingAggregation, rows: Sequence[window_model.Row], cuts: Sequence[int] = (), **how: Any) -> runs.Seen:
    """Give the rows to the operator in the batches that ``cuts`` make."""
    return runs.run(lambda state, store: SlidingAggregator(spec, window_model.SCHEMA, state, store), rows, cuts, **how)


def alone(spec: SlidingAggregation, store: MemorySegmentStore | None = None) -> LoneOperator:
    return LoneOperator(SlidingAggregator(spec, window_model.SCHEMA, None, store or MemorySegmentStore()))


@pytest.mark.parametrize("emit", ["final", "changes"])
@settings(max_examples=examples(100), deadline=None)
@given(rows=st.one_of(ROWS, IN_ORDER), difference=DIFFERENCES, grace=GRACES, cuts=CUTS, hashing=hashings())
def test_any_slicing_equals_the_record_by_record_model(
    emit: str, rows: list[window_model.Row], difference: int, grace: int, cuts: list[int], hashing: KeyHash
) -> None:
    seen = run(sliding_model.spec(difference, grace, emit), rows, cuts, hashing=hashing)
    model = sliding_model.run(rows, difference, grace, emit)
    assert seen.emitted == model.outputs
    assert [row["offset"] - 1000 for row in seen.late] == model.refused
    assert seen.counters.get(("w", "window_closed"), 0) == len(model.refused)


@pytest.mark.parametrize("emit", ["final", "changes", "corrections"])
@settings(max_examples=examples(30), deadline=None)
@given(rows=ROWS, difference=DIFFERENCES, grace=GRACES, cuts=CUTS)
def test_restarts_and_slices_change_nothing_for_any_aggregate(
    emit: str, rows: list[window_model.Row], difference: int, grace: int, cuts: list[int]
) -> None:
    spec = sliding_model.spec(difference, grace, emit, aggregates=EVERY_AGGREGATE)
    assert run(spec, rows, cuts, restarts=True).results == run(spec, rows).results


@pytest.mark.parametrize("emit", ["final", "changes"])
@settings(max_examples=examples(60), deadline=None)
@given(rows=ROWS, kinds=st.none() | KINDS, difference=DIFFERENCES, grace=GRACES, cuts=CUTS, silences=SILENCES)
def test_rows_that_share_a_place_are_judged_by_the_time_before_it_and_silence_closes_windows(
    emit: str,
    rows: list[window_model.Row],
    kinds: list[int] | None,
    difference: int,
    grace: int,
    cuts: list[int],
    silences: dict[int, int],
) -> None:
    places = places_of([0] * len(rows) if kinds is None else kinds, len(rows))
    silences = silences_between(places, silences)
    seen = run(sliding_model.spec(difference, grace, emit), rows, cuts, places=places, silences=silences, restarts=True)
    model = sliding_model.run(rows, difference, grace, emit, places=places, silences=silences)
    assert seen.emitted == model.outputs
    assert [row["offset"] - 1000 for row in seen.late] == model.refused


@pytest.mark.parametrize("emit", ["final", "changes", "corrections"])
@settings(max_examples=examples(60), deadline=None)
@given(
    rows=ROWS,
    kinds=st.none() | KINDS,
    difference=DIFFERENCES,
    grace=GRACES,
    cuts=CUTS,
    silences=SILENCES,
    tasks=st.sampled_from([2, 3]),
)
def test_any_number_of_tasks_gives_the_same(
    emit: str,
    rows: list[window_model.Row],
    kinds: list[int] | None,
    difference: int,
    grace: int,
    cuts: list[int],
    silences: dict[int, int],
    tasks: int,
) -> None:
    one, several = runs.in_one_task_and_in_several(
        partial(run, sliding_model.spec(difference, grace, emit)), rows, kinds, silences, cuts, tasks
    )
    assert several.results == one.results


@settings(max_examples=examples(50), deadline=None)
@given(rows=ROWS, difference=DIFFERENCES, cuts=CUTS, least=st.integers(1, 4))
def test_having_filters_final_results(rows: list[window_model.Row], difference: int, cuts: list[int], least: int) -> None:
    seen = run(sliding_model.spec(difference, 3, "final", f"rows >= {least}"), rows, cuts)
    assert seen.emitted == sliding_model.run(rows, difference, 3, "final", least).outputs


@settings(max_examples=examples(50), deadline=None)
@given(rows=ROWS, difference=DIFFERENCES, grace=GRACES, cuts=CUTS, most=st.integers(1, 3))
def test_a_change_that_stops_matching_having_is_deleted_once(
    rows: list[window_model.Row], difference: int, grace: int, cuts: list[int], most: int
) -> None:
    seen = run(sliding_model.spec(difference, grace, "changes", f"rows <= {most}"), rows, cuts)
    assert seen.emitted == sliding_model.run(rows, difference, grace, "changes", most).outputs


@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, difference=DIFFERENCES, grace=GRACES)
def test_each_final_result_is_the_last_change_of_its_window(rows: list[window_model.Row], difference: int, grace: int) -> None:
    aggregates = EVERY_AGGREGATE
    last: dict[tuple[str, int], dict[str, Any]] = {}
    for change in run(sliding_model.spec(difference, grace, "changes", aggregates=aggregates), rows).emitted:
        last[change["key"], change["window_start"]] = {name: change[name] for name in change if name not in ("_pos", "_offset")}
    for final in run(sliding_model.spec(difference, grace, "final", aggregates=aggregates), rows).emitted:
        known = last.pop((final["key"], final["window_start"]))
        assert known == {name: final[name] for name in known}


@settings(max_examples=examples(40), deadline=None)
@given(
    rows=ROWS,
    difference=DIFFERENCES,
    graces=st.tuples(GRACES, GRACES),
    at=st.integers(0, 40),
    emit=st.sampled_from(["final", "changes"]),
)
def test_a_new_grace_never_reopens_a_window(
    rows: list[window_model.Row], difference: int, graces: tuple[int, int], at: int, emit: str
) -> None:
    places = places_alone(len(rows))
    model = sliding_model.Model(difference, graces[0], emit, places)

    def take(number: int, row: window_model.Row, before: int) -> None:
        model.grace = graces[number >= at]
        model.take(number, row, before)

    def rise(position: int, time: int) -> None:
        model.grace = graces[position >= STEP * at]
        model.rise(position, time)

    follow(rows, places, take, rise)
    store = MemorySegmentStore()
    spec = sliding_model.spec(difference, graces[0], emit)
    before = alone(spec, store)
    emitted = window_model.emitted(before.process(window_model.frame(rows[:at])).frame.drop("_rank"))
    edited = SlidingAggregator(replace(spec, grace_ms=graces[1]), window_model.SCHEMA, before.operator.snapshot(), store)
    after = before.restarted(edited).process(window_model.frame(rows[at:], at))
    emitted += window_model.emitted(after.frame.drop("_rank"))
    assert emitted == model.outputs


@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, difference=DIFFERENCES, grace=GRACES)
def test_nothing_is_let_go_before_it_is_due(rows: list[window_model.Row], difference: int, grace: int) -> None:
    lone = alone(sliding_model.spec(difference, grace, "final"))
    lone.process(window_model.frame(rows))
    nothing, first = window_model.frame([]), 10**6
    for _ in range(3 * len(rows) + 1):
        due = lone.operator.due_ms
        if due is None:
            break
        early = due - 1 - lone.times.times[STREAMS]
        assert early >= 0
        assert lone.process(nothing, silence_ms=early, first=first).frame.is_empty()
        lone.process(nothing, silence_ms=1, first=first + early)
        first += early + 1
    assert lone.operator.due_ms is None
    assert lone.process(nothing, silence_ms=10**6, first=first).frame.is_empty()


@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, difference=DIFFERENCES, grace=GRACES, cuts=CUTS)
def test_corrections_end_with_the_final_result_of_each_window(
    rows: list[window_model.Row], difference: int, grace: int, cuts: list[int]
) -> None:
    marked = run(sliding_model.spec(difference, grace, "corrections"), rows, cuts).emitted
    finals = [{name: value for name, value in row.items() if name != "$state"} for row in marked if row["$state"] == "final"]
    assert finals == sliding_model.run(rows, difference, grace, "final").outputs
    shown = {(row["key"], row["window_start"]) for row in marked if row["$state"] == "preliminary"}
    # S6: what ends and closes in one jump gives its final result alone.
    assert {(row["key"], row["window_start"]) for row in marked if row["$state"] == "correction"} <= shown


@pytest.mark.parametrize("emit", ["final", "changes"])
def test_more_pairs_than_are_expanded_at_once_give_the_same_as_small_batches(emit: str) -> None:
    random = np.random.default_rng(7)
    times = np.append(np.arange(3000) + random.integers(0, 500, 3000), 90_000).tolist()
    rows = [window_model.Row(time, "a", time % 7, None, None) for time in times]
    functions = ("count", "max", "last_by_arrival", "sum")
    aggregates = tuple(AggregateColumn(name, name, None if name == "count" else "s.number") for name in functions)  # type: ignore[arg-type]
    spec = sliding_model.spec(1000, 0, emit, aggregates=aggregates)

    def emitted(size: int) -> pl.DataFrame:
        lone = alone(spec)
        slices = (window_model.frame(rows[start : start + size], start) for start in range(0, len(rows), size))
        return pl.concat([lone.process(part).frame for part in slices])

    whole = emitted(len(rows))
    assert whole.height > (1 << 20 if emit == "changes" else 1000)
    assert whole.equals(emitted(153))


def test_groups_that_share_a_hash_stay_apart() -> None:
    records = pl.DataFrame(
        {HASH: [9, 9, 9, 9], "g0": ["a", "b", "a", "b"], "_ts": [1, 2, 3, 4], SEQ: [0, 1, 2, 3], BOUNDARY: [None] * 4},
        schema_overrides={HASH: pl.UInt64, BOUNDARY: pl.Int64},
    )
    (timeline,) = timelines(records, ["g0"], 10)
    assert timeline.frame["g0"].to_list() == ["a", "a", "b", "b"]
    assert timeline.groups.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("emit", ["final", "changes", "corrections"])
def test_state_stays_bounded_while_time_goes_on(emit: str) -> None:
    store = MemorySegmentStore()
    spec = sliding_model.spec(10, 5, emit, aggregates=window_model.AGGREGATES[:3])
    lone = alone(spec, store)
    for batch in range(200):
        rows = [window_model.Row(5 * batch + at, "a", 1, 1.0, "x") for at in range(5)]
        lone.process(window_model.frame(rows, 5 * batch))
        state = lone.operator.snapshot()
        store.purge()
    assert len(store.segment_ids) <= 24
    assert lone.operator.buffered_rows <= 200
    assert state["boundary"] == 999 - 5


def test_zero_and_minus_zero_are_one_group() -> None:
    schema = Schema((("s.reading", DOUBLE), ("s.kind", STRING), ("s.n", BIGINT)))
    group = (("reading", "s.reading"), ("kind", "s.kind"))
    spec = SlidingAggregation("w", group, 10, 0, (AggregateColumn("n", "sum", "s.n"),), "changes")
    frame = pl.DataFrame(
        {
            "_pos": [0, 1, 2, 3],
            "_ts": [5, 5, 5, 5],
            "_op": pl.Series([0, 0, 0, 0], dtype=pl.Int8),
            "_key_hash": pl.Series([0, 0, 0, 0], dtype=pl.UInt64),
            "_offset": [0, 1, 2, 3],
            "s.reading": [0.0, -0.0, -0.0, 0.0],
            "s.kind": ["a", "a", "b", "a"],
            "s.n": [1, 2, 3, 4],
        }
    )
    output = LoneOperator(SlidingAggregator(spec, schema, None, MemorySegmentStore())).process(frame)
    assert output.frame["kind"].to_list() == ["a", "a", "b", "a"]
    assert output.frame["n"].to_list() == [1, 3, 3, 7]
    assert output.frame["_offset"].to_list() == [0, 1, 2, 3]


@pytest.mark.parametrize("emit", ["final", "changes"])
def test_many_groups_over_all_of_time_are_handled_apart(emit: str) -> None:
    keys, year_9999 = 20_000, 253_402_300_000_000
    rows = [window_model.Row(ts, f"k{n}", 1, None, None) for ts in (0, year_9999) for n in range(keys)]
    spec = sliding_model.spec(1000, year_9999, emit, aggregates=(AggregateColumn("rows", "count", None),))
    lone = alone(spec)
    emitted = lone.process(window_model.frame(rows)).frame
    closing = lone.process(window_model.frame([]), silence_ms=2 * year_9999, first=10**7).frame
    result = pl.concat([emitted, closing])
    assert np.array_equal(result["_ts"].to_numpy(), np.repeat([0, year_9999], keys))
    assert result["key"].to_list() == [row.key for row in rows]
    assert result["rows"].to_list() == [1] * len(rows)


@settings(max_examples=examples(80), deadline=None)
@given(
    rows=st.one_of(ROWS, IN_ORDER),
    difference=DIFFERENCES,
    grace=GRACES,
    cuts=CUTS,
    having=st.sampled_from([None, "rows <= 2", "rows % 2 = 1", "window_start < timestamp '1970-01-01 00:00:00.030'"]),
)
def test_folded_changes_are_the_last_ones_of_every_change(
    rows: list[window_model.Row], difference: int, grace: int, cuts: list[int], having: str | None
) -> None:
    spec = sliding_model.spec(difference, grace, "changes", having, aggregates=EVERY_AGGREGATE)
    full, folding = (alone(replace(spec, is_folded=is_folded)) for is_folded in (False, True))
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for start, end in itertools.pairwise(edges):
        batch = window_model.frame(rows[start:end], start)
        changes, every = folding.process(batch).frame, full.process(batch).frame
        assert_folds_to(changes, every, ["key", "window_start", "window_end"])
