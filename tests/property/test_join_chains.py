"""Chains of joins give the same rows in the same order, and the same late records, in any number of tasks and in every slicing (T1, P6)."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.frames.places import place_order
from engine.plan.build import build_plan
from engine.plan.catalog import Catalog, source_entry
from engine.plan.model import Plan
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.lane_readings import Pipeline
from tests.late_frames import DESCRIBED
from tests.property.plan_walk import walk
from tests.property.test_definitions_run import FEED, Record, _slices

KEYS = ("a", "b", "c")
COLUMNS = {"id": "int", **dict.fromkeys(KEYS, "int")}
STREAM = StreamDefinition.model_validate({"key": ["id"], "columns": COLUMNS})
TABLE = TableDefinition.model_validate({"key": ["a"], "columns": COLUMNS, "versioned": {"history_retention": "30ms"}})
CATALOG: Catalog = {
    **{name: source_entry(name, STREAM) for name in ("s", "r", "q")},
    **{name: source_entry(name, TABLE) for name in ("t", "u")},
}

key = st.sampled_from(KEYS)
duration = st.sampled_from(["0ms", "0ms", "2ms", "5ms", "12ms"])
looked_up = st.fixed_dictionaries(
    {"type": st.sampled_from(["inner", "left", "left"]), "key": key, "late": st.sampled_from(["join", "drop"])},
    optional={"grace": duration},
)
met = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["inner", "left", "left", "right", "outer"]),
        "key": key,
        "within": st.fixed_dictionaries({"before": duration, "after": duration, "grace": duration}),
    }
)
record = st.builds(
    lambda name, ids, ts, is_delete: Record(
        name, dict(zip(COLUMNS, (ids[0] if name in "tu" else ids[1], *ids), strict=True)), ts, int(is_delete)
    ),
    st.sampled_from("sssrqtu"),
    st.tuples(*[st.integers(0, 1)] * 3),
    st.integers(0, 40),
    st.sampled_from([False, False, False, False, True]),
)
rising = st.builds(  # times that mostly rise: few records are late
    lambda records, steps: [
        each._replace(ts=max(0, place + step)) for place, (each, step) in enumerate(zip(records, steps, strict=False))
    ],
    st.lists(record, min_size=30, max_size=60),
    st.lists(st.integers(-6, 6), min_size=60, max_size=60),
)


@st.composite
def bodies(draw: st.DrawFn, first: dict[str, Any] | None = None) -> dict[str, Any]:
    """Definitions with some joins, each by a column of the first stream.

    Args:
        draw: of the test.
        first: a join before them.
    """
    joins = [] if first is None else [first]
    for name in draw(st.lists(st.sampled_from("rqtu" if first is None else "rq"), min_size=1, max_size=3, unique=True)):
        join = draw(looked_up if name in "tu" else met)
        column = join.pop("key")
        if name in "tu" and "grace" not in join:
            join.pop("late")
        kind, other = ("table", "a") if name in "tu" else ("stream", column)
        joins.append({kind: name, "on": f"s.{column} = {name}.{other}", **join})
    columns = {f"{name}_id": f"{name}.id" for name in ["s", *(join.get("table") or join["stream"] for join in joins)]}
    return {"name": "q", "from": {"stream": "s"}, "joins": joins, "select": columns, "into": {"stream": "out"}}


def planned(body: dict[str, Any], tasks: int) -> Plan:
    plan = build_plan(QueryDefinition.model_validate(body | {"tasks": tasks}), CATALOG)
    return replace(plan, inputs=tuple(replace(item, feed=FEED) for item in plan.inputs))


def run(plan: Plan, records: list[Record], cuts: list[int]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The changes of the result in the order of their places, and the late records."""
    stores: dict[tuple[int, int], MemorySegmentStore] = {}

    def store(stage: int, task: int) -> MemorySegmentStore:
        return stores.setdefault((stage, task), MemorySegmentStore())

    pipeline = Pipeline(plan, None, store)
    changes: list[tuple[Any, ...]] = []
    late: list[tuple[Any, ...]] = []
    for start, stop in pairwise([0, *cuts, len(records)]):
        step = pipeline.process(_slices(plan, records[start:stop], start))
        late += step.late.select(DESCRIBED).rows()
        if step.changes:
            order = place_order(pl.concat(step.causes))
            changes += pl.concat(step.changes)[order].rows()
        pipeline = Pipeline(plan, json.loads(json.dumps(pipeline.snapshot())), store)
    return changes, sorted(late, key=repr)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    body=bodies(),
    records=rising | rising | st.lists(record, min_size=1, max_size=30),
    tasks=st.integers(2, 4),
    cuts=st.sets(st.integers(1, 39), max_size=5),
)
def test_tasks_and_cuts_change_neither_rows_nor_their_order_nor_what_is_late(
    body: dict[str, Any], records: list[Record], tasks: int, cuts: set[int]
) -> None:
    plans = [planned(body, count) for count in (1, tasks)]
    event(" ".join(type(operator).__name__ for operator in walk(plans[0])))
    inner = sorted(cut for cut in cuts if cut < len(records))
    expected = run(plans[0], records, [])
    event(f"{min(len(expected[0]) // 10, 3)}0 rows, {min(len(expected[1]), 3)} late")
    assert run(plans[1], records, inner) == expected


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    body=bodies({"table": "t", "type": "left", "on": "s.a = t.a", "grace": "12ms", "late": "drop"}),
    records=rising,
    cuts=st.sets(st.integers(1, 59), max_size=5),
)
def test_what_the_grace_of_the_first_join_accepts_no_later_join_calls_late(
    body: dict[str, Any], records: list[Record], cuts: set[int]
) -> None:
    """P15: no record is more than 12 ms behind the time of the streams, and what follows waits that long, too."""
    plan = planned(body, 2)
    _, late = run(plan, records, sorted(cut for cut in cuts if cut < len(records)))
    assert {reason for _, reason, *_ in late} <= {"table_history_expired"}
