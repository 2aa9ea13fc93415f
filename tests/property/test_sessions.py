"""Session aggregation under any slicing, any restart, any order of times, any number of tasks."""

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

from engine.frames.clocks import running_clock
from engine.frames.hashing import KeyHash
from engine.operators.windows.sessions.session_components import components_of
from engine.operators.windows.sessions.session_exact import in_line, record_by_record
from engine.operators.windows.sessions.session_store import END, HASH, START, SessionStore
from engine.operators.windows.sessions.sessions import SessionAggregator
from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.windows import SessionAggregation
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.lone_operator import LoneOperator
from tests.property import session_model as model
from tests.property import windowed_runs as runs
from tests.property.hashings import hashings
from tests.property.places_model import KINDS, SILENCES, places_of, silences_between
from tests.property.sink_fold import assert_folds_to
from tests.property.window_model import AGGREGATES, SCHEMA, Row, frame

TIMES = st.one_of(st.integers(0, 60), st.integers(0, 200))
ROWS = st.lists(
    st.builds(
        Row,
        ts=TIMES,
        key=st.sampled_from(["a", "a", "b", "", None]),
        number=st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**60), 2**60)),
        double=st.one_of(st.none(), st.sampled_from([0.0, -0.0, 0.1, 1e308, -1e308, 5e-324, 1e16])),
        text=st.one_of(st.none(), st.sampled_from(["x", "y", "zz", ""])),
        op=st.sampled_from([0, 0, 0, 0, 1]),
    ),
    max_size=40,
)
JITTER = st.lists(st.sampled_from([0, 0, 0, 2, 5, 9, 14]), min_size=40, max_size=40)


def nearly_in_order(times: Sequence[int], jitter: Sequence[int]) -> list[int]:
    """Sorted times, some of them put back a little: where sessions close between the records that could have joined them."""
    return [max(0, ts - back) for ts, back in zip(sorted(times), jitter, strict=False)]


MILD = st.builds(
    lambda rows, jitter: [
        row._replace(ts=ts) for row, ts in zip(rows, nearly_in_order([3 * row.ts for row in rows], jitter), strict=True)
    ],
    ROWS,
    JITTER,
)
IN_ORDER = ROWS.map(lambda rows: [row._replace(ts=ts) for row, ts in zip(rows, sorted(row.ts for row in rows), strict=True)])
GAPS = st.sampled_from([0, 1, 3, 8])
GRACES = st.sampled_from([0, 1, 7, 30])
CUTS = st.lists(st.integers(0, 40), max_size=12)


def run(spec: SessionAggregation, rows: Sequence[Row], cuts: Sequence[int] = (), **how: Any) -> runs.Seen:
    """Give the rows to the operator in the batches that ``cuts`` make."""
    return runs.run(lambda state, store: SessionAggregator(spec, SCHEMA, state, store), rows, cuts, **how)


def alone(spec: SessionAggregation) -> LoneOperator:
    return LoneOperator(SessionAggregator(spec, SCHEMA, None, MemorySegmentStore()))


@pytest.mark.parametrize("emit", ["final", "changes"])
@settings(max_examples=examples(80), deadline=None)
@given(
    rows=st.one_of(ROWS, MILD, IN_ORDER),
    gap=GAPS,
    grace=GRACES,
    cuts=CUTS,
    aggregates=st.sampled_from([AGGREGATES, model.UNORDERED]),
    hashing=hashings(),
)
def test_any_slicing_equals_the_record_by_record_model(
    emit: str, rows: list[Row], gap: int, grace: int, cuts: list[int], aggregates: tuple[AggregateColumn, ...], hashing: KeyHash
) -> None:
    seen = run(model.spec(gap, grace, emit, aggregates=aggregates), rows, cuts, hashing=hashing)
    expected, late = model.run(rows, gap, grace, emit)
    if aggregates is not AGGREGATES:
        expected = [{name: value for name, value in row.items() if name != "texts"} for row in expected]
    assert seen.emitted == expected
    assert [row["offset"] - 1000 for row in seen.late] == late


@pytest.mark.parametrize("emit", ["final", "changes", "corrections"])
@settings(max_examples=examples(50), deadline=None)
@given(rows=st.one_of(ROWS, MILD), gap=GAPS, grace=GRACES, cuts=CUTS)
def test_restarts_and_slices_change_neither_emissions_nor_late_rows_nor_counters(
    emit: str, rows: list[Row], gap: int, grace: int, cuts: list[int]
) -> None:
    spec = model.spec(gap, grace, emit, aggregates=model.UNORDERED)
    assert run(spec, rows, cuts, restarts=True).results == run(spec, rows).results


