"""S6 under any slicing, any restart: alone against a model, and behind tumbling and hopping windows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames.clocks import BEFORE_ALL_TIME, Clock
from engine.frames.hashing import KeyHash
from engine.operators.operators import BatchTime
from engine.operators.windows.corrections import Corrections
from engine.operators.windows.hopping import WindowAggregator
from engine.operators.windows.sessions.sessions import SessionAggregator
from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.windows import SessionAggregation
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.lone_operator import LoneOperator
from tests.property import suppress_model as model
from tests.property import window_model
from tests.property import windowed_runs as runs
from tests.property.hashings import hashings
from tests.property.places_model import STEP

DELAYS = st.sampled_from([0, 1, 5, 20])
CUTS = st.lists(st.integers(0, 30), max_size=10)
COUNT = (AggregateColumn("value", "count", None),)


@st.composite
def steps(draw: st.DrawFn, delay: int) -> list[model.Step]:
    """Steps as a window operator could take them: it never changes a window that has closed."""
    made: list[model.Step] = []
    clock = before = place = 0
    for number in range(draw(st.integers(0, 30))):
        rise, step = draw(st.sampled_from([0, 0, 1, 2, 5, 30])), draw(st.sampled_from([0, 1, 1]))
        before = clock if step else before
        clock, place = clock + rise, place + step
        windows = st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.sampled_from([0, 4]), st.sampled_from([None, 1, 2, 3]))
        changes = []
        for key, back, size, value in draw(st.lists(windows, max_size=3)):
            start = max(clock // 4 - back, 0) * 4
            if start + size + delay > before:
                changes.append(model.WindowChange(key, start, start + size, value))
        made.append(model.Step(10 * place, 100 + number, clock, tuple(changes)))
    return made


def edges(cuts: Sequence[int], made: Sequence[model.Step]) -> list[int]:
    """Where to cut; a position is never cut."""
    inner = {cut for cut in cuts if 0 < cut < len(made) and made[cut].position != made[cut - 1].position}
    return [0, *sorted(inner), len(made)]


def rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    bounds = [pl.col(name).dt.epoch("ms") for name in ("window_start", "window_end")]
    return frame.with_columns(bounds).drop("_key_hash", "_rank", strict=False).to_dicts()


class Run:
    """Corrections alone, with the times of their steps."""

    def __init__(self, delay: int, store: MemorySegmentStore, *, is_moving: bool = False) -> None:
        self.delay, self.store, self.is_moving = delay, store, is_moving
        self.time = BEFORE_ALL_TIME
        self.restart(None)

    def restart(self, state: dict[str, Any] | None) -> None:
        self.operator = Corrections(model.WINDOWED, ("key",), self.delay, state, self.store, is_moving=self.is_moving)

    def process(self, part: Sequence[model.Step]) -> pl.DataFrame:
        places, times = (np.array([getattr(step, name) for step in part], np.int64) for name in ("position", "clock"))
        entered = {"entered": int(places[0])} if len(part) else {}
        clock = Clock(self.time, **entered).rising(places, times, self.time)
        self.time = clock.end
        return self.operator.process(model.change_frame(part), BatchTime(clock=clock))


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), delay=DELAYS, cuts=CUTS, restarts=st.booleans(), hashing=hashings(), is_moving=st.booleans())
def test_any_slicing_equals_the_step_by_step_model(
    data: st.DataObject, delay: int, cuts: list[int], restarts: bool, hashing: KeyHash, is_moving: bool
) -> None:
    made = data.draw(steps(delay))
    store = MemorySegmentStore(hashing)
    run = Run(delay, store, is_moving=is_moving)
    emitted = []
    for start, end in itertools.pairwise(edges(cuts, made)):
        emitted += rows(run.process(made[start:end]))
        if restarts:
            state = json.loads(json.dumps(run.operator.snapshot()))
            store.purge()
            run.restart(state)
    assert emitted == model.corrections(made, delay, is_moving=is_moving)


def behind_windows(
    records: Sequence[window_model.Row], window: tuple[int, int, int], cuts: Sequence[int], emit: str, having: str | None = None
) -> list[dict[str, Any]]:
    """What the window operator emits; the cuts are restarts too."""
    spec = window_model.spec(*window, emit, having, COUNT)
    make = partial(WindowAggregator, spec, window_model.SCHEMA)
    return runs.run(make, records, cuts, restarts=True).emitted


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
        own = [change for change in changes if change["_pos"] == STEP * place]
        changed = [model.WindowChange(c["key"], c["window_start"], c["window_end"], c["value"]) for c in own]
        made.append(model.Step(STEP * place, 1000 + place, clock, tuple(changed)))
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
    assert shown == [(100, 0, "preliminary"), (200, 0, "final"), (200, 10, "final")]


def test_at_one_position_preliminary_results_come_before_corrections_and_these_before_finals() -> None:
    changes = [
        model.Step(0, 0, 4, (model.WindowChange("a", 0, 4, 1), model.WindowChange("a", 4, 8, 1))),
        model.Step(10, 1, 7, (model.WindowChange("a", 8, 12, 1),)),
        model.Step(20, 2, 9, (model.WindowChange("b", 4, 8, 1),)),
        model.Step(20, 3, 9, (model.WindowChange("b", 4, 8, 2), model.WindowChange("a", 0, 4, 2))),
        model.Step(20, 4, 14, ()),
    ]
    shown = rows(Run(8, MemorySegmentStore()).process(changes))
    assert [(row["key"], row["window_start"], row["$state"]) for row in shown if row["_pos"] == 20] == [
        ("a", 4, "preliminary"),
        ("b", 4, "preliminary"),
        ("a", 8, "preliminary"),
        ("a", 0, "correction"),
        ("a", 0, "final"),
    ]


def test_a_session_that_grows_deletes_its_preliminary_result_and_gives_a_new_one() -> None:
    spec = SessionAggregation("w", (("key", "s.key"),), 5, 0, COUNT, "corrections")
    records = [window_model.Row(ts, "a", None, None, None) for ts in (10, 12, 30)]
    emitted = runs.run(partial(SessionAggregator, spec, window_model.SCHEMA), records, [1, 2]).emitted
    shown = [(row["_pos"], row["_op"], row["window_start"], row["window_end"], row["value"], row["$state"]) for row in emitted]
    assert shown == [
        (0, 0, 10, 10, 1, "preliminary"),
        (100, 1, 10, 10, None, "correction"),
        (100, 0, 10, 12, 2, "preliminary"),
        (200, 0, 30, 30, 1, "preliminary"),
        (200, 0, 10, 12, 2, "final"),
    ]


@settings(max_examples=examples(50), deadline=None)
@given(records=RECORDS, window=WINDOWS, cuts=CUTS)
def test_rows_marked_final_are_the_final_results(
    records: list[window_model.Row], window: tuple[int, int, int], cuts: list[int]
) -> None:
    corrected = behind_windows(records, window, cuts, "corrections")
    marked = [{name: row[name] for name in row if name != "$state"} for row in corrected if row["$state"] == "final"]
    assert marked == behind_windows(records, window, [], "final")


def test_silence_shows_windows_and_closes_them() -> None:
    spec = window_model.spec(10, 10, 5, "corrections", None, COUNT)
    lone = LoneOperator(WindowAggregator(spec, window_model.SCHEMA, None, MemorySegmentStore()))
    lone.process(window_model.frame([window_model.Row(3, "a", None, None, None)]))
    nothing = window_model.frame([])
    assert lone.operator.due_ms == 10
    shown = lone.process(nothing, silence_ms=9, first=70).frame
    assert shown.select("_pos", "_offset", "$state").rows() == [(76, -1, "preliminary")]
    assert lone.operator.due_ms == 15
    closed = lone.process(nothing, silence_ms=6, first=80).frame
    assert closed.select("_pos", "_offset", "$state").rows() == [(82, -1, "final")]
    assert lone.operator.due_ms is None


def test_a_change_at_the_place_that_closes_its_window_comes_before_the_final_result() -> None:
    changes = [
        model.Step(0, 0, 4, (model.WindowChange("a", 0, 4, 1),)),
        model.Step(10, 1, 4, (model.WindowChange("a", 0, 4, 2),)),
        model.Step(10, 2, 9, (model.WindowChange("b", 0, 4, 1),)),
    ]
    shown = rows(Run(5, MemorySegmentStore()).process(changes))
    assert [(row["key"], row["value"], row["$state"]) for row in shown] == [
        ("a", 1, "preliminary"),
        ("a", 2, "correction"),
        ("a", 2, "final"),
        ("b", 1, "final"),
    ]


def test_a_shown_window_that_was_deleted_comes_back_as_a_correction_after_a_restart() -> None:
    values = [1, None, 3]
    made = [model.Step(10 * i, i, 5 + i, (model.WindowChange("a", 0, 5, value),)) for i, value in enumerate(values)]
    run, states = Run(20, MemorySegmentStore()), []
    for step in made:
        states += run.process([step]).select("_op", "$state").rows()
        run.restart(run.operator.snapshot())
    assert states == [(0, "preliminary"), (1, "correction"), (0, "correction")]
