"""What `materialize_open` keeps: at every moment the open windows' rows, as a table of every change would show them, and the same finals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import event, given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition
from engine.frames.frames import OPEN_DELETE, OPEN_ROW
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Plan
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.lane_readings import Pipeline
from tests.property.test_definitions_run import FEED, Record, _slices

STREAM = StreamDefinition.model_validate(
    {"key": ["k"], "columns": {"k": "string", "n": "int", "at": "bigint"}, "event_time": "at"}
)
WINDOWS = (
    {"type": "tumbling", "size": "10ms"},
    {"type": "hopping", "size": "10ms", "advance": "4ms"},
    {"type": "session", "gap": "4ms"},
    {"type": "sliding", "difference": "5ms"},
)
records = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 60)), min_size=1, max_size=25)
Folded = dict[tuple[Any, ...], tuple[Any, ...]]


def plan(window: dict[str, Any], grace: int, having: str | None, suppress: str, *, has_open: bool = False) -> Plan:
    body = {
        "name": "q",
        "from": {"stream": "s"},
        "tasks": 1,
        "group_by": ["k"],
        "window": {**window, "grace": f"{grace}ms"},
        "aggregate": {"n": "sum(n)", "rows": "count(*)"},
        "having": having,
        "suppress": {"mode": suppress},
        "into": {"table": "out", "materialize_open": has_open},
    }
    return build_plan(QueryDefinition.model_validate(body), {"s": source_entry("s", STREAM)})


class Run:
    """A plan that runs batch by batch, restarted before each."""

    def __init__(self, a_plan: Plan) -> None:
        self._plan = replace(a_plan, inputs=tuple(replace(item, feed=FEED) for item in a_plan.inputs))
        self._store = MemorySegmentStore()
        self._state: list[list[Any]] | None = None

    def take(self, given: Sequence[Record], first: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return results and what open windows have."""
        pipeline = Pipeline(self._plan, self._state, lambda _stage, _task: self._store)
        step = pipeline.process(_slices(self._plan, given, first))
        self._state = pipeline.snapshot()
        return pl.concat([pl.DataFrame(), *step.changes], how="diagonal"), pl.concat(
            [pl.DataFrame(), *step.opened], how="diagonal"
        )


def fold(into: Folded, frame: pl.DataFrame, row_code: int) -> None:
    for row in frame.iter_rows(named=True):
        key = row["k"], row["window_start"], row["window_end"]
        if row["_op"] == row_code:
            into[key] = row["_ts"], row["n"], row["rows"]
        else:
            into.pop(key, None)


@settings(max_examples=examples(60), deadline=None)
@given(
    given=records,
    cuts=st.sets(st.integers(1, 24), max_size=5),
    window=st.sampled_from(WINDOWS),
    grace=st.sampled_from([0, 7]),
    having=st.sampled_from([None, "n > 3"]),
)
def test_open_rows_are_those_of_every_change_without_the_finals(
    given: list[tuple[str, int, int]], cuts: set[int], window: dict[str, Any], grace: int, having: str | None
) -> None:
    rows = [Record("s", {"k": key, "n": number, "at": ts}, ts, 0) for key, number, ts in given]
    both = Run(plan(window, grace, having, "until_window_closes", has_open=True))
    final = Run(plan(window, grace, having, "until_window_closes"))
    every = Run(plan(window, grace, having, "none"))
    opened: Folded = {}
    finals: Folded = {}
    shown: Folded = {}
    for start, stop in pairwise(sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})):
        results, changes = both.take(rows[start:stop], start)
        expected, nothing = final.take(rows[start:stop], start)
        assert nothing.is_empty()
        assert results.equals(expected)
        fold(opened, changes, OPEN_ROW)
        assert set(changes.get_column("_op").to_list() if changes.height else []) <= {OPEN_ROW, OPEN_DELETE}
        for key in _keys(results):
            opened.pop(key, None)
        fold(finals, results, 0)
        fold(shown, every.take(rows[start:stop], start)[0], 0)
        assert opened == {key: row for key, row in shown.items() if key not in finals}
    event(f"{window['type']} {bool(finals)} {bool(opened)}")


def _keys(results: pl.DataFrame) -> list[tuple[Any, ...]]:
    return [(row["k"], row["window_start"], row["window_end"]) for row in results.iter_rows(named=True)]