@pytest.mark.parametrize("emit", ["final", "changes"])
@settings(max_examples=examples(60), deadline=None)
@given(rows=st.one_of(ROWS, MILD), kinds=st.none() | KINDS, gap=GAPS, grace=GRACES, cuts=CUTS, silences=SILENCES)
def test_rows_that_share_a_place_are_judged_by_the_time_before_it_and_silence_closes_sessions(
    emit: str, rows: list[Row], kinds: list[int] | None, gap: int, grace: int, cuts: list[int], silences: dict[int, int]
) -> None:
    places = places_of([0] * len(rows) if kinds is None else kinds, len(rows))
    silences = silences_between(places, silences)
    seen = run(model.spec(gap, grace, emit), rows, cuts, places=places, silences=silences)
    expected, late = model.run(rows, gap, grace, emit, places=places, silences=silences)
    assert seen.emitted == expected
    assert [row["offset"] - 1000 for row in seen.late] == late


@pytest.mark.parametrize("emit", ["final", "changes", "corrections"])
@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.one_of(ROWS, MILD),
    kinds=st.none() | KINDS,
    gap=GAPS,
    grace=GRACES,
    cuts=CUTS,
    silences=SILENCES,
    tasks=st.sampled_from([2, 3]),
)
def test_any_number_of_tasks_gives_the_same(
    emit: str,
    rows: list[Row],
    kinds: list[int] | None,
    gap: int,
    grace: int,
    cuts: list[int],
    silences: dict[int, int],
    tasks: int,
) -> None:
    one, several = runs.in_one_task_and_in_several(
        partial(run, model.spec(gap, grace, emit, aggregates=model.UNORDERED)), rows, kinds, silences, cuts, tasks
    )
    assert several.results == one.results


@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, gap=GAPS, cuts=CUTS, least=st.integers(1, 4))
def test_having_filters_final_results(rows: list[Row], gap: int, cuts: list[int], least: int) -> None:
    seen = run(model.spec(gap, 3, "final", f"rows >= {least}"), rows, cuts)
    assert seen.emitted == model.run(rows, gap, 3, "final", least)[0]


@settings(max_examples=examples(60), deadline=None)
@given(rows=ROWS, gap=GAPS, cuts=CUTS, most=st.integers(1, 3))
def test_a_change_that_fails_having_is_a_delete_if_the_session_was_shown(
    rows: list[Row], gap: int, cuts: list[int], most: int
) -> None:
    seen = run(model.spec(gap, 3, "changes", f"rows <= {most}"), rows, cuts)
    assert seen.emitted == model.run(rows, gap, 3, "changes", most)[0]


@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, gap=GAPS, grace=GRACES)
def test_each_final_result_is_the_last_change_of_its_session(rows: list[Row], gap: int, grace: int) -> None:
    last: dict[tuple[str, int, int], dict[str, Any]] = {}
    for change in run(model.spec(gap, grace, "changes"), rows).emitted:
        bounds = (change["key"], change["window_start"], change["window_end"])
        last[bounds] = {name: change[name] for name in change if name not in ("_pos", "_offset")}
    for final in run(model.spec(gap, grace, "final"), rows).emitted:
        known = last.pop((final["key"], final["window_start"], final["window_end"]))
        assert known == {name: final[name] for name in known}


