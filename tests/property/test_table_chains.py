"""Chains of joins of tables hold what the same SQL over the tables' last rows gives: an absent side is null, its key among it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.definition.relations import TableDefinition
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan
from engine.plan.catalog import Catalog, source_entry
from tests.examples import examples
from tests.property.plan_walk import walk
from tests.property.test_definitions_run import FEED, Record, run

KINDS = {"a": "int", "b": "bigint", "c": "int"}
CATALOG: Catalog = {
    name: source_entry(name, TableDefinition.model_validate({"key": ["id"], "columns": {"id": kind, "v": "string"}}))
    for name, kind in KINDS.items()
}
TYPES = st.sampled_from(["inner", "left", "right", "outer"])

Row = dict[str, dict[str, Any] | None]


class Chain(NamedTuple):
    """``a`` joined with ``b`` on both keys, then with ``c`` on the first of these columns that is not null."""

    first: str
    second: str
    met: tuple[str, ...]
    absent: str | None
    group: str | None

    @property
    def is_keyed(self) -> bool:
        """Whether what meets the key of ``c`` is the key of the first join's rows, which one side alone may not have."""
        needed = {"inner": [{"a"}, {"b"}], "left": [{"a"}], "right": [{"b"}], "outer": [{"a", "b"}]}[self.first]
        return any(sides <= {*self.met} for sides in needed)


CHAINS = st.builds(
    Chain,
    TYPES,
    TYPES,
    met=st.sampled_from([("a",), ("b",), ("a", "b"), ("b", "a")]),
    absent=st.sampled_from([None, "a", "b", "c"]),
    group=st.sampled_from([None, None, "a", "b", "c"]),
)
RECORDS = st.lists(
    st.builds(
        lambda name, key, value, ts: Record(name, {"id": key, "v": value}, ts, int(value is None)),
        st.sampled_from(sorted(KINDS)),
        st.integers(1, 4),
        st.sampled_from(["x", "y", None]),
        st.integers(0, 20),
    ),
    max_size=25,
)


def definition(chain: Chain, tasks: int) -> QueryDefinition:
    met = ", ".join(f"{alias}.id" for alias in chain.met)
    body: dict[str, Any] = {
        "name": "q",
        "from": {"table": "a"},
        "joins": [
            {"table": "b", "type": chain.first, "on": "a.id = b.id"},
            {"table": "c", "type": chain.second, "on": f"{met if len(chain.met) == 1 else f'coalesce({met})'} = c.id"},
        ],
        "into": {"table": "out"},
        "tasks": tasks,
    }
    if chain.absent is not None:
        body["where"] = f"{chain.absent}.id is null"
    if chain.group is not None:
        return QueryDefinition.model_validate(body | {"group_by": [f"{chain.group}.id"], "aggregate": {"n": "count(*)"}})
    keys = "a.id, b.id, c.id" if chain.is_keyed else "a.id, b.id"
    columns = {"id": f"coalesce({keys})", **{f"{alias}_{name}": f"{alias}.{name}" for alias in KINDS for name in ("id", "v")}}
    return QueryDefinition.model_validate(body | {"select": columns})


def joined(left: list[Row], name: str, right: dict[int, dict[str, Any]], type_: str, met: tuple[str, ...]) -> list[Row]:
    """Join as SQL does: null equals nothing."""

    def value(row: Row) -> int | None:
        keys = (row[alias] for alias in met)
        return next((key["id"] for key in keys if key is not None), None)

    rows: list[Row] = [{**row, name: right[key]} for row in left if (key := value(row)) in right and key is not None]
    if type_ in ("left", "outer"):
        rows += [{**row, name: None} for row in left if value(row) not in right]
    if type_ in ("right", "outer"):
        found = {value(row) for row in left}
        rows += [{**dict.fromkeys(KINDS), name: row} for key, row in right.items() if key not in found]
    return rows


def expected(chain: Chain, records: list[Record]) -> set[tuple[Any, ...]]:
    tables: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in KINDS}
    for record in records:
        tables[record.relation].pop(record.row["id"], None)
        if not record.op:
            tables[record.relation][record.row["id"]] = record.row
    rows: list[Row] = [{"a": row} for row in tables["a"].values()]
    rows = joined(rows, "b", tables["b"], chain.first, ("a",))
    rows = joined(rows, "c", tables["c"], chain.second, chain.met)
    rows = [row for row in rows if chain.absent is None or row[chain.absent] is None]
    if chain.group is not None:
        keys = [side["id"] for row in rows if (side := row[chain.group]) is not None]
        return {(key, keys.count(key)) for key in keys}
    sides = [[row[alias] for alias in KINDS] for row in rows]
    empty = {"id": None, "v": None}
    return {
        (next(side["id"] for side in each if side is not None), *(value for side in each for value in (side or empty).values()))
        for each in sides
    }


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chain=CHAINS, records=RECORDS, tasks=st.sampled_from([1, 3]), cuts=st.sets(st.integers(1, 24)))
def test_a_chain_holds_what_sql_gives(chain: Chain, records: list[Record], tasks: int, cuts: set[int]) -> None:
    if chain.second in ("right", "outer") and not chain.is_keyed:
        with pytest.raises(DefinitionInvalid, match="foreign-key"):
            build_plan(definition(chain, tasks), CATALOG)
        return
    plan = build_plan(definition(chain, tasks), CATALOG)
    event(" ".join(type(operator).__name__ for operator in walk(plan)))
    plan = replace(plan, inputs=tuple(replace(item, feed=FEED) for item in plan.inputs))
    shown: dict[str, tuple[Any, ...]] = {}
    for _, op, key, *values in run(plan, records, sorted(cut for cut in cuts if cut < len(records)), restarts=True):
        shown.pop(key, None)
        if op == "0":
            shown[key] = (key, *values)
    held = {row for row in shown.values() if chain.group is None or row[1] != "0"}
    assert held == {tuple(map(repr, row)) for row in expected(chain, records)}


VERSIONED: Catalog = {
    name: source_entry(
        name,
        TableDefinition.model_validate(
            {"key": ["id"], "columns": {"id": "int", "v": "string"}, "versioned": {"history_retention": "50ms"}}
        ),
    )
    for name in KINDS
}


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(first=TYPES, second=TYPES, records=RECORDS, cuts=st.sets(st.integers(1, 24)))
def test_a_versioned_chain_read_now_is_what_sql_gives(first: str, second: str, records: list[Record], cuts: set[int]) -> None:
    """TT3: whatever the event times of changes and deletes; a change older than its key's latest comes to nothing (TT2)."""
    chain = Chain(first, second, ("a", "b"), None, None)
    body = definition(chain, 1).model_dump(mode="json", by_alias=True)
    body["into"] = {"table": "out", "versioned": {"history_retention": "1d"}}
    plan = build_plan(QueryDefinition.model_validate(body), VERSIONED)
    plan = replace(plan, inputs=tuple(replace(item, feed=FEED) for item in plan.inputs))
    versions: dict[str, dict[int, tuple[Any, ...] | None]] = {}
    for ts, op, key, *values in run(plan, records, sorted(cut for cut in cuts if cut < len(records)), restarts=True):
        versions.setdefault(key, {})[int(ts)] = (key, *values) if op == "0" else None
    shown = {row for own in versions.values() if (row := own[max(own)]) is not None}
    latest = {(record.relation, record.row["id"]): -1 for record in records}
    counting = []
    for record in records:
        if record.ts >= latest[record.relation, record.row["id"]]:
            latest[record.relation, record.row["id"]] = record.ts
            counting.append(record)
    assert shown == {tuple(map(repr, row)) for row in expected(chain, counting)}
