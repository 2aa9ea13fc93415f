"""Suppression by event time and by wall clock: any slicing, any restart, any bound, ticks and idle advances."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import Schema
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.operators import BatchTime
from engine.operators.suppression.suppress import TimeLimitSuppressor, WallClockSuppressor
from engine.operators.windows.hopping import WindowAggregator
from engine.operators.windows.sessions.sessions import SessionAggregator
from engine.operators.windows.sliding.sliding import SlidingAggregator
from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.suppression import SuppressBuffer, TimeLimitSuppression, WallClockSuppression, WindowClosing
from engine.plan.operators.windows import SessionAggregation, SlidingAggregation, WindowAggregation, WindowedAggregation
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import RunningTimes
from tests.examples import examples
from tests.property import window_model
from tests.property.hashings import hashings
from tests.property.suppress_model import TABLE, Batch, Change, Limits, Suppression, record_frame, table_frame
from tests.property.task_shares import in_place_order, merged, rows_of, shares

UNBOUNDED = Limits(None, None, is_stop=False)
EARLY = st.builds(
    Limits,
    rows=st.sampled_from([None, 0, 1, 2, 4]),
    bytes=st.sampled_from([None, 0, 12, 30, 60]),
    is_stop=st.just(False),
)
STOP = st.builds(Limits, rows=st.sampled_from([None, 2, 4]), bytes=st.sampled_from([None, 30, 60]), is_stop=st.just(True))
LIMITS_MS = st.sampled_from([0, 1, 4, 15, 1000])
CUTS = st.sets(st.integers(0, 60), max_size=12)
KEYS = st.sampled_from(["a", "b", "c", "dd", "e", None])
VALUES = st.sampled_from(["v", "w", "longer", "ß", None, None])

AT_ONE_PLACE = [
    Batch(100, 0, 0, ((0, 0), (1, 0)), tuple(Change(0, 0, key, "v", 0) for key in "ab"), 2),
    Batch(101, 2, 0, ((2, 0),), tuple(Change(2, 0, key, "v", 0) for key in "abc"), 3),
]
"""Time releases at the place of a change that does not fit."""

BEFORE_SILENCE = [
    Batch(100, 0, 0, ((0, 0), (1, 0)), (Change(0, 0, "a", "v", 0),), 2),
    Batch(101, 2, 2, (), (), 4),
]
"""What is due in a silence stands before its places."""


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    """Batches of records that move time, and of changes at the places of some; a place may have several."""
    made: list[Batch] = []
    now, position, is_begun = 100, 0, False
    for _ in range(draw(st.integers(1, 8))):
        now += draw(st.sampled_from([0, 1, 3, 10]))
        silence = draw(st.sampled_from([0, 0, 0, 2, 20])) if is_begun else 0
        first, places = position, [*range(position, position + silence)]
        records = []
        position += silence
        for ts in draw(st.lists(st.integers(0, 40), max_size=12)):
            position += draw(st.sampled_from([0, 3]))
            records.append((position, ts))
            position += 1
        is_begun = is_begun or bool(records)
        places += [place for place, _ in records]
        drawn = st.tuples(st.sampled_from(places), st.sampled_from([0, 0, 0, 1, 2]), st.integers(0, 40), KEYS, VALUES)
        changes = draw(st.lists(drawn, max_size=12)) if places else []
        changes.sort(key=lambda each: each[:2])
        in_order = tuple(Change(place, ts, key, value, further) for place, further, ts, key, value in changes)
        made.append(Batch(now, first, silence, tuple(records), in_order, position))
    return made


def expected(model: Suppression, made: Sequence[Batch]) -> Suppression:
    for batch in made:
        if model.failed_at is None:
            model.take(batch)
    return model


def parts(made: Sequence[Batch], cuts: set[int]) -> list[Batch]:
    """The batches cut further, never inside a position; only a batch's first part has its silence."""
    cut: list[Batch] = []
    number = 0
    for batch in made:
        rest = batch
        for start, _ in batch.records[1:]:
            number += 1
            if number in cuts:
                before, behind = (
                    (
                        tuple(each for each in rest.records if (each[0] < start) == is_before),
                        tuple(each for each in rest.changes if (each.position < start) == is_before),
                    )
                    for is_before in (True, False)
                )
                cut.append(Batch(batch.now, rest.first, rest.silence, *before, start))
                rest = Batch(batch.now, start, 0, *behind, batch.end)
        cut.append(rest)
    return cut