@settings(max_examples=examples(200), deadline=None)
@given(
    held=st.lists(st.tuples(st.integers(0, 3), st.integers(9, 15)), max_size=3),
    own=st.lists(st.booleans(), min_size=1, max_size=25),
    times=st.lists(st.integers(0, 150), min_size=25, max_size=25),
    jitter=st.one_of(JITTER, st.lists(st.integers(0, 60), min_size=25, max_size=25)),
    gap=GAPS,
    delay=st.sampled_from([0, 3, 10]),
)
def test_the_fast_paths_agree_with_the_exact_one(
    held: list[tuple[int, int]], own: list[bool], times: list[int], jitter: list[int], gap: int, delay: int
) -> None:
    records = [(1 if is_own else 2, ts) for is_own, ts in zip(own, nearly_in_order(times, jitter), strict=False)]
    starts = np.cumsum([gap + apart for _, apart in held], dtype=np.int64)
    sessions = [(1, int(start), int(start) + length) for (length, _), start in zip(held, starts, strict=True)]
    rows = [*sessions, *((key, ts, ts) for key, ts in records)]
    keys = pl.DataFrame(rows, schema={HASH: pl.UInt64, START: pl.Int64, END: pl.Int64}, orient="row")
    first_end = min((session[2] for session in sessions), default=0)
    clock = running_clock(first_end, np.array([ts for _, ts in records]))[0]
    horizons = np.maximum(np.append([0], clock - gap - delay), 0)
    components = components_of(keys, [], len(sessions), gap)
    for number in range(len(components.starts)):
        only = np.arange(len(components.starts)) == number
        traced = record_by_record(components, only, horizons, gap, None)
        assert traced is not None
        exact, late = traced
        members = components.elements[components.ids == number]
        if components.are_late(horizons)[number]:
            assert len(late) == len(members)
            continue
        if components.are_unordered(horizons)[number]:
            assert not len(late)
            assert sorted(exact.elements[exact.is_session[exact.ids]]) == sorted(members)
            assert exact.is_session.sum() == 1
        line, late_in_line, is_in_line = in_line(components, only, horizons, gap)
        if is_in_line[number]:
            assert sorted(late_in_line) == sorted(late)
            assert {name: getattr(line, name).tolist() for name in line.__slots__} == {
                name: getattr(exact, name).tolist() for name in exact.__slots__
            }


def test_late_records_do_not_keep_a_session_from_being_followed_at_once() -> None:
    times = [
        50,
        54,
        58,
        45,
        41,
        34,
        39,
        33,
    ]  # behind the horizon: 45, then 41 and 39 are near the session; 34 is not yet, nor is 33
    keys = pl.DataFrame({HASH: pl.Series([1] * len(times), dtype=pl.UInt64), START: times, END: times})
    components = components_of(keys, [], 0, 5)
    horizons = np.array([0, 45, 50, 52, 52, 52, 52, 52, 52])
    line, late, is_in_line = in_line(components, np.ones(1, np.bool_), horizons, 5)
    assert is_in_line.tolist() == [True]
    assert line.elements.tolist() == [0, 1, 2, 3, 4, 6]
    assert late.tolist() == [5, 7]
    assert (line.first[-1], line.last[-1]) == (39, 58)


def test_a_session_that_closes_within_a_batch_takes_no_part_in_later_merges_of_it() -> None:
    rows = [
        Row(10, "a", None, None, None),
        Row(25, "b", None, None, None),
        Row(17, "a", None, None, None),
        Row(99, "c", None, None, None),
    ]
    seen = run(model.spec(8, 0, "final", aggregates=(AggregateColumn("rows", "count", None),)), rows)
    assert [(row["_pos"], row["key"], row["window_start"], row["window_end"], row["rows"]) for row in seen.emitted] == [
        (100, "a", 10, 10, 1),
        (300, "a", 17, 17, 1),
        (300, "b", 25, 25, 1),
    ]
    assert not seen.late


def test_records_that_keep_joining_a_large_session_are_taken_in_parts() -> None:
    rows = [Row(ts, "a", 1, None, None) for i in range(1100) for ts in (10 * i + 10, 10 * i + 5)]
    spec = model.spec(5, 10**6, "changes", aggregates=(AggregateColumn("rows", "count", None),))
    seen = run(spec, rows)
    assert not seen.late
    assert seen.emitted[-1]["rows"] == len(rows)
    assert [row["rows"] for row in seen.emitted[-3:]] == [None, None, len(rows)]


def test_what_has_closed_is_forgotten() -> None:
    store = MemorySegmentStore()
    lone = LoneOperator(SessionAggregator(model.spec(2, 0, "final"), SCHEMA, None, store))
    for place in range(200):
        lone.process(frame([Row(10 * place, f"k{place}", 1, None, None)], place))
        lone.operator.snapshot()
        store.purge()
    assert lone.operator.buffered_rows <= 1
    assert len(store.segment_ids) <= 1


def test_due_ms_is_the_time_that_closes_the_first_session() -> None:
    lone = alone(model.spec(5, 3, "final"))
    assert lone.operator.due_ms is None
    lone.process(frame([Row(10, "a", 1, None, None), Row(14, "b", 1, None, None)]))
    assert lone.operator.due_ms == 10 + 5 + 3 + 1
    assert lone.process(frame([]), silence_ms=4, first=200).frame.is_empty()
    closed = lone.process(frame([]), silence_ms=1, first=300).frame
    assert closed.select("key", "_pos", "_offset").rows() == [("a", 300, -1)]


