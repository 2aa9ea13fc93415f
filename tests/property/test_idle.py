"""T10: what silence does depends on how long it lasts, not on how often the clock is looked at; and only real silence counts."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.operators.tasks.pipeline import Step
from engine.operators.tasks.slices import Slice
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Plan
from engine.sources.shaping import for_input
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.lane_readings import Pipeline
from tests.property.clocked_runs import FEED, feed

IDLE_MS = 1_000


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
        "suppress": {"mode": "until_window_closes"}, "into": {"stream": "out"},
    }  # fmt: skip
    return build_plan(QueryDefinition.model_validate(body), {name: source_entry(name, each) for name, each in sources.items()})


PLAN = plan()

WAITING: dict[str, dict[str, Any]] = {
    "grace": {},
    "hold": {"hold": {"until": "table_time", "at_most": "700ms"}},
    "inner": {"type": "inner"},
}
"""What the first join does: of the inner one few records pass."""

ENDINGS: dict[str, dict[str, Any]] = {
    "join": {
        "joins": [{"table": "u", "type": "left", "on": "s.{0} = u.k", "grace": "200ms"}],
        "select": {"k": "s.{0}", "v": "s.v", "found": "u.v", "forced": '"$forced"'}, "into": {"stream": "out"},
    },
    "changes": {
        "group_by": ["s.{0}"], "window": {"type": "tumbling", "size": "100ms", "grace": "300ms"}, "aggregate": {"n": "count(*)"},
        "select": {"k": "{0}", "at": "window_start", "n": "n", "forced": '"$forced"'}, "into": {"stream": "out"},
    },
    "session": {
        "group_by": ["s.{0}"], "window": {"type": "session", "gap": "100ms"}, "aggregate": {"n": "count(*)"},
        "suppress": {"mode": "until_window_closes"},
        "select": {"k": "{0}", "at": "window_start", "to": "window_end", "n": "n", "forced": '"$forced"'}, "into": {"stream": "out"},
    },
    "streams": {
        "joins": [{"stream": "r", "type": "left", "on": "s.{0} = r.k", "within": {"before": "50ms", "after": "100ms"}}],
        "select": {"k": "s.{0}", "v": "s.v", "found": "r.v", "forced": '"$forced"'}, "into": {"stream": "out"},
    },
    "suppress": {
        "group_by": ["s.{0}"], "aggregate": {"n": "count(*)"}, "suppress": {"mode": "until_time_limit", "limit": "400ms"},
        "select": {"k": "{0}", "n": "n", "forced": '"$forced"'}, "into": {"stream": "out"},
    },
    "corrections": {
        "group_by": ["s.{0}"], "window": {"type": "tumbling", "size": "100ms", "grace": "300ms"}, "aggregate": {"n": "count(*)"},
        "suppress": {"mode": "window_end_then_corrections"},
        "select": {"k": "{0}", "at": "window_start", "n": "n", "state": '"$state"', "forced": '"$forced"'}, "into": {"stream": "out"},
    },
    "wall clock": {
        "group_by": ["s.{0}"], "aggregate": {"n": "count(*)"}, "suppress": {"mode": "until_wall_clock_time_limit", "limit": "400ms"},
        "select": {"k": "{0}", "n": "n", "forced": '"$forced"'}, "into": {"stream": "out"},
    },
}  # fmt: skip
"""What comes behind it, by a column that equals the first join's: {0} is the same one or another one, which needs a stage more."""


def _worded(value: Any, column: str) -> Any:
    return json.loads(json.dumps(value).replace("{0}", column))


def two_steps(waiting: str, ending: str, column: str) -> Plan:
    """A join that waits and what comes behind it: in one stage by ``k``, in two by ``j``, which always equals it."""
    columns = {"k": "string", "v": "bigint"}
    sources: dict[str, SourceDefinition] = {
        "s": StreamDefinition.model_validate({"key": ["k"], "columns": {**columns, "j": "string"}, "connector": FEED}),
        "r": StreamDefinition.model_validate({"key": ["k"], "columns": columns, "connector": FEED}),
    }
    for name in ("t", "u"):
        body = {"key": ["k"], "columns": columns, "versioned": {"history_retention": "1h"}, "connector": FEED}
        sources[name] = TableDefinition.model_validate(body)
    rest = _worded(ENDINGS[ending], column)
    first = {"table": "t", "type": "left", "on": "s.k = t.k", "grace": "500ms", **WAITING[waiting]}
    definition = QueryDefinition.model_validate(
        {
            "name": "q",
            "tasks": 1,
            "from": {"stream": "s"},
            "idle": {"after": f"{IDLE_MS}ms"},
            **rest,
            "joins": [first, *rest.get("joins", [])],
        }
    )
    return build_plan(definition, {name: source_entry(name, each) for name, each in sources.items()})


