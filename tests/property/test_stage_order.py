"""T1, T2, T3, P4, P6: results are those of the merge of the inputs, however it is cut into batches and whatever the number of tasks."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.plan.build import build_plan
from engine.plan.model import Plan
from tests.examples import examples
from tests.property.chains import stream_chains, table_chains
from tests.property.query_runs import Made, QueryRun, Record, merges
from tests.stored.kinds import CATALOG, KINDS

_REKEYED: dict[str, Any] = {
    "from": {"stream": "s"}, "joins": [{"table": "v", "as": "j", "on": "s.k = j.k", "type": "left", "grace": "10m"}],
    "group_by": ["j.g"], "window": {"type": "tumbling", "size": "20m", "grace": "0s"},
    "aggregate": {"rows": "count(*)", "total": "sum(s.n)", "all": "collect_list(s.k)"}, "into": {"table": "out"},
}  # fmt: skip
"""What is late in the second stage hangs on the order in which the tasks of the first one let go."""

_SLOWEST: dict[str, Any] = {"idle": {"after": "1h"}, "clock": "slowest"}
"""The partitions make time together (T12); none of them is idle here."""

DEFINITIONS: dict[str, dict[str, Any]] = {
    "join_then_rekeyed_window": {**_REKEYED, "suppress": {"mode": "until_window_closes"}},
    "join_then_rekeyed_window_changes": _REKEYED,
    "streams_then_rekeyed_session": {
        "from": {"stream": "s"},
        "joins": [{"stream": "r", "as": "j", "on": "s.k = j.k", "within": {"before": "15m", "after": "15m", "grace": "5m"}}],
        "group_by": ["j.g"], "window": {"type": "session", "gap": "3m", "grace": "0s"},
        "aggregate": {"rows": "count(*)", "last_n": "last(s.n)"}, "suppress": {"mode": "until_window_closes"},
        "into": {"table": "out"},
    },
    "three_stages": {
        "from": {"stream": "s"},
        "joins": [
            {"table": "v", "as": "j", "on": "s.k = j.k", "type": "left", "grace": "10m"},
            {"table": "d", "as": "i", "on": "j.g = i.g", "type": "left", "grace": "5m"},
        ],
        "group_by": ["i.n"], "window": {"type": "tumbling", "size": "10m", "grace": "0s"},
        "aggregate": {"rows": "count(*)", "total": "sum(s.n)"}, "suppress": {"mode": "until_window_closes"}, "into": {"table": "out"},
    },
    "answers_then_groups": {
        "from": {"table": "u"}, "joins": [{"table": "e", "as": "j", "on": "u.g = j.g", "type": "left"}],
        "group_by": ["j.n"], "aggregate": {"rows": "count(*)", "total": "sum(u.n)"}, "into": {"table": "out"},
    },
    **{name: body for name, body in KINDS.items() if name not in ("wall_clock", "idle")},
    "slowest_windows": {**KINDS["tumbling_final"], **_SLOWEST},
    "slowest_streams": {**KINDS["streams_outer"], **_SLOWEST},
    "slowest_join_then_rekeyed_window": {**_REKEYED, **_SLOWEST},
}  # fmt: skip

SEVERAL_STAGES = [
    "join_then_rekeyed_window", "join_then_rekeyed_window_changes", "streams_then_rekeyed_session", "three_stages", "answers_then_groups",
    "two_joins", "joined_windows", "foreign_key", "table_aggregate", "versioned_aggregate", "slowest_join_then_rekeyed_window",
]  # fmt: skip


def planned(name: str) -> Plan:
    return build_plan(QueryDefinition.model_validate({"name": "q", **DEFINITIONS[name]}), CATALOG)


def made_of(
    plan: Plan, records: Sequence[Record], cuts: Sequence[int], tasks: Sequence[int] = (1,), chance: random.Random | None = None
) -> Made:
    """Return everything a query makes of batches.

    Args:
        plan: the query's.
        records: in the order of the merge.
        cuts: where batches end.
        tasks: how many there are in the first batch, in the second one and so on, the last number in all others.
        chance: see ``QueryRun``; it also says before which batches the query is restarted.
    """
    run = QueryRun(plan, tasks[0], chance)
    for number, (start, stop) in enumerate(pairwise([0, *cuts, len(records)])):
        if number and (number < len(tasks) or (chance is not None and chance.random() < 0.3)):
            run.restart(tasks[min(number, len(tasks) - 1)])
        run.process(records[start:stop])
    heads = [head for _, head, *_ in run.made.rows]
    assert heads == sorted(heads), "how far the merge has come never falls along the numbers"
    return run.made


GRACE = "as much as the disorder"
"""Stands for a grace until the records of a test are known."""

TASKS = st.lists(st.sampled_from([1, 2, 3, 7]), min_size=1, max_size=4)


def check_tasks_and_cuts(plan: Plan, data: st.DataObject) -> Made:
    """Neither the number of tasks nor where batches end shows in rows, their order, what is late, or what a reader is told (P4)."""
    records = data.draw(merges(plan), label="records")
    expected = made_of(plan, records, [])
    by_record = made_of(plan, records, range(1, len(records)))
    same(by_record, expected)
    for _ in range(2):
        places = st.sets(st.integers(1, max(len(records) - 1, 1)), max_size=6)
        cuts = sorted(data.draw(places, label="cuts")) if len(records) > 1 else []
        tasks, seed = data.draw(TASKS, label="tasks"), data.draw(st.integers(0, 1 << 32), label="seed")
        same(made_of(plan, records, cuts, tasks, random.Random(seed)), expected)
    return expected


def same(made: Made, expected: Made) -> None:
    assert made.rows == expected.rows
    assert made.late == expected.late
    assert made.events == expected.events
    assert made.marks == expected.marks


@pytest.mark.parametrize("name", SEVERAL_STAGES)
@settings(max_examples=examples(15))
@given(st.data())
def test_results_of_several_stages_are_those_of_the_merge_record_by_record(name: str, data: st.DataObject) -> None:
    check_tasks_and_cuts(planned(name), data)


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if name not in SEVERAL_STAGES])
@settings(max_examples=examples(4))
@given(st.data())
def test_results_of_one_stage_too(name: str, data: st.DataObject) -> None:
    check_tasks_and_cuts(planned(name), data)


@settings(max_examples=examples(60), deadline=None)
@given(st.one_of(stream_chains(), stream_chains(), table_chains()), st.data())
def test_results_of_any_chain_are_those_of_the_merge_record_by_record(body: dict[str, Any], data: st.DataObject) -> None:
    plan = build_plan(QueryDefinition.model_validate({"name": "q", **body}), CATALOG)
    for stage in plan.stages:
        event(" > ".join(type(operator).__name__ for operator in stage.operators))
    check_tasks_and_cuts(plan, data)


def of_chain(body: dict[str, Any], grace: str) -> Plan:
    """Plan a chain of which every operator has this grace."""
    text = json.dumps({"name": "q", **body}).replace(GRACE, grace)
    return build_plan(QueryDefinition.model_validate(json.loads(text)), CATALOG)


def disorder_ms(records: Sequence[Record]) -> int:
    """How far a record of a stream is at most behind the time of the streams."""
    own = [record for record in records if CATALOG[record.relation].relation.kind == "stream"]
    time_ms = most_ms = 0
    for record in own:
        most_ms = max(most_ms, time_ms - record.ts)
        time_ms = time_ms if record.is_delete else max(time_ms, record.ts)
    return most_ms


@settings(max_examples=examples(60), deadline=None)
@given(stream_chains(GRACE), TASKS, st.data())
def test_graces_that_take_up_the_disorder_of_the_sources_leave_nothing_late(
    body: dict[str, Any], tasks: list[int], data: st.DataObject
) -> None:
    """P15."""
    records = data.draw(merges(of_chain(body, "0s")), label="records")
    made = made_of(of_chain(body, f"{disorder_ms(records)}ms"), records, [len(records) // 2] if len(records) > 1 else [], tasks)
    assert made.late == []


def test_these_have_several_stages() -> None:
    assert [name for name in DEFINITIONS if len(planned(name).stages) > 1] == SEVERAL_STAGES
    assert len(planned("three_stages").stages) == 3


def test_a_rise_without_a_row_is_told_before_the_next_row_wherever_a_batch_ends() -> None:
    """P14: where the row stands, since a reader cannot know of it before."""
    plan = planned("filtered_stream")
    at = [(5_000, 0), (5_001, 0), (4_000, 2), (5_003, 0), (5_002, 2), (7_001, 0)]
    records = [
        Record("s", 0, offset, max(ts for ts, _ in at[: offset + 1]), ts, {"k": "a", "g": "X", "n": n, "x": 1.0}, False)
        for offset, (ts, n) in enumerate(at)
    ]
    expected = [(0, 5_000, 5_000), (0, 5_001, 5_001), (1, 5_003, 5_003), (2, 7_001, 7_001)]
    for cuts in ([], [1], [2], [3], [4], [5], [1, 2, 3, 4, 5]):
        assert made_of(plan, records, cuts).marks == expected


def test_what_several_rows_of_a_record_become_stands_row_by_row_for_any_number_of_tasks() -> None:
    """T1b: a change of the right side answers four left rows, of which each leaves a group and enters another."""
    plan = planned("answers_then_groups")
    rows = [("u", {"k": key, "g": "X", "n": 1, "x": 1.0}) for key in "abcd"]
    rows = [("e", {"g": "X", "n": 1}), *rows, ("e", {"g": "X", "n": 2})]
    records = [Record(name, 0, offset, offset, offset, row, False) for offset, (name, row) in enumerate(rows)]
    expected = made_of(plan, records, [])
    assert len(expected.rows) == 12
    assert [row[4] for row in expected.rows[4:]] == ["1", "2"] * 4
    for tasks in (2, 3, 7):
        same(made_of(plan, records, [], [tasks]), expected)