def at(times: RunningTimes, batch: Batch) -> BatchTime:
    return times.at(
        [record_frame(batch.records)], now_ms=batch.now, position=batch.end, silence_ms=batch.silence, first=batch.first
    )


def run(
    spec: TimeLimitSuppression | WallClockSuppression, made: Sequence[Batch], hashing: KeyHash = UNSEEDED, *, restarts: bool
) -> tuple[list[tuple[int, Any]], int | None, int]:
    """What the operator emits, where it fails, and how many entries left only because the buffer was full."""
    store, times = MemorySegmentStore(hashing), RunningTimes()
    evicted = 0
    state: dict[str, Any] | None = None
    operator: TimeLimitSuppressor | WallClockSuppressor | None = None
    outputs = []
    for batch in made:
        if operator is None or restarts:
            operator = build(spec, state, store)
        result = operator.process(table_frame(batch.changes), {}, at(times, batch))
        evicted += result.counters.get(("s", "emitted_early"), 0)
        assert in_place_order(result.frame)
        assert set(result.frame["_offset"]) <= {-1}
        outputs += [(row[0], row[1:]) for row in result.frame.select("_pos", "_ts", "_op", "key", "value").rows()]
        if result.failure is not None:
            assert result.failure.code == "suppress_buffer_full"
            return outputs, result.failure.position, evicted  # type: ignore[attr-defined]
        state = json.loads(json.dumps(operator.snapshot()))
        store.purge()
    return outputs, None, evicted


def build(
    spec: TimeLimitSuppression | WallClockSuppression,
    state: dict[str, Any] | None,
    store: MemorySegmentStore,
    schema: Schema = TABLE,
) -> TimeLimitSuppressor | WallClockSuppressor:
    if isinstance(spec, TimeLimitSuppression):
        return TimeLimitSuppressor(spec, schema, state, store)
    return WallClockSuppressor(spec, schema, state, store)


def by_event_time(limit: int, limits: Limits) -> TimeLimitSuppression:
    return TimeLimitSuppression(
        "s", ("key",), limit, SuppressBuffer(limits.rows, limits.bytes, "stop" if limits.is_stop else "emit_early")
    )


def by_wall_clock(limit: int, limits: Limits, *, is_event_driven: bool = False) -> WallClockSuppression:
    bounds = SuppressBuffer(limits.rows, limits.bytes, "stop" if limits.is_stop else "emit_early")
    return WallClockSuppression("s", ("key",), limit, bounds, is_event_driven)


@settings(max_examples=examples(100), deadline=None)
@given(made=batches(), limit=LIMITS_MS, cuts=CUTS, restarts=st.booleans(), hashing=hashings())
def test_a_time_limit_equals_the_change_by_change_model(
    made: list[Batch], limit: int, cuts: set[int], restarts: bool, hashing: KeyHash
) -> None:
    model = expected(Suppression(limit, UNBOUNDED, is_wall_clock=False), made)
    found = run(by_event_time(limit, UNBOUNDED), parts(made, cuts), hashing, restarts=restarts)
    assert found == (model.outputs, None, model.evicted)


@settings(max_examples=examples(100), deadline=None)
@given(made=batches(), limit=LIMITS_MS, limits=EARLY, cuts=CUTS, restarts=st.booleans(), hashing=hashings())
def test_a_full_buffer_emits_its_oldest_entries_early(
    made: list[Batch], limit: int, limits: Limits, cuts: set[int], restarts: bool, hashing: KeyHash
) -> None:
    model = expected(Suppression(limit, limits, is_wall_clock=False), made)
    found = run(by_event_time(limit, limits), parts(made, cuts), hashing, restarts=restarts)
    assert found == (model.outputs, None, model.evicted)


