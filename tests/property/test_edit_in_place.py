"""J11 and its like: a restart with another grace or limit goes on with the state, shows nothing twice, and does as the rule says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.expressions.types.types import BIGINT, Schema
from engine.frames.frames import OFFSET, OP, POS, TS
from engine.operators.joins.grace_buffer import GraceBuffer
from engine.operators.operators import BatchTime, Operator
from engine.operators.pending.spans import MAX_SPANS, Span, bounded
from engine.operators.suppression.suppress import TimeLimitSuppressor
from engine.operators.windows.hopping import WindowAggregator
from engine.operators.windows.sessions.sessions import SessionAggregator
from engine.operators.windows.sliding.sliding import SlidingAggregator
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Plan
from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.suppression import TimeLimitSuppression
from engine.plan.operators.windows import SessionAggregation, SlidingAggregation, WindowAggregation
from engine.state.segments.memory import MemorySegmentStore
from engine.state.segments.ports import SegmentStore
from tests.batch_times import STREAMS, RunningTimes, unranked
from tests.examples import examples
from tests.lane_readings import Pipeline
from tests.property.clocked_runs import FEED, feed, in_order
from tests.property.edit_model import GAP, SIZE, Grace, Model, Out, Sessions, TimeLimit, Tumbling, outcomes

_COLUMNS = Schema((("key", BIGINT), ("number", BIGINT)))
_ROWS = (AggregateColumn("rows", "count", None),)
_GROUP = (("key", "key"),)
_US = 1000


def frame(times: Sequence[int], first: int, key: Callable[[int], int] = lambda _: 0) -> pl.DataFrame:
    places = range(first, first + len(times))
    columns = {
        POS: list(places), TS: list(times), OP: [0] * len(times), "_key_hash": [0] * len(times), OFFSET: list(places),
        "key": [key(ts) for ts in times], "number": list(times),
    }  # fmt: skip
    schema = {POS: pl.Int64, TS: pl.Int64, OP: pl.Int8, "_key_hash": pl.UInt64, OFFSET: pl.Int64, **_COLUMNS.polars()}
    return unranked(pl.DataFrame(columns, schema=schema))


class _Join(Operator):
    """A grace buffer alone, in an operator's clothes."""

    def __init__(self, grace: int, state: Any, store: SegmentStore) -> None:
        self.name = "j"
        self._buffer = GraceBuffer(grace, "drop", state, store)

    def run(self, rows: pl.DataFrame, moment: BatchTime) -> list[Out]:
        due = self._buffer.process(rows, None, moment)
        return [Out(ts, ts, 1) for ts in due.frame.get_column(TS)]

    def snapshot(self) -> dict[str, Any]:
        return self._buffer.snapshot()

    @property
    def waiting(self) -> dict[str, list[Span]]:
        return {"j": self._buffer.spans}


class _Real:
    """A real operator that shows its results as the models do.

    Args:
        kind: which.
        grace: its grace or limit.
        state: what its snapshot was, or None.
        store: where its rows live.
        times: of the query, which an edit leaves as they are.
    """

    def __init__(self, kind: str, grace: int, state: Any, store: SegmentStore, times: RunningTimes) -> None:
        self.kind = kind
        self.name = "j" if kind == "grace" else "w"
        self.operator = _operator(kind, grace, state, store)
        self._times = times

    def run(self, times: Sequence[int], first: int, *, is_release: bool = False) -> list[Out]:
        rows = frame(times, first, (lambda ts: ts % 3) if self.kind == "limit" else lambda _: 0)
        moment = self._times.at([rows], position=first + len(times), is_release=is_release)
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
    store, model, query = MemorySegmentStore(), _MODELS[kind](graces[0]), RunningTimes()
    old = _Real(kind, graces[0], None, store, query)
    assert old.run(before, 0) == outcomes(model, before, 0)
    new = _Real(kind, graces[1], old.operator.snapshot(), store, query)
    model.grace = graces[1]
    if is_release:
        assert new.run([], 10_000, is_release=True) == model.release()
    first = 20_000
    assert new.run(after, first) == outcomes(model, after, first)


