"""J11 and its like: a restart with another grace or limit goes on with the state, shows nothing twice, and does as the rule says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import BIGINT, Schema
from engine.frames.frames import OFFSET, OP, POS, TS
from engine.operators.joins.grace_buffer import GraceBuffer
from engine.operators.operators import BatchTime, Operator
from engine.operators.pending.spans import MAX_SPANS, Span, bounded
from engine.operators.suppression.suppress import TimeLimitSuppressor
from engine.operators.windows.hopping import WindowAggregator
from engine.operators.windows.sessions.sessions import SessionAggregator
from engine.operators.windows.sliding.sliding import SlidingAggregator
from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.suppression import TimeLimitSuppression
from engine.plan.operators.windows import SessionAggregation, SlidingAggregation, WindowAggregation
from engine.state.segments.memory import MemorySegmentStore
from engine.state.segments.ports import SegmentStore
from tests.examples import examples
from tests.property.edit_model import GAP, SIZE, Grace, Model, Out, Sessions, TimeLimit, Tumbling, outcomes

_COLUMNS = Schema((("key", BIGINT), ("number", BIGINT)))
_ROWS = (AggregateColumn("rows", "count", None),)
_GROUP = (("key", "key"),)
_US = 1000
RELEASE = BatchTime(now_ms=0, position=10_000, is_release=True)


def frame(times: Sequence[int], first: int, key: Callable[[int], int] = lambda _: 0) -> pl.DataFrame:
    places = range(first, first + len(times))
    columns = {
        POS: list(places), TS: list(times), OP: [0] * len(times), "_key_hash": [0] * len(times), OFFSET: list(places),
        "key": [key(ts) for ts in times], "number": list(times),
    }  # fmt: skip
    return pl.DataFrame(
        columns, schema={POS: pl.Int64, TS: pl.Int64, OP: pl.Int8, "_key_hash": pl.UInt64, OFFSET: pl.Int64, **_COLUMNS.polars()}
    )


class _Join(Operator):
    """A grace buffer alone, in an operator's clothes."""

    def __init__(self, grace: int, state: Any, store: SegmentStore) -> None:
        self.name = "j"
        self._buffer = GraceBuffer(grace, "drop", state, store)

    def run(self, rows: pl.DataFrame, moment: BatchTime) -> list[Out]:
        due = self._buffer.process(rows, None, moment.position, moment.step_ms)
        return [Out(ts, ts, 1) for ts in due.frame.get_column(TS)]

    def snapshot(self) -> dict[str, Any]:
        return self._buffer.snapshot()

    @property
    def waiting(self) -> dict[str, list[Span]]:
        return {"j": self._buffer.spans}

    @property
    def clocks(self) -> dict[str, int | None]:
        return {"j": self._buffer.clock}