@settings(max_examples=examples(60), deadline=None)
@given(made=batches(), limit=LIMITS_MS, limits=STOP, cuts=CUTS, restarts=st.booleans(), hashing=hashings())
def test_a_full_buffer_that_must_stop_fails_behind_what_came_before(
    made: list[Batch], limit: int, limits: Limits, cuts: set[int], restarts: bool, hashing: KeyHash
) -> None:
    model = expected(Suppression(limit, limits, is_wall_clock=False), made)
    found = run(by_event_time(limit, limits), parts(made, cuts), hashing, restarts=restarts)
    assert found == (model.outputs, model.failed_at, 0)


@settings(max_examples=examples(100), deadline=None)
@given(
    made=batches(),
    limit=LIMITS_MS,
    limits=st.one_of(st.just(UNBOUNDED), EARLY),
    cuts=CUTS,
    restarts=st.booleans(),
    driven=st.booleans(),
    hashing=hashings(),
)
@example(
    made=AT_ONE_PLACE,
    limit=1,
    limits=Limits(rows=2, bytes=None, is_stop=False),
    cuts=set(),
    restarts=False,
    driven=False,
    hashing=UNSEEDED,
)
@example(made=BEFORE_SILENCE, limit=1, limits=UNBOUNDED, cuts=set(), restarts=False, driven=False, hashing=UNSEEDED)
def test_a_wall_clock_limit_equals_the_change_by_change_model(
    made: list[Batch], limit: int, limits: Limits, cuts: set[int], restarts: bool, driven: bool, hashing: KeyHash
) -> None:
    ticking = parts(made, cuts)
    model = expected(Suppression(limit, limits, is_wall_clock=True, is_event_driven=driven), ticking)
    spec = by_wall_clock(limit, limits, is_event_driven=driven)
    assert run(spec, ticking, hashing, restarts=restarts) == (model.outputs, None, model.evicted)


@settings(max_examples=examples(60), deadline=None)
@given(made=batches(), limit=st.sampled_from([1, 4, 15]), limits=STOP, cuts=CUTS)
def test_a_query_goes_on_with_a_higher_bound_as_if_it_had_never_stopped(
    made: list[Batch], limit: int, limits: Limits, cuts: set[int]
) -> None:
    model = expected(Suppression(limit, UNBOUNDED, is_wall_clock=False), made)
    store, times, outputs = MemorySegmentStore(), RunningTimes(), []
    operator = build(by_event_time(limit, limits), None, store)
    for batch in parts(made, cuts):
        result = operator.process(table_frame(batch.changes), {}, at(times, batch))
        outputs += result.frame.select("_ts", "_op", "key", "value").rows()
        if result.failure is not None:
            state = json.loads(json.dumps(operator.snapshot()))
            operator = build(by_event_time(limit, Limits(10**6, None, is_stop=True)), state, store)
            assert operator.wakes_at_ms == 0
            tick = Batch(batch.now, batch.end, 0, (), (), batch.end)
            outputs += operator.process(table_frame([]), {}, at(times, tick)).frame.select("_ts", "_op", "key", "value").rows()
    assert outputs == [row for _, row in model.outputs]


