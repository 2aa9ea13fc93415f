"""T3 and V8 for a whole task: two tables, graces, a filter and a projection over one shared order."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any, Literal

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import STRING, Schema
from engine.frames.hashing import key_hash
from engine.operators.tasks.query_times import QueryTimes
from engine.operators.tasks.slices import Slice
from engine.operators.tasks.task import Task, build_task
from engine.plan.model import Feed, Input, LateRecords, Output, Plan, RelationSchema, Stage
from engine.plan.operators.row_operators import Filter, Projection
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.lane_readings import lane_readings
from tests.late_frames import DESCRIBED

FEED = Feed("log:all", "log", "all")
COLUMNS = Schema((("key", STRING), ("value", STRING)))
SOURCES: list[tuple[str, Literal["stream", "table"]]] = [("t", "table"), ("u", "table"), ("s", "stream")]
Record = tuple[int, str | None, str | None, int]

record: st.SearchStrategy[Record] = st.tuples(
    st.integers(0, 2), st.sampled_from(["a", "b", None]), st.sampled_from(["x", "y", None]), st.integers(0, 40)
)
records = st.lists(record, max_size=12) | st.lists(record, min_size=30, max_size=50)  # long ones are rare otherwise


def plan(graces: tuple[int | None, int | None]) -> Plan:
    inputs = tuple(
        Input(
            i, alias, RelationSchema(alias, kind, COLUMNS, ("key",), None, None, None, None, None), FEED, COLUMNS.names, ("key",)
        )
        for i, (alias, kind) in enumerate(SOURCES)
    )
    schema = Schema(tuple((f"{alias}.{name}", STRING) for alias in ("t", "u", "s") for name in COLUMNS.names))
    operators = (
        StreamTableJoin("t", "left", 0, ("s.key",), ("t.key",), 20, graces[0], "divert", "null", ("t.value",)),
        StreamTableJoin("u", "inner", 1, ("s.key",), ("u.key",), 20, graces[1], "join", "null", ("u.value",)),
        Filter("t.$match <> 'deleted'"),
        Projection((("key", "s.key"), ("values", "s.value || coalesce(t.value, '-') || u.value"))),
    )
    output = Output(
        "out", "stream", Schema((("key", STRING), ("values", STRING))), (), is_windowed=False, is_final=False, retention_ms=None
    )
    return Plan("q", 1, inputs, (Stage(0, schema, 2, operators),), output, LateRecords(10, 10))


def slices(records: list[Record], first: int) -> list[Slice]:
    found = []
    for index in range(3):
        rows = [(first + i, ts, value is None, key, value) for i, (own, key, value, ts) in enumerate(records) if own == index]
        schema = {"_offset": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8, "key": pl.String, "value": pl.String}
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        found.append(Slice(index, FEED.name, 0, frame.with_columns(key_hash(frame, ["key"]))))
    return found


class Run:
    """Everything a sequence of batches made visible."""

    def __init__(self, plan: Plan) -> None:
        self.changes: list[Any] = []
        self.late: list[Any] = []
        self.counters: Counter[tuple[str, str]] = Counter()
        self.store = MemorySegmentStore()
        self.plan = plan
        self.task: Task = build_task(plan.stages[0], plan, None, self.store)
        self.times = QueryTimes()

    def feed(self, records: list[Record], first: int) -> None:
        given = slices(records, first)
        readings = lane_readings(given, self.plan.inputs)
        order = self.times.order(self.plan, readings)
        self.times = self.times.behind(self.plan, order, readings)
        emission = self.task.process(given, order, now_ms=0)
        assert emission.changes.columns == ["_ts", "_op", "key", "values"]
        self.changes += emission.changes.rows()
        self.late += emission.late.select(DESCRIBED).rows()
        self.counters.update(emission.counters)
        self.facts = (self.times.times, emission.buffered, emission.dues)

    def restart(self) -> None:
        state = json.loads(json.dumps(self.task.snapshot()))
        self.store.purge()
        self.times = QueryTimes.of_snapshot(json.loads(json.dumps(self.times.snapshot())))
        self.task = build_task(self.plan.stages[0], self.plan, state, self.store)


@settings(max_examples=examples(60), deadline=None)
@given(
    records=records,
    cuts=st.sets(st.integers(1, 49)),
    restarts=st.sets(st.integers(0, 50)),
    graces=st.tuples(*[st.one_of(st.none(), st.integers(0, 10))] * 2),
)
def test_slicing_and_restarts_change_nothing(
    records: list[Record], cuts: set[int], restarts: set[int], graces: tuple[int | None, int | None]
) -> None:
    whole, cut = Run(plan(graces)), Run(plan(graces))
    whole.feed(records, 0)
    bounds = sorted({0, len(records), *(place for place in cuts if place < len(records))})
    for start, stop in pairwise(bounds):
        cut.feed(records[start:stop], start)
        if start in restarts:
            cut.restart()
    probe: list[Record] = [(2, key, "p", ts) for key in ("a", "b") for ts in (0, 10, 20, 30, 40, 90)]  # makes the state visible
    for run in (whole, cut):
        run.feed(probe, len(records))
    assert cut.changes == whole.changes
    assert sorted(cut.late) == sorted(whole.late)
    assert cut.counters == whole.counters
    assert cut.facts == whole.facts
