"""Suppression by event time and by wall clock: any slicing, any restart, any bound, ticks and idle advances."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
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
from tests.examples import examples
from tests.property import window_model
from tests.property.hashings import hashings
from tests.property.suppress_model import TABLE, Batch, Change, Limits, Suppression, table_frame

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


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    """Batches in time; a position may be shared inside one."""
    made: list[Batch] = []
    now, place = 100, 0
    for _ in range(draw(st.integers(1, 8))):
        now += draw(st.sampled_from([0, 1, 3, 10]))
        changes: list[Change] = []
        for ts, key, value, step in draw(
            st.lists(st.tuples(st.integers(0, 40), KEYS, VALUES, st.sampled_from([0, 1, 1, 1])), max_size=12)
        ):
            place += step or not changes
            changes.append(Change(10 * place, ts, key, value))
        made.append(Batch(now, draw(st.sampled_from([0, 0, 0, 2, 20])), tuple(changes)))
        place += 1
    return made


def expected(model: Suppression, made: Sequence[Batch]) -> Suppression:
    for batch in made:
        if model.failed_at is None:
            model.take(batch, _behind(batch))
    return model


def _behind(batch: Batch) -> int:
    return batch.changes[-1].position + 5 if batch.changes else 0


def parts(made: Sequence[Batch], cuts: set[int]) -> list[Batch]:
    """The batches cut further, never inside a position; only a batch's last part has its advance."""
    cut: list[Batch] = []
    number = 0
    for batch in made:
        start = 0
        for end in range(1, len(batch.changes)):
            number += 1
            if number in cuts and batch.changes[end].position != batch.changes[end - 1].position:
                cut.append(Batch(batch.now, 0, batch.changes[start:end]))
                start = end
        cut.append(batch._replace(changes=batch.changes[start:]))
    return cut


def run(
    spec: TimeLimitSuppression | WallClockSuppression, made: Sequence[Batch], hashing: KeyHash = UNSEEDED, *, restarts: bool
) -> tuple[list[tuple[int, int, Any]], int | None, int]:
    """What the operator emits, where it fails, and how many entries left only because the buffer was full."""
    store = MemorySegmentStore(hashing)
    evicted = 0
    state: dict[str, Any] | None = None
    operator: TimeLimitSuppressor | WallClockSuppressor | None = None
    outputs = []
    for batch in made:
        if operator is None or restarts:
            operator = build(spec, state, store)
        result = operator.process(table_frame(batch.changes), {}, BatchTime(batch.now, _behind(batch), batch.advance))
        evicted += result.counters.get(("s", "emitted_early"), 0)
        outputs += [
            (row[0], row[1], row[2:]) for row in result.frame.select("_pos", "_offset", "_ts", "_op", "key", "value").rows()
        ]
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
def test_a_wall_clock_limit_equals_the_change_by_change_model(
    made: list[Batch], limit: int, limits: Limits, cuts: set[int], restarts: bool, driven: bool, hashing: KeyHash
) -> None:
    ticking = parts(made, cuts)
    model = expected(Suppression(limit, limits, is_wall_clock=True, is_event_driven=driven), ticking)
    spec = by_wall_clock(limit, limits, is_event_driven=driven)
    assert run(spec, ticking, hashing, restarts=restarts) == (model.outputs, None, model.evicted)


@settings(max_examples=examples(60), deadline=None)
@given(made=batches(), limit=LIMITS_MS, cuts=CUTS)
def test_cuts_inside_one_wall_clock_time_change_nothing(made: list[Batch], limit: int, cuts: set[int]) -> None:
    made = [batch._replace(changes=tuple(change for change in batch.changes if change.key is not None)) for batch in made]
    spec = by_wall_clock(limit, UNBOUNDED)
    assert run(spec, parts(made, cuts), restarts=True) == run(spec, made, restarts=False)