@settings(max_examples=examples(100), deadline=None)
@given(made=batches(), limit=LIMITS_MS, is_wall_clock=st.booleans(), restarts=st.booleans())
def test_keys_that_are_shared_out_to_tasks_give_the_same(
    made: list[Batch], limit: int, is_wall_clock: bool, restarts: bool
) -> None:
    spec = by_wall_clock(limit, UNBOUNDED) if is_wall_clock else by_event_time(limit, UNBOUNDED)
    found = []
    for tasks in (1, 2, 3):
        stores, times, outputs = [MemorySegmentStore() for _ in range(tasks)], RunningTimes(), []
        operators = [build(spec, None, store) for store in stores]
        for batch in made:
            moment, shared = at(times, batch), shares(table_frame(batch.changes), ["key"], tasks)
            emitted = [operator.process(share, {}, moment).frame for operator, share in zip(operators, shared, strict=True)]
            outputs.append(merged(emitted))
            if restarts:
                operators = [build(spec, each.snapshot(), store) for each, store in zip(operators, stores, strict=True)]
        found.append(rows_of(outputs))
    assert found[1] == found[0]
    assert found[2] == found[0]


@settings(max_examples=examples(60), deadline=None)
@given(made=batches(), limit=LIMITS_MS, cuts=CUTS)
def test_cuts_inside_one_wall_clock_time_change_nothing(made: list[Batch], limit: int, cuts: set[int]) -> None:
    spec = by_wall_clock(limit, UNBOUNDED)
    assert run(spec, parts(made, cuts), restarts=True) == run(spec, made, restarts=False)


@settings(max_examples=examples(60), deadline=None)
@given(made=batches(), limit=st.sampled_from([1, 4, 15]))
def test_a_key_is_emitted_at_most_once_per_limit_of_wall_clock(made: list[Batch], limit: int) -> None:
    last: dict[str, int] = {}
    operator, times = build(by_wall_clock(limit, UNBOUNDED), None, MemorySegmentStore()), RunningTimes()
    for batch in made:
        emitted = operator.process(table_frame(batch.changes), {}, at(times, batch)).frame["key"].to_list()
        assert len(set(emitted)) == len(emitted)
        assert all(batch.now - last[key] >= limit for key in emitted if key in last)
        last.update(dict.fromkeys(emitted, batch.now))


@settings(max_examples=examples(100), deadline=None)
@given(made=batches(), limit=LIMITS_MS, limits=st.one_of(st.just(UNBOUNDED), EARLY), is_wall_clock=st.booleans())
def test_what_came_and_went_while_it_was_held_takes_no_room(
    made: list[Batch], limit: int, limits: Limits, is_wall_clock: bool
) -> None:
    """S5: after every batch the buffer holds as many rows and bytes as the model does."""
    store, times, state = MemorySegmentStore(), RunningTimes(), None
    model = Suppression(limit, limits, is_wall_clock=is_wall_clock)
    spec = by_wall_clock(limit, limits) if is_wall_clock else by_event_time(limit, limits)
    for batch in made:
        model.take(batch)
        operator = build(spec, state, store)
        operator.process(table_frame(batch.changes), {}, at(times, batch))
        assert (operator.buffered_rows, operator.buffered_bytes) == model.held()
        state = json.loads(json.dumps(operator.snapshot()))


def test_a_key_that_came_and_went_makes_room_for_another_in_a_buffer_that_must_stop() -> None:
    operator = TimeLimitSuppressor(by_event_time(1000, Limits(1, None, is_stop=True)), TABLE, None, MemorySegmentStore())
    changes = [Change(0, 1, "a", "v"), Change(1, 2, "a", None), Change(2, 3, "b", "w")]
    result = operator.process(table_frame(changes), {}, BatchTime())
    assert (result.failure, result.frame.height, operator.buffered_rows) == (None, 0, 1)
    assert operator.process(table_frame([Change(3, 4, "a", "x")]), {}, BatchTime()).failure is not None


def test_what_came_and_went_is_not_counted_as_let_go_early() -> None:
    operator = TimeLimitSuppressor(by_event_time(1000, Limits(1, None, is_stop=False)), TABLE, None, MemorySegmentStore())
    changes = [Change(0, 1, "a", "v"), Change(1, 2, "a", None), Change(2, 3, "b", "w"), Change(3, 4, "c", "x")]
    result = operator.process(table_frame(changes), {}, BatchTime())
    assert result.frame["key"].to_list() == ["b"]
    assert result.counters["s", "emitted_early"] == 1