class Batch(NamedTuple):
    """Records of the shared feed (relation, key, event time), how much wall clock went by before, whether the source says it slept."""

    records: list[tuple[str, str, int]]
    passed_ms: int
    has_slept: bool


batches = st.lists(
    st.builds(
        Batch,
        st.lists(
            st.tuples(st.sampled_from(["s", "s", "s", "r"]), st.sampled_from(["a", "b"]), st.integers(0, 2_000)), max_size=4
        ),
        st.sampled_from([0, 50, 300, 1_200, 3_000]),
        st.integers(0, 5).map(lambda value: value == 0),
    ),
    min_size=1,
    max_size=5,
)


def played(plan: Plan, script: list[Batch], ticks: int = 1) -> tuple[list[tuple[Any, ...]], dict[tuple[str, str], int]]:
    """Run a script: the rows that came out, in order, and the counters.

    Args:
        plan: what runs.
        script: the batches; a last one lets 10 s go by.
        ticks: how often the clock is looked at on the way to each batch.
    """
    own = query(plan)
    rows: list[tuple[Any, ...]] = []
    counters: dict[tuple[str, str], int] = {}
    offset, now_ms = 2, 0
    own.process(feed(plan, [("t", "a", 0), ("u", "a", 0)], 0), 0)
    for batch in [*script, Batch([], 10_000, has_slept=False)]:
        for tick in range(1, ticks):
            rows += taken(own.process([], now_ms + batch.passed_ms * tick // ticks), counters)
        now_ms += batch.passed_ms
        step = own.process(feed(plan, batch.records, offset), now_ms, awake_ms=now_ms if batch.has_slept else 0)
        rows += taken(step, counters)
        offset += len(batch.records)
    return rows, counters


def taken(step: Any, counters: dict[tuple[str, str], int]) -> list[tuple[Any, ...]]:
    for name, count in step.counters.items():
        counters[name] = counters.get(name, 0) + count
    return [row for changes in step.changes for row in changes.rows()]


def query(own: Plan = PLAN) -> Pipeline:
    return Pipeline(own, None, lambda _stage, _task: MemorySegmentStore())


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


def results(steps: list[Step]) -> tuple[list[tuple[Any, ...]], int]:
    """Windows and how many were late."""
    rows = [row for step in steps for changes in step.changes for row in changes.select("k", "window_start", "n").rows()]
    late = sum(count for step in steps for (_, reason), count in step.counters.items() if reason == "window_closed")
    return rows, late


@settings(max_examples=examples(150), deadline=None)
@given(times=st.lists(st.integers(0, 2_000), min_size=1, max_size=8), ticks=st.sets(st.integers(1, 9_000), max_size=12))
def test_the_number_of_ticks_makes_no_difference(times: list[int], ticks: set[int]) -> None:
    often, once = query(), query()
    seen = [often.process(records(times), 0), *(often.process([], tick) for tick in sorted(ticks)), often.process([], 10_000)]
    assert results(seen) == results([once.process(records(times), 0), once.process([], 10_000)])


@settings(max_examples=examples(60), deadline=None)
@given(times=st.lists(st.integers(0, 2_000), min_size=2, max_size=12), cut=st.integers(1, 11))
def test_time_in_which_nobody_looked_is_no_silence(times: list[int], cut: int) -> None:
    interrupted, whole = query(), query()
    parts = [interrupted.process(records(times[:cut]), 0)]
    parts.append(interrupted.process(records(times[cut:], cut), 3_600_000, awake_ms=3_600_000))
    assert results(parts) == results([whole.process(records(times), 0)])


def test_records_after_a_silence_are_judged_by_the_advanced_time() -> None:
    one = query()
    seen = [one.process(records([0]), 0), one.process(records([50], 1), 600_000, awake_ms=0)]
    rows, late = results(seen)
    assert [row[2] for row in rows] == [1]
    assert late == 1, "it is late for the join, which joins it at once, and then for its window"
    assert seen[1].counters["t", "late_joined"] == 1


@pytest.mark.parametrize("waiting", WAITING)
@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=examples(8), deadline=None)
@given(script=batches)
def test_one_stage_and_two_agree_on_what_silence_does_and_marks(waiting: str, ending: str, script: list[Batch]) -> None:
    one, two = two_steps(waiting, ending, "k"), two_steps(waiting, ending, "j")
    assert (len(one.stages), len(two.stages)) == (1, 2)
    assert played(one, script) == played(two, script)


@pytest.mark.parametrize("column", ["j", "k"])
def test_records_that_only_a_later_stage_reads_end_the_silence_of_all_stages(column: str) -> None:
    script = [Batch([("r", "b", 1_350), ("s", "b", 1_604)], 0, has_slept=False), Batch([("r", "a", 985)], 300, has_slept=False)]
    plan = two_steps("grace", "streams", column)
    rows, counters = played(plan, script)
    assert counters["r", "join_window_closed"] == 1, (
        "a comes at 1,104 before the second join, which is 1,604 less the grace (T1c)"
    )
    assert [(row[3], row[-1]) for row in rows] == [(1_604, True)]
    own = query(plan)
    own.process(feed(plan, script[0].records, 0), 0)
    # b is shown alone when 1,604 + 100 is over behind the grace of 500, which is 601 ms after the silence has begun at 300 + 1,000.
    assert own.process(feed(plan, script[1].records, 2), 300).wakes_at_ms == 300 + IDLE_MS + 2_104 - 1_604, (
        "it leaves the grace first"
    )
    assert own.process([], 300 + IDLE_MS + 600).changes == []
    assert len(own.process([], 300 + IDLE_MS + 601).changes) == 1


BY_EVENT_TIME = [(waiting, ending) for waiting in WAITING for ending in ENDINGS if (waiting, ending) != ("hold", "wall clock")]
"""All but where a timer starts when another has rung: a wall clock shows the time of a batch (T5), so the second depends on the ticks."""


@pytest.mark.parametrize(("waiting", "ending"), BY_EVENT_TIME)
@settings(max_examples=examples(4), deadline=None)
@given(script=batches, ticks=st.integers(2, 7))
def test_the_mark_does_not_depend_on_the_ticks_either(waiting: str, ending: str, script: list[Batch], ticks: int) -> None:
    plan = two_steps(waiting, ending, "j")
    quiet = [batch._replace(has_slept=False) for batch in script]
    assert played(plan, quiet) == played(plan, quiet, ticks)


@pytest.mark.parametrize("column", ["j", "k"])
@pytest.mark.parametrize("ticks", [1, 2, 7, 50])
def test_what_silence_lets_go_meets_an_operator_whose_time_has_waited_for_it(column: str, ticks: int) -> None:
    plan = two_steps("grace", "streams", column)
    rows, counters = played(plan, [Batch([("s", "a", 0), ("r", "a", 100)], 0, has_slept=False)], ticks)
    assert counters == {}, (
        "the time before the second join is 500 behind that of the streams (T1c), and no record is late there (P15)"
    )
    assert [row[3:] for row in rows] == [(0, 100, True)]


def test_what_a_record_brings_through_both_stages_is_not_marked_and_what_silence_does_is() -> None:
    plan = two_steps("grace", "join", "j")
    rows, _ = played(plan, [Batch([("s", "a", 100), ("s", "a", 900)], 10, has_slept=False)])
    # At 900 the time behind the first join is 400: what is of 100 has waited there for 200 ms, too (T1c).
    assert [(row[3], row[-1]) for row in rows] == [(100, False), (900, True)]


def test_what_the_wall_clock_lets_go_in_a_silence_stands_at_no_place_of_it() -> None:
    late = Batch([("s", "a", 100)], 0, has_slept=False)
    rows, _ = played(two_steps("hold", "wall clock", "k"), [Batch([("s", "b", 700)], 10, has_slept=False), late])
    assert [(row[2], row[-1]) for row in rows] == [("a", False)], "b came to the suppression with the last batch (T5)"
    silence = Batch([], 10_000, has_slept=False)
    rows, _ = played(two_steps("hold", "wall clock", "k"), [Batch([("s", "b", 700)], 10, has_slept=False), late, silence])
    assert [(row[2], row[-1]) for row in rows] == [("a", False), ("b", False)]
    rows, _ = played(two_steps("hold", "changes", "k"), [Batch([("s", "b", 700)], 10, has_slept=False), late])
    assert [(row[2], row[-1]) for row in rows] == [("a", False), ("b", False)], "the hold lets it go behind the silence (J9)"


def test_a_stage_behind_a_join_that_seldom_matches_goes_on_with_the_time_of_the_query() -> None:
    plan = two_steps("inner", "session", "j")
    script = [Batch([("s", "a" if number == 0 else "b", 600 * number)], 900, has_slept=False) for number in range(6)]
    rows, _ = played(plan, script)
    assert [(row[2], row[-1]) for row in rows] == [("a", False)], "no silence closes the session (T1c)"
    own = query(plan)
    own.process(feed(plan, [("t", "a", 0)], 0), 0)
    steps = [own.process(feed(plan, batch.records, 2 + at), 900 * (at + 1)) for at, batch in enumerate(script)]
    # 1,200 less the grace is behind the end of the session, at 0, by more than the gap of 100.
    assert [sum(changes.height for changes in step.changes) for step in steps] == [0, 0, 1, 0, 0, 0]