@pytest.mark.parametrize("kind", [*_MODELS, "sliding"])
@settings(deadline=None, max_examples=examples(60))
@given(before=_TIMES, graces=_GRACES)
def test_what_an_edit_lets_go_at_once_is_within_the_bounds_that_waiting_tells(
    kind: str, before: list[int], graces: tuple[int, int]
) -> None:
    store, query = MemorySegmentStore(), RunningTimes()
    old = _Real(kind, graces[0], None, store, query)
    for place, ts in enumerate(before):
        old.run([ts], place)
    clock, spans = query.times.get(STREAMS), old.operator.waiting[old.name]
    gone = _Real(kind, graces[1], old.operator.snapshot(), store, query).run([], 10_000, is_release=True)
    until = -1 if clock is None else clock - graces[1] - _DELAYS[kind]
    least = sum(span.least for span in spans if span.high <= until)
    most = sum(span.most for span in spans if span.low <= until)
    assert least <= len(gone) <= most or (kind == "tumbling" and least <= len({out.start for out in gone}) <= most)


@pytest.mark.parametrize("kind", ["tumbling", "sessions", "sliding"])
@settings(deadline=None, max_examples=examples(30))
@given(rounds=st.lists(st.tuples(_TIMES, st.integers(0, 40), st.booleans()), max_size=5))
def test_however_often_the_grace_changes_no_window_is_final_twice(kind: str, rounds: list[tuple[list[int], int, bool]]) -> None:
    store, query = MemorySegmentStore(), RunningTimes()
    state, shown, place = None, [], 0
    for times, grace, is_release in [*rounds, ([1000], 0, False)]:
        operator = _Real(kind, grace, state, store, query)
        if is_release:
            shown += operator.run([], place, is_release=True)
        shown += operator.run(times, place + 1)
        place += len(times) + 2
        state = operator.operator.snapshot()
    assert len({(out.start, out.end) for out in shown}) == len(shown)


_ROUNDS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(["s", "s", "r"]), st.sampled_from("abcdefg"), st.integers(0, 80)), max_size=3),
        st.none() | st.integers(0, 40),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)
"""Batches: records of streams (stream, key, event time), the grace from then on (None: as before), whether what is due goes at once."""

_SKIPPED = [([("s", "a", 10)], None, False), ([("s", "a", 100)], None, False), ([("s", "b", 70), ("r", "b", 70)], 40, False)]
"""The task of b has nothing to do in the second batch, in which 60 to 70 closes."""


def _edited(kind: str, grace: int, tasks: int) -> Plan:
    """A query whose grace an edit in place changes."""
    grouped = {"group_by": ["s.k"], "aggregate": {"rows": "count(*)"}, "suppress": {"mode": "until_window_closes"}}
    windows: dict[str, Any] = {
        "tumbling": {"type": "tumbling", "size": "10ms"}, "sessions": {"type": "session", "gap": "5ms"},
        "sliding": {"type": "sliding", "difference": "10ms"},
    }  # fmt: skip
    body: dict[str, Any] = {"name": "q", "tasks": tasks, "from": {"stream": "s"}, "into": {"stream": "out"}}
    if kind in windows:
        body |= grouped | {"window": {**windows[kind], "grace": f"{grace}ms"}}
    elif kind == "changes":
        body |= grouped | {"window": {"type": "hopping", "size": "10ms", "advance": "5ms", "grace": f"{grace}ms"}}
        del body["suppress"]
    else:
        within = {"before": "5ms", "after": "5ms", "grace": f"{grace}ms"}
        body |= {"joins": [{"stream": "r", "type": "left" if kind == "left" else "inner", "on": "s.k = r.k", "within": within}]}
        if kind == "inner":
            # What is joined late is late for the windows behind it, whose time an edit never takes back (P15).
            body |= {**grouped, "window": {"type": "tumbling", "size": "10ms"}}
        else:
            body["select"] = {"k": "s.k", "found": "r.v"}
    return build_plan(QueryDefinition.model_validate(body), _CATALOG)


