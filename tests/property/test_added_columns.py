"""An edit that gives a result further columns: what comes before it is what it was, what comes behind is what the new definition gives."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.testing.machines.workbench import Workbench
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.plan.build import build_plan, fits_stored_state, state_fingerprint
from engine.plan.model import Plan
from tests.examples import examples

Json = dict[str, Any]
COLUMNS = {"k": "string", "v": "bigint", "ts": "bigint"}
_COMMON = {"columns": COLUMNS, "event_time": "ts", "key": ["k"], "max_future_skew": None}
_GROUPED: Json = {"from": {"stream": "s"}, "group_by": ["k"], "aggregate": {"n": "count(*)", "v": "sum(v)"}}
_JOIN = {"table": "t", "as": "j", "on": "s.k = j.k", "grace": "3s"}
_WITHIN = {"before": "2s", "after": "2s", "grace": "1s"}
EDITS: dict[str, tuple[Json, Json, Json]] = {
    "windows": (
        {**_GROUPED, "window": {"type": "tumbling", "size": "5s", "grace": "2s"}, "into": {"table": "out"}},
        {"k": "k", "window_start": "window_start", "window_end": "window_end", "n": "n"},
        {"mean": "v / n", "until": "window_end"},
    ),
    "running": ({**_GROUPED, "into": {"table": "out"}}, {"k": "k", "n": "n"}, {"v": "v"}),
    "filtered": ({"from": {"stream": "s"}, "into": {"stream": "out"}}, {"k": "k"}, {"late": "v > 2", "at": "ts"}),
    "joined": (
        {"from": {"stream": "s"}, "joins": [_JOIN], "into": {"stream": "out"}},
        {"k": "s.k", "a": "s.v", "b": "j.v"},
        {"sum": "s.v + j.v"},
    ),
    "streams": (
        {
            "from": {"stream": "s"},
            "joins": [{"stream": "r", "as": "j", "on": "upper(s.k) = upper(j.k)", "type": "right", "within": _WITHIN}],
            "into": {"stream": "out"},
        },
        {"k": "j.k", "a": "s.v", "b": "j.v"},
        {"both": "coalesce(s.v, 0) + j.v"},
    ),
}
rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 20)), max_size=20)


def bench() -> Workbench:
    stream = StreamDefinition.model_validate(_COMMON)
    table = TableDefinition.model_validate({**_COMMON, "versioned": {"history_retention": "1h"}})
    return Workbench({"s": stream, "r": stream, "t": table})


def planned(made: Workbench, body: Json, select: Json, tasks: int) -> Plan:
    definition = QueryDefinition.model_validate({"name": "q", "tasks": tasks, **body, "select": select})
    return build_plan(definition, {name: entry for name, entry in made.catalog.items() if name != "out"})


def frame(found: list[tuple[str, int, int]]) -> pl.DataFrame:
    schema = {"k": pl.String, "v": pl.Int64, "ts": pl.Int64}
    records = pl.DataFrame([(key, value, 1_000 * at) for key, value, at in found], schema=schema, orient="row")
    return records.select(pl.col("ts").alias("_ts"), pl.lit(0, pl.Int8).alias("_op"), "k", "v", "ts")


def told(made: Workbench) -> list[Json]:
    return [row for each in made.outcome("q").changes for row in each.iter_rows(named=True)]


@pytest.mark.parametrize("kind", EDITS)
@settings(max_examples=examples(15), deadline=None)
@given(st.tuples(rows, rows, rows), st.tuples(rows, rows, rows), st.integers(1, 3))
def test_further_columns_are_those_of_the_new_definition_and_null_before(
    kind: str, before: tuple[Any, ...], after: tuple[Any, ...], tasks: int
) -> None:
    body, select, more = EDITS[kind]
    edited, whole = bench(), bench()
    old, new = planned(edited, body, select, tasks), planned(whole, body, {**select, **more}, tasks)
    assert fits_stored_state(old, new)
    assert not fits_stored_state(new, old), "what is shown cannot be taken away"
    edited.add_plan(old)
    whole.add_plan(new)
    for number, part in enumerate((before, after)):
        for made in (edited, whole):
            made.append({name: frame(found) for name, found in zip("srt", part, strict=True)})
            made.read("q")
        if number == 0:
            told_before = len(told(edited))
            edited.replan("q", new)
    expected = [
        row if place >= told_before else {name: value for name, value in row.items() if name not in more}
        for place, row in enumerate(told(whole))
    ]
    assert told(edited) == expected


@pytest.mark.parametrize(
    ("kind", "select"),
    [
        ("windows", {"k": "k", "window_start": "window_start", "window_end": "window_end", "n": "n + 1", "v": "v"}),
        ("running", {"k": "k"}),
        ("joined", {"k": "s.k", "a": "s.v", "b": "j.v", "at": "j.ts"}),
        ("filtered", {"k": "upper(k)", "at": "ts"}),
    ],
)
def test_what_would_have_to_be_shown_or_read_anew_needs_new_state(kind: str, select: Json) -> None:
    body, before, _ = EDITS[kind]
    made = bench()
    old, new = planned(made, body, before, 1), planned(made, body, select, 1)
    assert not fits_stored_state(old, new)
    assert state_fingerprint(old) != state_fingerprint(new)