def test_a_larger_grace_does_not_reopen_what_has_closed() -> None:
    store = MemorySegmentStore()
    lone = LoneOperator(SessionAggregator(model.spec(5, 0, "final"), SCHEMA, None, store))
    lone.process(frame([Row(0, "a", 1, None, None), Row(20, "b", 1, None, None)]))
    edited = lone.restarted(SessionAggregator(model.spec(5, 100, "final"), SCHEMA, lone.operator.snapshot(), store))
    output = edited.process(frame([Row(1, "a", 1, None, None), Row(18, "a", 1, None, None)], 2))
    assert output.counters["w", "window_closed"] == 1
    assert output.frame.is_empty()


def test_a_smaller_grace_closes_at_the_next_place_of_the_streams_or_at_once_on_request() -> None:
    for is_release in (False, True):
        store = MemorySegmentStore()
        lone = LoneOperator(SessionAggregator(model.spec(5, 100, "final"), SCHEMA, None, store))
        lone.process(frame([Row(0, "a", 1, None, None), Row(20, "b", 1, None, None)]))
        edited = lone.restarted(SessionAggregator(model.spec(5, 0, "final"), SCHEMA, lone.operator.snapshot(), store))
        first = edited.process(frame([]), first=150, is_release=is_release).frame
        then = edited.process(frame([Row(1, "a", 1, None, None)], 2))
        assert first["_pos"].to_list() == [150] * is_release
        assert then.frame["_pos"].to_list() == [200] * (not is_release)
        assert then.counters == {("w", "window_closed"): 1}


def test_two_groups_of_one_hash_stay_apart() -> None:
    store = SessionStore(MemorySegmentStore(), ["g0"], None)
    schema = {HASH: pl.UInt64, "g0": pl.String, START: pl.Int64, END: pl.Int64}
    store.append(pl.DataFrame([(7, "a", 0, 9), (7, "b", 3, 5)], schema, orient="row"), 0)
    store.append(pl.DataFrame([(7, "b", 2, 5)], schema, orient="row"), 0)
    held = store.matching(np.array([7], np.uint64), 0)
    assert held is not None
    assert held.rows() == [(7, "a", 0, 9), (7, "b", 2, 5)]
    components = components_of(held, ["g0"], 2, 100)
    assert components.ids.tolist() == [0, 1]


def test_a_session_is_shown_at_its_end_corrected_and_final_when_it_closes() -> None:
    spec = model.spec(5, 10, "corrections", aggregates=(AggregateColumn("rows", "count", None),))
    rows = [Row(ts, key, None, None, None) for ts, key in ((0, "a"), (4, "a"), (19, "b"), (3, "a"), (20, "b"))]
    shown = [(row["key"], row["window_end"], row["rows"], row["$state"]) for row in run(spec, rows).emitted]
    assert shown == [
        ("a", 0, 1, "preliminary"),
        ("a", 0, None, "correction"),
        ("a", 4, 2, "preliminary"),
        ("b", 19, 1, "preliminary"),
        ("a", 4, None, "correction"),
        ("a", 4, 3, "correction"),
        ("b", 19, None, "correction"),
        ("b", 20, 2, "preliminary"),
        ("a", 4, 3, "final"),
    ]


@settings(max_examples=examples(80), deadline=None)
@given(
    rows=st.one_of(ROWS, MILD, IN_ORDER),
    gap=GAPS,
    grace=GRACES,
    cuts=CUTS,
    having=st.sampled_from([None, "rows <= 2", "rows % 2 = 1", "window_start < timestamp '1970-01-01 00:00:00.030'"]),
)
def test_folded_changes_are_the_last_ones_of_every_change(
    rows: list[Row], gap: int, grace: int, cuts: list[int], having: str | None
) -> None:
    spec = SessionAggregation("w", (("key", "s.key"),), gap, grace, model.UNORDERED, "changes", having)
    full, folding = (alone(replace(spec, is_folded=is_folded)) for is_folded in (False, True))
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for start, end in itertools.pairwise(edges):
        batch = frame(rows[start:end], start)
        assert_folds_to(folding.process(batch).frame, full.process(batch).frame, ["key", "window_start", "window_end"])


def test_a_list_that_grows_with_its_session_is_written_once_when_folded() -> None:
    spec = SessionAggregation("w", (("key", "s.key"),), 10, 0, (AggregateColumn("all", "collect_list", "s.number"),), "changes")
    changes = alone(replace(spec, is_folded=True)).process(frame([Row(i, "a", i, None, None) for i in range(20_000)])).frame
    assert changes.filter(changes["_op"] == 0)["all"].list.len().to_list() == [10_000]
    assert changes.filter(changes["_op"] == 1)["all"].null_count() == changes.height - 1
