"""S6 under any slicing, any restart: alone against a model, and behind tumbling and hopping windows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames.hashing import KeyHash
from engine.operators.operators import BatchTime
from engine.operators.windows.corrections import Corrections
from engine.operators.windows.hopping import WindowAggregator
from engine.operators.windows.sessions.sessions import SessionAggregator
from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.windows import SessionAggregation
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.property import suppress_model as model
from tests.property import window_model
from tests.property.hashings import hashings

DELAYS = st.sampled_from([0, 1, 5, 20])
CUTS = st.lists(st.integers(0, 30), max_size=10)
COUNT = (AggregateColumn("value", "count", None),)


@st.composite
def steps(draw: st.DrawFn, delay: int) -> list[model.Step]:
    """Steps as a window operator could take them: it never changes a window that has closed."""
    made: list[model.Step] = []
    clock = place = 0
    for number in range(draw(st.integers(0, 30))):
        clock += draw(st.sampled_from([0, 0, 1, 2, 5, 30]))
        place += draw(st.sampled_from([0, 1, 1]))
        windows = st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.sampled_from([0, 4]), st.sampled_from([None, 1, 2, 3]))
        changes = []
        for key, back, size, value in draw(st.lists(windows, max_size=3)):
            start = max(clock // 4 - back, 0) * 4
            if start + size + delay > clock:
                changes.append(model.WindowChange(key, start, start + size, value))
        made.append(model.Step(10 * place, 100 + number, clock, tuple(changes)))
    return made


def edges(cuts: Sequence[int], made: Sequence[model.Step]) -> list[int]:
    """Where to cut; a position is never cut."""
    inner = {cut for cut in cuts if 0 < cut < len(made) and made[cut].position != made[cut - 1].position}
    return [0, *sorted(inner), len(made)]


def rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    bounds = [pl.col(name).dt.epoch("ms") for name in ("window_start", "window_end")]
    return frame.with_columns(bounds).drop("_key_hash").to_dicts()


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), delay=DELAYS, cuts=CUTS, restarts=st.booleans(), hashing=hashings(), is_moving=st.booleans())
def test_any_slicing_equals_the_step_by_step_model(
    data: st.DataObject, delay: int, cuts: list[int], restarts: bool, hashing: KeyHash, is_moving: bool
) -> None:
    made = data.draw(steps(delay))
    store = MemorySegmentStore(hashing)
    operator = Corrections(model.WINDOWED, ("key",), delay, None, store, is_moving=is_moving)
    emitted = []
    for start, end in itertools.pairwise(edges(cuts, made)):
        part = made[start:end]
        arrays = [np.array([getattr(step, name) for step in part], dtype=np.int64) for name in ("position", "offset", "clock")]
        emitted += rows(operator.process(model.change_frame(part), *arrays))
        if restarts:
            state = json.loads(json.dumps(operator.snapshot()))
            store.purge()
            operator = Corrections(model.WINDOWED, ("key",), delay, state, store, is_moving=is_moving)
    assert emitted == model.corrections(made, delay, is_moving=is_moving)


def behind_windows(
    records: Sequence[window_model.Row], window: tuple[int, int, int], cuts: Sequence[int], emit: str, having: str | None = None
) -> list[dict[str, Any]]:
    """What the window operator emits; the cuts are restarts too."""
    store = MemorySegmentStore()
    spec = window_model.spec(*window, emit, having, COUNT)
    operator = WindowAggregator(spec, window_model.SCHEMA, None, store)
    emitted = []
    for start, end in itertools.pairwise([0, *sorted({cut for cut in cuts if 0 < cut < len(records)}), len(records)]):
        emitted += rows(operator.process(window_model.frame(records[start:end], start)).frame)
        operator = WindowAggregator(spec, window_model.SCHEMA, json.loads(json.dumps(operator.snapshot())), store)
    return emitted


RECORDS = st.lists(
    st.builds(
        window_model.Row,
        ts=st.integers(0, 60),
        key=st.sampled_from(["a", "b", "c", None]),
        number=st.none(),
        double=st.none(),
        text=st.none(),
        op=st.sampled_from([0, 0, 0, 1]),
    ),
    max_size=30,
)
WINDOWS = st.sampled_from([(5, 5, 0), (5, 5, 10), (12, 5, 7), (1, 1, 3), (40, 3, 20)])


@settings(max_examples=examples(50), deadline=None)
@given(records=RECORDS, window=WINDOWS, cuts=CUTS, most=st.sampled_from([None, 1, 2]))
def test_windows_show_their_changes_as_the_model_does(
    records: list[window_model.Row], window: tuple[int, int, int], cuts: list[int], most: int | None
) -> None:
    having = None if most is None else f"value <= {most}"
    changes = behind_windows(records, window, [], "changes", having)
    clock, made = -1, []
    for place, record in enumerate(records):
        if record.key is None or record.op:
            continue
        clock = max(clock, record.ts)
        own = [change for change in changes if change["_pos"] == 10 * place]
        changed = [model.WindowChange(c["key"], c["window_start"], c["window_end"], c["value"]) for c in own]
        made.append(model.Step(10 * place, 1000 + place, clock, tuple(changed)))
    expected = [{**row, "_ts": None} for row in model.corrections(made, window[2])]
    emitted = behind_windows(records, window, cuts, "corrections", having)
    seen = [{**row, "_ts": None} for row in emitted]
    if most is not None:  # ties go by a window's first record, matching or not, which the model does not know
        seen, expected = sorted(seen, key=by_window), sorted(expected, key=by_window)
    assert seen == expected


def by_window(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["_pos"], row["window_end"], row["window_start"], row["key"]


def test_a_window_whose_end_and_closing_fall_into_one_jump_gives_its_final_result_alone() -> None:
    records = [window_model.Row(ts, "a", None, None, None) for ts in (1, 12, 40)]
    emitted = behind_windows(records, (10, 10, 5), [], "corrections")
    shown = [(row["_pos"], row["window_start"], row["$state"]) for row in emitted]
    assert shown == [(10, 0, "preliminary"), (20, 0, "final"), (20, 10, "final")]


def test_at_one_position_preliminary_results_come_before_corrections_and_these_before_finals() -> None:
    changes = [
        model.Step(0, 0, 4, (model.WindowChange("a", 0, 4, 1), model.WindowChange("a", 4, 8, 1))),
        model.Step(10, 1, 7, (model.WindowChange("a", 8, 12, 1),)),
        model.Step(20, 2, 9, (model.WindowChange("b", 4, 8, 1),)),
        model.Step(20, 3, 9, (model.WindowChange("b", 4, 8, 2), model.WindowChange("a", 0, 4, 2))),
        model.Step(20, 4, 14, ()),
    ]
    operator = Corrections(model.WINDOWED, ("key",), 8, None, MemorySegmentStore())
    arrays = [np.array([getattr(step, name) for step in changes]) for name in ("position", "offset", "clock")]
    shown = rows(operator.process(model.change_frame(changes), *arrays))
    assert [(row["key"], row["window_start"], row["$state"]) for row in shown if row["_pos"] == 20] == [
        ("a", 4, "preliminary"),
        ("b", 4, "preliminary"),
        ("a", 8, "preliminary"),
        ("a", 0, "correction"),
        ("a", 0, "final"),
    ]


def test_a_session_that_grows_deletes_its_preliminary_result_and_gives_a_new_one() -> None:
    spec = SessionAggregation("w", (("key", "s.key"),), 5, 0, COUNT, "corrections")
    operator = SessionAggregator(spec, window_model.SCHEMA, None, MemorySegmentStore())
    emitted = []
    for place, ts in enumerate((10, 12, 30)):
        frame = window_model.frame([window_model.Row(ts, "a", None, None, None)], place)
        emitted += rows(operator.process(frame).frame)
    shown = [(row["_pos"], row["_op"], row["window_start"], row["window_end"], row["value"], row["$state"]) for row in emitted]
    assert shown == [
        (0, 0, 10, 10, 1, "preliminary"),
        (10, 1, 10, 10, None, "correction"),
        (10, 0, 10, 12, 2, "preliminary"),
        (20, 0, 30, 30, 1, "preliminary"),
        (20, 0, 10, 12, 2, "final"),
    ]


@settings(max_examples=examples(50), deadline=None)
@given(records=RECORDS, window=WINDOWS, cuts=CUTS)
def test_rows_marked_final_are_the_final_results(
    records: list[window_model.Row], window: tuple[int, int, int], cuts: list[int]
) -> None:
    corrected = behind_windows(records, window, cuts, "corrections")
    marked = [{name: row[name] for name in row if name != "$state"} for row in corrected if row["$state"] == "final"]
    assert marked == behind_windows(records, window, [], "final")


def test_an_idle_task_shows_and_closes_its_windows_by_wall_clock() -> None:
    operator = WindowAggregator(
        window_model.spec(10, 10, 5, "corrections", None, COUNT), window_model.SCHEMA, None, MemorySegmentStore()
    )
    operator.process(window_model.frame([window_model.Row(3, "a", None, None, None)]))
    nothing = window_model.frame([])
    assert operator.due_in_ms == 7
    shown = operator.process(nothing, {}, BatchTime(position=77, advance_ms=7)).frame
    assert shown.select("_pos", "window_end", "$state").rows()[0][::2] == (77, "preliminary")
    assert operator.due_in_ms == 5
    closed = operator.process(nothing, {}, BatchTime(position=78, advance_ms=6)).frame
    assert closed["$state"].to_list() == ["final"]
    assert (operator.due_in_ms, operator.clocks) == (None, {"w": 16})


def test_a_shown_window_that_was_deleted_comes_back_as_a_correction_after_a_restart() -> None:
    store = MemorySegmentStore()
    values = [1, None, 3]
    made = [model.Step(10 * i, i, 5 + i, (model.WindowChange("a", 0, 5, value),)) for i, value in enumerate(values)]
    state, states = None, []
    for step in made:
        operator = Corrections(model.WINDOWED, ("key",), 20, state, store)
        arrays = [np.array([getattr(step, name)]) for name in ("position", "offset", "clock")]
        states += operator.process(model.change_frame([step]), *arrays).select("_op", "$state").rows()
        state = operator.snapshot()
    assert states == [(0, "preliminary"), (1, "correction"), (0, "correction")]