def test_a_tick_releases_what_is_due_and_says_when_it_wants_the_next_one() -> None:
    operator = WallClockSuppressor(by_wall_clock(10, UNBOUNDED), TABLE, None, MemorySegmentStore())
    operator.process(table_frame([Change(0, 5, "a", "v")]), {}, BatchTime(100))
    operator.process(table_frame([Change(1, 6, "a", "w"), Change(2, 7, "b", "x")]), {}, BatchTime(104))
    assert (operator.wakes_at_ms, operator.buffered_rows) == (110, 2)
    tick = operator.process(table_frame([]), {}, BatchTime(110, 77)).frame
    assert tick.select("_pos", "_ts", "key", "value").rows() == [(77, 6, "a", "w")]
    assert operator.wakes_at_ms == 114
    assert operator.process(table_frame([]), {}, BatchTime(114)).frame["key"].to_list() == ["b"]
    assert operator.wakes_at_ms is None


def test_an_event_driven_limit_ignores_ticks() -> None:
    operator = WallClockSuppressor(by_wall_clock(10, UNBOUNDED, is_event_driven=True), TABLE, None, MemorySegmentStore())
    operator.process(table_frame([Change(0, 5, "a", "v")]), {}, BatchTime(100))
    assert operator.process(table_frame([]), {}, BatchTime(500)).frame.is_empty()
    assert operator.wakes_at_ms is None
    of_others = RunningTimes().at([record_frame([(4, 5)])], now_ms=500, position=5)
    assert operator.process(table_frame([]), {}, of_others).frame.select("_pos", "key").rows() == [(4, "a")]


def test_silence_releases_at_the_millisecond_that_is_due() -> None:
    operator, times = TimeLimitSuppressor(by_event_time(10, UNBOUNDED), TABLE, None, MemorySegmentStore()), RunningTimes()
    changes = table_frame([Change(0, 5, "a", "v"), Change(1, 8, "b", "v")])
    operator.process(changes, {}, times.at([record_frame([(0, 5), (1, 8)])], position=2))
    assert operator.due_ms == 15
    idle = operator.process(table_frame([]), {}, times.at([], position=20, silence_ms=9, first=2)).frame
    assert idle.select("_pos", "key").rows() == [(8, "a")]
    assert (operator.due_ms, operator.buffered_rows) == (18, 1)


def test_the_buffer_time_is_the_least_of_the_first_place_and_not_ahead_of_time() -> None:
    """S1: 68 comes first, but 64 of the same place decides when both leave; what is ahead of time does not wait for it."""
    operator, times = TimeLimitSuppressor(by_event_time(4, UNBOUNDED), TABLE, None, MemorySegmentStore()), RunningTimes()
    changes = [Change(0, 68, "a", "v"), Change(0, 64, "a", "w"), Change(1, 99, "b", "x"), Change(2, 60, "a", "y")]
    records = record_frame([(0, 66), (1, 67), (2, 67), (3, 68), (4, 70), (5, 71)])
    result = operator.process(table_frame(changes), {}, times.at([records], position=6))
    assert result.frame.select("_pos", "key", "value").rows() == [(3, "a", "y"), (5, "b", "x")]


def test_a_shorter_limit_lets_go_at_the_next_place_or_at_once_on_request() -> None:
    for is_release, placed in ((False, (3, "a", "w")), (True, (7, "a", "v"))):
        store, times = MemorySegmentStore(), RunningTimes()
        operator = build(by_event_time(1000, UNBOUNDED), None, store)
        operator.process(table_frame([Change(0, 5, "a", "v")]), {}, times.at([record_frame([(0, 50)])], position=1))
        operator = build(by_event_time(10, UNBOUNDED), operator.snapshot(), store)
        tick = operator.process(table_frame([]), {}, times.at([], position=7, is_release=is_release)).frame
        behind = operator.process(
            table_frame([Change(3, 50, "a", "w")]), {}, times.at([record_frame([(3, 50)])], position=8)
        ).frame
        assert pl.concat([tick, behind]).select("_pos", "key", "value").rows() == [placed]