class _Real:
    """A real operator that shows its results as the models do."""

    def __init__(self, kind: str, grace: int, state: Any, store: SegmentStore) -> None:
        self.kind = kind
        self.name = "j" if kind == "grace" else "w"
        self.operator = _operator(kind, grace, state, store)

    def run(self, times: Sequence[int], first: int, moment: BatchTime) -> list[Out]:
        rows = frame(times, first, (lambda ts: ts % 3) if self.kind == "limit" else lambda _: 0)
        if isinstance(self.operator, _Join):
            return self.operator.run(rows, moment)
        output = self.operator.process(rows, {}, moment).frame
        if self.kind == "limit":
            return [Out(number, number, 1) for number in output["number"]]
        bounds = (output[name].cast(pl.Int64).to_list() for name in ("window_start", "window_end"))
        return [Out(start // _US, end // _US, rows) for start, end, rows in zip(*bounds, output["rows"], strict=True)]


def _operator(kind: str, grace: int, state: Any, store: SegmentStore) -> Operator:
    match kind:
        case "grace":
            return _Join(grace, state, store)
        case "tumbling":
            return WindowAggregator(WindowAggregation("w", _GROUP, SIZE, SIZE, grace, _ROWS, "final"), _COLUMNS, state, store)
        case "sessions":
            return SessionAggregator(SessionAggregation("w", _GROUP, GAP, grace, _ROWS, "final"), _COLUMNS, state, store)
        case "sliding":
            return SlidingAggregator(SlidingAggregation("w", _GROUP, SIZE, grace, _ROWS, "final"), _COLUMNS, state, store)
        case _:
            return TimeLimitSuppressor(TimeLimitSuppression("w", ("key",), grace, None), _COLUMNS, state, store)


_MODELS: dict[str, Callable[[int], Model]] = {"grace": Grace, "tumbling": Tumbling, "sessions": Sessions, "limit": TimeLimit}
_TIMES = st.lists(st.integers(0, 80), max_size=12)
_GRACES = st.tuples(st.integers(0, 40), st.integers(0, 40))
# The boundary of what goes, as delay behind the clock: that of app.catalog.queries.previews.
_DELAYS = {"grace": 0, "tumbling": 0, "sessions": GAP + 1, "limit": 0, "sliding": 1}


@pytest.mark.parametrize("kind", list(_MODELS))
@settings(deadline=None, max_examples=examples(60))
@given(before=_TIMES, after=_TIMES, graces=_GRACES, is_release=st.booleans())
def test_results_after_an_edit_follow_the_rule(
    kind: str, before: list[int], after: list[int], graces: tuple[int, int], is_release: bool
) -> None:
    store, model = MemorySegmentStore(), _MODELS[kind](graces[0])
    old = _Real(kind, graces[0], None, store)
    assert old.run(before, 0, BatchTime()) == outcomes(model, before, 0)
    new = _Real(kind, graces[1], old.operator.snapshot(), store)
    model.grace = graces[1]
    if is_release:
        assert new.run([], 0, RELEASE) == model.release()
    first = 20_000
    assert new.run(after, first, BatchTime()) == outcomes(model, after, first)


@pytest.mark.parametrize("kind", [*_MODELS, "sliding"])
@settings(deadline=None, max_examples=examples(60))
@given(before=_TIMES, graces=_GRACES)
def test_what_an_edit_lets_go_at_once_is_within_the_bounds_that_waiting_tells(
    kind: str, before: list[int], graces: tuple[int, int]
) -> None:
    store = MemorySegmentStore()
    old = _Real(kind, graces[0], None, store)
    for place, ts in enumerate(before):
        old.run([ts], place, BatchTime())
    clock, spans = old.operator.clocks[old.name], old.operator.waiting[old.name]
    gone = _Real(kind, graces[1], old.operator.snapshot(), store).run([], 0, RELEASE)
    until = -1 if clock is None else clock - graces[1] - _DELAYS[kind]
    least = sum(span.least for span in spans if span.high <= until)
    most = sum(span.most for span in spans if span.low <= until)
    assert least <= len(gone) <= most or (kind == "tumbling" and least <= len({out.start for out in gone}) <= most)


@pytest.mark.parametrize("kind", ["tumbling", "sessions", "sliding"])
@settings(deadline=None, max_examples=examples(30))
@given(rounds=st.lists(st.tuples(_TIMES, st.integers(0, 40), st.booleans()), max_size=5))
def test_however_often_the_grace_changes_no_window_is_final_twice(kind: str, rounds: list[tuple[list[int], int, bool]]) -> None:
    store = MemorySegmentStore()
    state, shown, place = None, [], 0
    for times, grace, is_release in [*rounds, ([1000], 0, False)]:
        operator = _Real(kind, grace, state, store)
        if is_release:
            shown += operator.run([], 0, replace(RELEASE, position=place))
        shown += operator.run(times, place + 1, BatchTime())
        place += len(times) + 2
        state = operator.operator.snapshot()
    assert len({(out.start, out.end) for out in shown}) == len(shown)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9), st.integers(0, 5), st.integers(0, 5)), max_size=60))
@example([(0, 0, 0, 0)] * 17)
@example([(0, 0, 1, 0)] * 40 + [(1, 0, 0, 0)] * 2)
def test_merged_spans_hold_what_they_were_made_of(given: list[tuple[int, int, int, int]]) -> None:
    spans = [Span(low, low + width, least, least + more) for low, width, least, more in given]
    merged = bounded(spans)
    assert len(merged) <= MAX_SPANS
    assert sum(span.least for span in merged) == sum(span.least for span in spans)
    assert sum(span.most for span in merged) == sum(span.most for span in spans)
    for until in range(0, 110, 7):
        most = sum(span.most for span in spans if span.low <= until)
        least = sum(span.least for span in spans if span.high <= until)
        assert sum(span.least for span in merged if span.high <= until) <= least
        assert sum(span.most for span in merged if span.low <= until) >= most