@settings(max_examples=examples(60), deadline=None)
@given(made=batches(), limit=st.sampled_from([1, 4, 15]))
def test_a_key_is_emitted_at_most_once_per_limit_of_wall_clock(made: list[Batch], limit: int) -> None:
    last: dict[str, int] = {}
    operator = build(by_wall_clock(limit, UNBOUNDED), None, MemorySegmentStore())
    for batch in made:
        emitted = operator.process(table_frame(batch.changes), {}, BatchTime(batch.now, _behind(batch))).frame["key"].to_list()
        assert len(set(emitted)) == len(emitted)
        assert all(batch.now - last[key] >= limit for key in emitted if key in last)
        last.update(dict.fromkeys(emitted, batch.now))


@settings(max_examples=examples(100), deadline=None)
@given(made=batches(), limit=LIMITS_MS, limits=st.one_of(st.just(UNBOUNDED), EARLY), is_wall_clock=st.booleans())
def test_what_came_and_went_while_it_was_held_takes_no_room(
    made: list[Batch], limit: int, limits: Limits, is_wall_clock: bool
) -> None:
    """S5: after every batch the buffer holds as many rows and bytes as the model does."""
    store, state = MemorySegmentStore(), None
    model = Suppression(limit, limits, is_wall_clock=is_wall_clock)
    spec = by_wall_clock(limit, limits) if is_wall_clock else by_event_time(limit, limits)
    for batch in made:
        model.take(batch, _behind(batch))
        operator = build(spec, state, store)
        operator.process(table_frame(batch.changes), {}, BatchTime(batch.now, _behind(batch), batch.advance))
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
    assert operator.process(table_frame([]), {}, BatchTime(90)).frame.is_empty()  # a clock that went back is the last one
    assert operator.process(table_frame([]), {}, BatchTime(114)).frame["key"].to_list() == ["b"]
    assert operator.wakes_at_ms is None


def test_an_event_driven_limit_ignores_ticks() -> None:
    operator = WallClockSuppressor(by_wall_clock(10, UNBOUNDED, is_event_driven=True), TABLE, None, MemorySegmentStore())
    operator.process(table_frame([Change(0, 5, "a", "v")]), {}, BatchTime(100))
    assert operator.process(table_frame([]), {}, BatchTime(500)).frame.is_empty()
    assert operator.wakes_at_ms is None
    assert operator.process(table_frame([Change(1, 5, "b", "v")]), {}, BatchTime(500)).frame["key"].to_list() == ["a"]


def test_an_idle_task_releases_by_the_advance_of_its_time() -> None:
    operator = TimeLimitSuppressor(by_event_time(10, UNBOUNDED), TABLE, None, MemorySegmentStore())
    operator.process(table_frame([Change(0, 5, "a", "v"), Change(1, 8, "b", "v")]), {}, BatchTime())
    assert (operator.due_in_ms, operator.clocks) == (7, {"s": 8})
    idle = operator.process(table_frame([]), {}, BatchTime(position=9, advance_ms=7)).frame
    assert idle.select("_pos", "key").rows() == [(9, "a")]
    assert (operator.due_in_ms, operator.buffered_rows, operator.clocks) == (3, 1, {"s": 15})


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
    operator = TimeLimitSuppressor(by_event_time(10**6, UNBOUNDED), TABLE, None, MemorySegmentStore())
    rows = [Change(i, i, f"k{i % 700}", str(i)) for i in range(5000)]
    for start in range(0, len(rows), 250):
        assert operator.process(table_frame(rows[start : start + 250]), {}, BatchTime()).frame.is_empty()
    released = operator.process(table_frame([Change(6000, 10**6 + 699, "z", "z")]), {}, BatchTime()).frame
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
    store, source, state = MemorySegmentStore(), aggregator(aggregation), None
    outputs: list[Any] = []
    kept = []
    for number, times in enumerate(made):
        rows = [window_model.Row(ts, "ab"[ts % 2], 1, None, None) for ts in times]
        moment = BatchTime(10 * number, 1000 * number + 999)
        changes = source.process(window_model.frame(rows, 100 * number), {}, moment).frame
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