def test_a_bounded_buffer_lets_go_what_is_due_at_a_place_before_it_looks_at_its_room() -> None:
    for limits in (Limits(1, None, is_stop=True), Limits(1, None, is_stop=False)):
        operator = build(by_event_time(10, limits), None, MemorySegmentStore())
        changes = table_frame([Change(0, 5, "a", "v"), Change(1, 15, "b", "w")])
        result = operator.process(changes, {}, RunningTimes().at([record_frame([(0, 5), (1, 15)])], position=2))
        assert result.frame.select("_pos", "key").rows() == [(1, "a")]
        assert (result.counters, result.failure) == ({}, None)


@pytest.mark.parametrize(
    ("limits", "word"), [(Limits(1, None, is_stop=True), "max_rows 1"), (Limits(None, 20, is_stop=True), "max_bytes 20")]
)
def test_a_full_buffer_says_what_to_raise(limits: Limits, word: str) -> None:
    operator = TimeLimitSuppressor(by_event_time(1000, limits), TABLE, None, MemorySegmentStore())
    failure = operator.process(table_frame([Change(0, 1, "a", "v"), Change(1, 2, "b", "long value")]), {}, BatchTime()).failure
    assert failure is not None
    assert word in str(failure)
    assert not failure.retryable
    assert operator.buffered_rows == 1


def test_a_change_that_the_buffer_held_stays_held_after_its_state_grew() -> None:
    operator, times = TimeLimitSuppressor(by_event_time(10**6, UNBOUNDED), TABLE, None, MemorySegmentStore()), RunningTimes()
    rows = [Change(i, i, f"k{i % 700}", str(i)) for i in range(5000)]
    for start in range(0, len(rows), 250):
        batch = rows[start : start + 250]
        moment = times.at([record_frame([each[:2] for each in batch])])
        assert operator.process(table_frame(batch), {}, moment).frame.is_empty()
    last = times.at([record_frame([(6000, 10**6 + 699)])])
    released = operator.process(table_frame([Change(6000, 10**6 + 699, "z", "z")]), {}, last).frame
    assert released["key"].to_list() == [f"k{i}" for i in range(700)]
    assert released["value"].to_list() == [str(i) for i in (*range(4900, 5000), *range(4300, 4900))]
    assert pl.Series([6000]).equals(released["_pos"].unique())


# What is kept of windows that have closed

_ROWS = (AggregateColumn("rows", "count", None),)
_GROUP = (("key", "s.key"),)


def windows(kind: str, grace: int, having: str | None) -> tuple[WindowedAggregation, int]:
    """A window aggregation, and how long after its end a window of it closes."""
    if kind == "session":
        return SessionAggregation("w", _GROUP, 3, grace, _ROWS, "changes", having), 3 + grace + 1
    if kind == "sliding":
        return SlidingAggregation("w", _GROUP, 4, grace, _ROWS, "changes", having), grace + 1
    return WindowAggregation("w", _GROUP, 4, 2, grace, _ROWS, "changes", having), grace


def aggregator(spec: WindowedAggregation) -> WindowAggregator | SessionAggregator | SlidingAggregator:
    store = MemorySegmentStore()
    if isinstance(spec, SessionAggregation):
        return SessionAggregator(spec, window_model.SCHEMA, None, store)
    if isinstance(spec, SlidingAggregation):
        return SlidingAggregator(spec, window_model.SCHEMA, None, store)
    return WindowAggregator(spec, window_model.SCHEMA, None, store)


def limited(limits: Limits, limit: int, closing: WindowClosing | None, *, is_wall_clock: bool) -> Any:
    key = ("key", "window_start", "window_end")
    buffer = SuppressBuffer(limits.rows, limits.bytes, "emit_early")
    if is_wall_clock:
        return WallClockSuppression("s", key, limit, buffer, False, closing)
    return TimeLimitSuppression("s", key, limit, buffer, closing)


