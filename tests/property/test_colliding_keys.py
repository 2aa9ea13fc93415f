"""Keys that a client made to share a hash give what keys of different hashes give, in every operator that keeps state by key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.plan.build import build_plan
from engine.plan.catalog import Catalog, source_entry
from engine.plan.model import Plan
from tests.examples import examples
from tests.property.colliding_keys import colliding
from tests.property.test_definitions_run import FEED, Record, run

COLUMNS = {"a": "bigint", "b": "bigint", "v": "string"}
REFERRING = {"x": "bigint", "y": "bigint", "a": "bigint", "b": "bigint"}
VERSIONED = {"history_retention": "20s"}
SEEDED = KeyHash(0x51CC_A7E5)

CATALOG: Catalog = {
    "s": source_entry("s", StreamDefinition.model_validate({"columns": COLUMNS})),
    "r": source_entry("r", StreamDefinition.model_validate({"columns": COLUMNS})),
    "t": source_entry("t", TableDefinition.model_validate({"key": ["a", "b"], "columns": COLUMNS, "versioned": VERSIONED})),
    "o": source_entry("o", TableDefinition.model_validate({"key": ["a", "b"], "columns": COLUMNS, "versioned": VERSIONED})),
    "u": source_entry("u", TableDefinition.model_validate({"key": ["a", "b"], "columns": COLUMNS})),
    "c": source_entry(
        "c",
        TableDefinition.model_validate(
            {"key": ["a", "b"], "columns": {**COLUMNS, "at": "bigint"}, "event_time": "at", "conflict": "latest_event_time"}
        ),
    ),
    "f": source_entry("f", TableDefinition.model_validate({"key": ["x", "y"], "columns": REFERRING})),
}

ON = "{0}.a = {1}.a AND {0}.b = {1}.b"


def sides(left: str, right: str) -> dict[str, str]:
    return {"a": f"{left}.a", "b": f"{left}.b", "v": f"{left}.v", "other": f"{right}.v"}


COUNTED = {"group_by": ["a", "b"], "aggregate": {"n": "count(*)", "last": "last(v)"}, "into": {"table": "out"}}

QUERIES: dict[str, dict[str, Any]] = {
    "as-of join": {
        "from": {"stream": "s"}, "joins": [{"table": "t", "type": "left", "on": ON.format("s", "t"), "grace": "3s"}],
        "select": sides("s", "t"), "into": {"stream": "out"},
    },
    "join of the latest row": {
        "from": {"stream": "s"}, "joins": [{"table": "u", "type": "inner", "on": ON.format("s", "u")}],
        "select": sides("s", "u"), "into": {"stream": "out"},
    },
    "join of streams": {
        "from": {"stream": "s"},
        "joins": [{"stream": "r", "type": "outer", "on": ON.format("s", "r"), "within": {"before": "4s", "after": "4s"}}],
        "select": sides("s", "r"), "into": {"stream": "out"},
    },
    "join of tables": {
        "from": {"table": "t"}, "joins": [{"table": "u", "type": "outer", "on": ON.format("t", "u")}],
        "select": {**sides("t", "u"), "a": "coalesce(t.a, u.a)", "b": "coalesce(t.b, u.b)"}, "into": {"table": "out"},
    },
    "join of histories": {
        "from": {"table": "t"},
        "joins": [{"table": "o", "type": "inner", "on": ON.format("t", "o"), "history": "complete"}],
        "select": sides("t", "o"), "into": {"table": "out"},
    },
    "foreign key": {
        "from": {"table": "f"}, "joins": [{"table": "u", "type": "left", "on": ON.format("f", "u")}], "into": {"table": "out"},
    },
    "foreign key to history": {
        "from": {"table": "f"}, "joins": [{"table": "t", "type": "inner", "on": ON.format("f", "t")}], "into": {"table": "out"},
    },
    "filter": {"from": {"table": "t"}, "where": "v <> 'p'", "into": {"table": "out"}},
    "latest by event time": {"from": {"table": "c"}, "where": "v <> 'p'", "into": {"table": "out"}},
    "groups of a table": {"from": {"table": "f"}, "group_by": ["a", "b"], "aggregate": {"n": "count(*)"}, "into": {"table": "out"}},
    "running groups": {"from": {"stream": "s"}, **COUNTED},
    "windows": {"from": {"stream": "s"}, **COUNTED, "window": {"type": "hopping", "size": "6s", "advance": "3s"}},
    "sessions": {"from": {"stream": "s"}, **COUNTED, "window": {"type": "session", "gap": "3s"}},
    "sliding windows": {"from": {"stream": "s"}, **COUNTED, "window": {"type": "sliding", "difference": "3s"}},
    "held back by event time": {"from": {"stream": "s"}, **COUNTED, "suppress": {"mode": "until_time_limit", "limit": "4s"}},
    "held back in a small buffer": {
        "from": {"stream": "s"}, **COUNTED,
        "suppress": {"mode": "until_time_limit", "limit": "40s", "buffer": {"max_rows": 2, "when_full": "emit_early"}},
    },
}  # fmt: skip

KEYS = st.sampled_from(colliding(3))
VALUES = st.sampled_from(["p", "q", None])


def planned(name: str) -> Plan:
    plan = build_plan(QueryDefinition.model_validate({"name": "q", "tasks": 1, **QUERIES[name]}), CATALOG)
    return replace(plan, inputs=tuple(replace(item, feed=FEED) for item in plan.inputs))


@st.composite
def record(draw: st.DrawFn, name: str) -> Record:
    a, b = draw(KEYS)
    ts = draw(st.integers(0, 20)) * 1000
    if name == "f":
        x, y = draw(KEYS)
        op = draw(st.sampled_from([0, 0, 0, 1]))
        return Record(name, {"x": x, "y": y, "a": None if op else a, "b": None if op else b}, ts, op)
    value = draw(VALUES)
    row = {"a": a, "b": b, "v": value, **({"at": ts} if name == "c" else {})}
    return Record(name, row, ts, int(value is None and name in "touc"))


def test_the_keys_share_a_hash_without_a_seed_only() -> None:
    frame = pl.DataFrame(colliding(4), schema={"a": pl.Int64, "b": pl.Int64}, orient="row")
    assert frame.rows()[1] == (2, -5986597001865693592)
    assert UNSEEDED.of(frame, ["a", "b"]).n_unique() == 1
    assert SEEDED.of(frame, ["a", "b"]).n_unique() == 4


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_keys_of_one_hash_give_what_keys_of_different_hashes_give(name: str, data: st.DataObject) -> None:
    plan = planned(name)
    names = sorted({item.relation.name for item in plan.inputs})
    records = data.draw(st.lists(st.sampled_from(names).flatmap(record), min_size=5, max_size=40))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(records) - 1), max_size=8) | st.just(set(range(1, len(records))))))
    expected = run(plan, records, cuts, restarts=True, hashing=SEEDED)
    assert run(plan, records, cuts, restarts=True, hashing=UNSEEDED) == expected
