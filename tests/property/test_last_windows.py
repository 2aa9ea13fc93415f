"""T8: near the end of the year 9999 a window that would end later takes no record, and what it does not take is counted and kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames.clocks import LAST_EVENT_TIME_MS as LAST
from engine.operators.windows.hopping import WindowAggregator
from engine.operators.windows.sessions.sessions import SessionAggregator
from engine.operators.windows.sliding.sliding import SlidingAggregator
from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.windows import SessionAggregation, SlidingAggregation, WindowAggregation
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import RunningTimes
from tests.examples import examples
from tests.lone_operator import LoneOperator
from tests.property.window_model import SCHEMA, Row, frame

COUNT = (AggregateColumn("rows", "count", None),)
GROUP = (("key", "s.key"),)
TIMES = st.integers(LAST - 60, LAST) | st.sampled_from([0, LAST, LAST - 86_399_999])
ROWS = st.lists(st.builds(lambda ts, key: Row(ts, key, 1, None, None), TIMES, st.sampled_from(["a", "b"])), max_size=25)
CUTS = st.sets(st.integers(1, 24), max_size=6)
EMITS = st.sampled_from(["final", "changes", "corrections"])
CENTURY_MS = 100 * 365 * 86_400_000
GRACES = st.sampled_from([0, 5, 40, CENTURY_MS])

Spec = WindowAggregation | SlidingAggregation | SessionAggregation
Window = tuple[str, int, int]


def build(spec: Spec, state: dict[str, Any] | None, store: MemorySegmentStore) -> Any:
    kinds = {WindowAggregation: WindowAggregator, SlidingAggregation: SlidingAggregator, SessionAggregation: SessionAggregator}
    return kinds[type(spec)](spec, SCHEMA, state, store)


def run(spec: Spec, rows: Sequence[Row], cuts: set[int]) -> tuple[dict[Window, int], Counter[str], Counter[tuple[str, int]]]:
    """What each window holds by the last thing that was told of it, the counters, and the late rows by reason and offset."""
    store, state, times = MemorySegmentStore(), None, RunningTimes()
    held: dict[Window, int] = {}
    counters: Counter[str] = Counter()
    late: Counter[tuple[str, int]] = Counter()
    for start, stop in pairwise(sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})):
        operator = build(spec, state, store)
        output = LoneOperator(operator, times).process(frame(rows[start:stop], start))
        for row in output.frame.to_dicts():
            bounds = (round(row[name].timestamp() * 1000) for name in ("window_start", "window_end"))
            window = (row["key"], *bounds)
            held.pop(window, None)  # type: ignore[arg-type]
            if row["_op"] == 0:
                held[window] = row["rows"]  # type: ignore[index]
        counters.update({reason: count for (_, reason), count in output.counters.items() if reason != "exact_path"})
        late.update(output.late.select("reason", "offset").rows())
        state = json.loads(json.dumps(operator.snapshot()))
        store.purge()
    return held, counters, late


def hopping(rows: Sequence[Row], size: int, advance: int, grace: int) -> tuple[Any, Any, Any, int]:
    held: Counter[Window] = Counter()
    counters: Counter[str] = Counter()
    late: Counter[tuple[str, int]] = Counter()
    clock = 0
    for place, row in enumerate(rows):
        before, clock = clock, max(clock, row.ts)
        first = max((row.ts - size) // advance + 1, 0)
        for start in range(first * advance, row.ts + 1, advance):
            end = start + size
            reason = "window_out_of_range" if end > LAST else "window_closed" if end + grace <= before else None
            if reason is None:
                held[row.key or "", start, end] += 1
            else:
                counters[reason] += 1
                late[reason, 1000 + place] = 1
    return dict(held), counters, late, clock


@settings(max_examples=examples(100), deadline=None)
@given(
    rows=ROWS, cuts=CUTS, size=st.sampled_from([1, 7, 30, 86_400_000]), hops=st.sampled_from([1, 2, 5]), grace=GRACES, emit=EMITS
)
def test_hopping_windows(rows: list[Row], cuts: set[int], size: int, hops: int, grace: int, emit: str) -> None:
    advance = max(size // hops, 1)
    held, counters, late, clock = hopping(rows, size, advance, grace)
    told = run(WindowAggregation("w", GROUP, size, advance, grace, COUNT, emit), rows, cuts)  # type: ignore[arg-type]
    shown = {"final": grace, "corrections": 0}
    if emit in shown:
        held = {window: count for window, count in held.items() if window[2] + shown[emit] <= clock}
    assert told == (held, counters, late)


@settings(max_examples=examples(100), deadline=None)
@given(rows=ROWS, cuts=CUTS, difference=st.sampled_from([0, 1, 7, 30, 86_400_000]), emit=EMITS)
def test_sliding_windows(rows: list[Row], cuts: set[int], difference: int, emit: str) -> None:
    """With a grace of a century nothing is late for another reason."""
    times: dict[str, list[int]] = {"a": [], "b": []}
    late: Counter[tuple[str, int]] = Counter()
    rows = [row for row in rows if row.ts]
    for place, row in enumerate(rows):
        own = times[row.key or ""]
        if row.ts >= LAST - difference and any(other >= LAST - difference and other != row.ts for other in own):
            late["window_out_of_range", 1000 + place] = 1
        own.append(row.ts)
    held = {
        (key, start, start + difference): sum(start <= time <= start + difference for time in own)
        for key, own in times.items()
        for start in {start for time in own for start in (time - difference, time + 1)}
        if start + difference <= LAST and any(start <= time <= start + difference for time in own)
    }
    told = run(SlidingAggregation("w", GROUP, difference, CENTURY_MS, COUNT, emit), rows, cuts)  # type: ignore[arg-type]
    clock = max((row.ts for row in rows), default=0)
    shown = {"final": -1, "corrections": clock, "changes": LAST}[emit]
    counters = Counter({"window_out_of_range": len(late)}) if late else Counter()
    assert told == ({window: count for window, count in held.items() if window[2] <= shown}, counters, late)


@pytest.mark.parametrize("emit", ["changes", "corrections"])
def test_a_session_ends_with_its_last_record_and_so_is_always_in_range(emit: str) -> None:
    rows = [Row(LAST - 5, "a", 1, None, None), Row(LAST, "a", 1, None, None)]
    spec = SessionAggregation("w", GROUP, CENTURY_MS, CENTURY_MS, COUNT, emit)  # type: ignore[arg-type]
    assert run(spec, rows, {1}) == ({("a", LAST - 5, LAST): 2}, Counter(), Counter())
