"""Keys that are structs and arrays: every operator does with them what it does with texts that stand for them, however the input is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.operators.running import query, run, stream, table

NESTED = {
    "array<string>": [[], ["a"], ["a", None], [None, "a"], ["b", "a"]],
    "struct<x:int,y:array<int>>": [
        {"x": None, "y": None}, {"x": 1, "y": None}, {"x": 1, "y": []}, {"x": 1, "y": [2]}, {"x": None, "y": [1, 2]},
    ],
}  # fmt: skip
"""Type → values of it."""

WITHIN = {"before": "3ms", "after": "3ms"}
COUNT = {"n": "count(*)", "last": "last(v)"}
DEFINITIONS: dict[str, dict[str, Any]] = {
    "group": {"from": {"stream": "s"}, "group_by": ["k"], "aggregate": COUNT, "into": {"table": "out"}},
    "hopping": {
        "from": {"stream": "s"}, "group_by": ["k"], "window": {"type": "hopping", "size": "4ms", "advance": "2ms", "grace": "2ms"},
        "aggregate": COUNT, "into": {"table": "out"},
    },
    "sliding": {
        "from": {"stream": "s"}, "group_by": ["k"], "window": {"type": "sliding", "difference": "3ms", "grace": "1ms"},
        "aggregate": COUNT, "into": {"table": "out"},
    },
    "session": {
        "from": {"stream": "s"}, "group_by": ["k"], "window": {"type": "session", "gap": "2ms", "grace": "1ms"}, "aggregate": COUNT,
        "suppress": {"mode": "until_window_closes"}, "into": {"table": "out"},
    },
    "table": {"from": {"table": "t"}, "group_by": ["v % 2", "k"], "aggregate": {"n": "count(*)"}, "into": {"table": "out"}},
    "stream_table": {
        "from": {"stream": "s"}, "joins": [{"table": "t", "on": "s.k = t.k", "type": "left"}],
        "select": {"k": "s.k", "v": "s.v", "w": "t.v"},
    },
    "stream_stream": {
        "from": {"stream": "s"}, "joins": [{"stream": "u", "on": "s.k = u.k", "type": "outer", "within": {**WITHIN, "grace": "2ms"}}],
        "select": {"k": "coalesce(s.k, u.k)", "v": "s.v", "w": "u.v"},
    },
    "table_table": {
        "from": {"table": "t"}, "joins": [{"table": "w", "on": "t.k = w.k", "type": "outer"}],
        "select": {"k": "coalesce(t.k, w.k)", "v": "t.v", "x": "w.v"}, "into": {"table": "out"},
    },
}  # fmt: skip

RECORDS = st.lists(
    st.tuples(st.sampled_from("sutw"), st.integers(0, 14), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=14
)


def results(name: str, kind: str, keys: list[Any], records: Any, tasks: int, step: int) -> list[Any]:
    columns = {"k": kind, "v": "bigint"}
    sources = {
        "s": stream(["k"], **columns),
        "u": stream(["k"], **columns),
        "t": table(["k"], **columns),
        "w": table(["k"], **columns),
    }
    rows = [(source, ts, {"k": None if key == 5 else keys[key], "v": value}) for source, ts, key, value in records]
    changes = run(sources, [query(**{**DEFINITIONS[name], "tasks": tasks})], rows, step)
    return [{**row, "k": None if row["k"] is None else keys.index(row["k"])} for row in changes.to_dicts()]


@pytest.mark.parametrize("name", DEFINITIONS)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(kind=st.sampled_from(sorted(NESTED)), records=RECORDS, step=st.integers(1, 6))
def test_a_nested_key_is_a_key_as_any_other(name: str, kind: str, records: Any, step: int) -> None:
    keys, texts = NESTED[kind], [f"text {number}" for number in range(5)]
    wanted = results(name, "string", texts, records, tasks=1, step=step)
    assert results(name, kind, keys, records, tasks=1, step=step) == wanted
    assert results(name, kind, keys, records, tasks=1, step=len(records)) == results(
        name, "string", texts, records, tasks=1, step=len(records)
    )


@pytest.mark.parametrize("kind", sorted(NESTED))
@pytest.mark.parametrize("source", ["stream", "table"])
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(records=RECORDS, step=st.integers(1, 6))
def test_aggregates_tell_nested_values_apart_as_they_do_texts(source: str, kind: str, records: Any, step: int) -> None:
    sets = {"s": "collect_set(v)", "l": "collect_list(v)"} if source == "stream" else {}
    definition = query(
        **{"from": {source: "s"}, "group_by": ["g"], "aggregate": {"n": "count(distinct v)", **sets}, "into": {"table": "out"}}
    )
    found = []
    for declared, values in ((kind, NESTED[kind]), ("string", [f"text {number}" for number in range(5)])):
        columns = {"k": "bigint", "g": "bigint", "v": declared}
        sources = {"s": stream(["k"], **columns) if source == "stream" else table(["k"], **columns)}
        rows = [("s", ts, {"k": value, "g": value % 2, "v": None if key == 5 else values[key]}) for _, ts, key, value in records]
        changes = run(sources, [definition], rows, step).to_dicts()
        found.append(
            [{**row, **{name: row[name] and [values.index(each) for each in row[name]] for name in sets}} for row in changes]
        )
    assert found[0] == found[1]