def held_back(
    aggregation: WindowedAggregation, spec: TimeLimitSuppression | WallClockSuppression, made: Sequence[Sequence[int]]
) -> tuple[list[Any], list[int]]:
    """Aggregate records of these times, batch after batch, and suppress; what comes out, and the rows kept after each batch."""
    store, source, state, clock = MemorySegmentStore(), aggregator(aggregation), None, RunningTimes()
    outputs: list[Any] = []
    kept = []
    for number, times in enumerate(made):
        rows = [window_model.Row(ts, "ab"[ts % 2], 1, None, None) for ts in times]
        records = window_model.frame(rows, 100 * number)
        moment = clock.at([records], now_ms=10 * number, position=1000 * number + 999)
        changes = source.process(records, {}, moment).frame
        moment = replace(moment, clock=moment.clock.behind(*aggregation.waits))
        operator = build(spec, state, store, source.schema)
        outputs += operator.process(changes, {}, moment).frame.rows()
        state = json.loads(json.dumps(operator.snapshot()))
        store.purge()
        kept.append(
            sum(
                segment["rows"] - segment.get("consumed", 0) for segment in (*state["buffer"]["index"], *state["buffer"]["queue"])
            )
        )
    return outputs, kept


@pytest.mark.parametrize("kind", ["hopping", "session", "sliding"])
@settings(max_examples=examples(60), deadline=None)
@given(
    made=st.lists(st.lists(st.integers(0, 60), max_size=6), min_size=1, max_size=25),
    is_rising=st.booleans(),
    grace=st.sampled_from([0, 2, 15]),
    having=st.sampled_from([None, "rows <= 2", "rows <> 1"]),
    limit=st.sampled_from([0, 2, 9, 40]),
    limits=st.one_of(st.just(UNBOUNDED), EARLY),
    is_wall_clock=st.booleans(),
)
def test_forgetting_closed_windows_changes_no_output(
    kind: str,
    made: list[list[int]],
    is_rising: bool,
    grace: int,
    having: str | None,
    limit: int,
    limits: Limits,
    is_wall_clock: bool,
) -> None:
    if is_rising:
        made = [[ts + 5 * number for ts in times] for number, times in enumerate(made)]
    aggregation, delay = windows(kind, grace, having)
    forgetful, keeping = (
        held_back(aggregation, limited(limits, limit, closing, is_wall_clock=is_wall_clock), made)
        for closing in (WindowClosing("window_end", delay), None)
    )
    assert forgetful[0] == keeping[0]


@pytest.mark.parametrize("kind", ["hopping", "session", "sliding"])
@pytest.mark.parametrize("is_wall_clock", [True, False])
def test_what_is_kept_is_bounded_by_the_open_windows(kind: str, is_wall_clock: bool) -> None:
    aggregation, delay = windows(kind, 5, None)
    made = [range(40 * number, 40 * number + 40, 2) for number in range(300)]
    spec = limited(UNBOUNDED, 3, WindowClosing("window_end", delay), is_wall_clock=is_wall_clock)
    _, kept = held_back(aggregation, spec, made)
    assert max(kept[100:]) < 1500
    assert max(kept[200:]) <= max(kept[:200])


def test_keys_that_were_deleted_are_forgotten() -> None:
    operator = TimeLimitSuppressor(by_event_time(0, UNBOUNDED), TABLE, None, MemorySegmentStore())
    kept = []
    for number in range(0, 6000, 30):
        changes = [
            Change(4 * i + j, i, f"k{i}", value) for i in range(number, number + 30) for j, value in enumerate(["v", None])
        ]
        assert operator.process(table_frame(changes), {}, BatchTime()).frame.height == 60
        kept.append(sum(segment["rows"] for segment in operator.snapshot()["buffer"]["index"]))
    assert max(kept) < 1500