_COLUMN_TYPES = {"key": ["k"], "columns": {"k": "string", "v": "bigint"}, "connector": FEED}
_CATALOG = {name: source_entry(name, StreamDefinition.model_validate(_COLUMN_TYPES)) for name in ("s", "r")} | {
    "t": source_entry("t", TableDefinition.model_validate({**_COLUMN_TYPES, "versioned": {"history_retention": "1h"}}))
}


@pytest.mark.parametrize("kind", ["tumbling", "sessions", "sliding", "changes", "left", "inner"])
@settings(deadline=None, max_examples=examples(40))
@given(rounds=_ROUNDS, tasks=st.sampled_from([2, 3, 7]))
@example(rounds=_SKIPPED, tasks=7)
def test_an_edit_does_the_same_whatever_the_number_of_tasks(kind: str, rounds: list[Any], tasks: int) -> None:
    """T1, W6: what has closed belongs to the query, so a task that had nothing to close judges by it, too."""

    def run(tasks: int) -> tuple[list[Any], list[Any]]:
        stores: dict[tuple[int, int], MemorySegmentStore] = {}
        own, pipeline, offset = _edited(kind, 0, tasks), None, 0
        rows, late = [], []
        for records, new_grace, is_release in [*rounds, ([("s", "a", 500), ("r", "a", 500)], None, False)]:
            if pipeline is None or new_grace is not None:
                own = _edited(kind, new_grace or 0, tasks)
                state = None if pipeline is None else pipeline.snapshot()
                pipeline = Pipeline(own, state, lambda *place: stores.setdefault(place, MemorySegmentStore()))
            step = pipeline.process(feed(own, records, offset), is_release=is_release and new_grace is not None)
            offset += len(records)
            rows += in_order(step)
            late += sorted(map(repr, step.late.drop("offset").rows()))
        return rows, late

    assert run(tasks) == run(1)


def test_a_longer_wait_never_takes_time_back_and_a_shorter_one_lets_it_rise_with_what_is_due() -> None:
    """P15, J11: what a join with another grace hands on."""

    def of(grace: int) -> Plan:
        body: dict[str, Any] = {
            "name": "q", "tasks": 1, "from": {"stream": "s"}, "into": {"stream": "out"},
            "joins": [{"table": "t", "type": "left", "on": "s.k = t.k", "grace": f"{grace}ms"}],
            "group_by": ["s.k"], "window": {"type": "tumbling", "size": "10ms"}, "aggregate": {"rows": "count(*)"},
        }  # fmt: skip
        return build_plan(QueryDefinition.model_validate(body), _CATALOG)

    store, offset, state = MemorySegmentStore(), 0, None
    behind = []
    for grace, times in ((20, [100]), (50, [110]), (50, [135]), (5, []), (5, [90, 131, 95])):
        pipeline = Pipeline(of(grace), state, lambda *_: store)
        step = pipeline.process(feed(of(grace), [("s", "a", ts) for ts in times], offset))
        state, offset = pipeline.snapshot(), offset + len(times)
        behind.append(step.clocks["window"])
        assert not step.counters.get(("window", "window_closed"), 0) or times == [90, 131, 95]
    assert behind == [80, 80, 85, 85, 130]
    # The join lets 100 and 110 go at the place of 90, and that itself, which is late: the time before is still 85. At the place of 95 it is 130.
    assert (step.counters["t", "late_joined"], step.counters["window", "window_closed"]) == (2, 1)
    assert sum(frame.height for frame in step.changes) == 3


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
