"""T10: what silence does depends on how long it lasts, not on how often the clock is looked at; and only real silence counts."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.connectors.shaping import for_input
from engine.core.order import Slice
from engine.core.task import Task, build_task
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Plan
from engine.state.memory import MemorySegmentStore

IDLE_MS = 1_000
FEED = {"type": "log", "feed": "all", "partitions": 1}


def plan() -> Plan:
    """A join that waits, in front of windows that wait: what silence lets go of the first moves the clock of the second."""
    columns = {"k": "string", "v": "bigint"}
    versioned = {"history_retention": "1h"}
    sources: dict[str, SourceDefinition] = {
        "s": StreamDefinition.model_validate({"key": ["k"], "columns": columns, "connector": FEED}),
        "t": TableDefinition.model_validate({"key": ["k"], "columns": columns, "versioned": versioned, "connector": FEED}),
    }
    body: dict[str, Any] = {
        "name": "q", "tasks": 1, "from": {"stream": "s"}, "idle": {"after": f"{IDLE_MS}ms"},
        "joins": [{"table": "t", "type": "left", "on": "s.k = t.k", "grace": "500ms"}],
        "group_by": ["s.k"], "window": {"type": "tumbling", "size": "100ms"}, "aggregate": {"n": "count(*)"},
        "suppress": {"mode": "until_window_closes"}, "into": {"table": "out"},
    }  # fmt: skip
    return build_plan(QueryDefinition.model_validate(body), {name: source_entry(name, each) for name, each in sources.items()})


PLAN = plan()


def task() -> Task:
    return build_task(PLAN.stages[0], PLAN, None, MemorySegmentStore())


def records(times: list[int], first: int = 0) -> list[Slice]:
    stream = next(item for item in PLAN.inputs if item.alias == "s")
    frame = pl.DataFrame(
        {
            "k": ["a"] * len(times),
            "v": [0] * len(times),
            "_ts": times,
            "_op": [0] * len(times),
            "_offset": range(first, first + len(times)),
        },
        schema={"k": pl.String, "v": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8, "_offset": pl.Int64},
    )
    return [Slice(stream.index, stream.feed.name, 0, for_input(frame, stream))] if times else []


def results(emissions: list[Any]) -> tuple[list[tuple[Any, ...]], int]:
    """Windows and how many were late."""
    rows = [row for emission in emissions for row in emission.changes.select("k", "window_start", "n").rows()]
    late = sum(count for emission in emissions for (_, reason), count in emission.counters.items() if reason == "window_closed")
    return rows, late


@settings(max_examples=150, deadline=None)
@given(times=st.lists(st.integers(0, 2_000), min_size=1, max_size=8), ticks=st.sets(st.integers(1, 9_000), max_size=12))
def test_the_number_of_ticks_makes_no_difference(times: list[int], ticks: set[int]) -> None:
    often, once = task(), task()
    seen = [often.process(records(times), 0), *(often.process([], tick) for tick in sorted(ticks)), often.process([], 10_000)]
    assert results(seen) == results([once.process(records(times), 0), once.process([], 10_000)])


@settings(max_examples=60, deadline=None)
@given(times=st.lists(st.integers(0, 2_000), min_size=2, max_size=12), cut=st.integers(1, 11))
def test_time_in_which_nobody_looked_is_no_silence(times: list[int], cut: int) -> None:
    interrupted, whole = task(), task()
    parts = [interrupted.process(records(times[:cut]), 0)]
    parts.append(interrupted.process(records(times[cut:], cut), 3_600_000, awake_ms=3_600_000))
    assert results(parts) == results([whole.process(records(times), 0)])


def test_records_after_a_silence_are_judged_by_the_advanced_time() -> None:
    one = task()
    seen = [one.process(records([0]), 0), one.process(records([50], 1), 600_000, awake_ms=0)]
    rows, late = results(seen)
    assert [row[2] for row in rows] == [1]
    assert late == 1, "it is late for the join, which joins it at once, and then for its window"
    assert seen[1].counters["t", "late_joined"] == 1
