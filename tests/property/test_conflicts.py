"""``"conflict": "latest_event_time"`` (V7): what is read of a table does not depend on the order in which its puts arrive."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Plan
from tests.examples import examples
from tests.property.test_definitions_run import FEED, Record, run
from tests.property.test_repartition import Tasks
from tests.stored.kinds import Record as Stored

COLUMNS = {"id": "int", "other": "int", "v": "string", "at": "bigint"}
SOURCE = {"key": ["id"], "columns": COLUMNS, "event_time": "at", "conflict": "latest_event_time"}
CATALOG = {
    **{name: source_entry(name, TableDefinition.model_validate(SOURCE)) for name in ("a", "b")},
    "s": source_entry("s", StreamDefinition.model_validate({"key": ["id"], "columns": {"id": "int"}})),
}
SIDES = {"id": "a.id", "v": "a.v", "w": "b.v"}
READERS: dict[str, dict[str, Any]] = {
    "copy": {},
    "filter": {"where": "v = 'x'"},
    "first filter": {"from": {"table": "a", "where": "v = 'x'"}},
    "aggregation": {"group_by": ["v"], "aggregate": {"n": "count(*)", "total": "sum(other)"}, "having": "n > 0"},
    "suppressed": {
        "group_by": ["v"], "aggregate": {"n": "count(*)"}, "having": "n > 0",
        "suppress": {"mode": "until_time_limit", "limit": "0s"},
    },
    "table-table": {"joins": [{"table": "b", "on": "a.id = b.id", "type": "left"}], "select": SIDES},
    "outer": {
        "joins": [{"table": "b", "on": "a.id = b.id", "type": "outer"}],
        "select": {"id": "coalesce(a.id, b.id)", "v": "a.v", "w": "b.v"},
    },
    "foreign key": {"joins": [{"table": "b", "on": "a.other = b.id", "type": "left"}], "select": SIDES},
    "stream-table": {
        "from": {"stream": "s"}, "joins": [{"table": "a", "on": "s.id = a.id", "type": "left"}], "select": {"id": "s.id", "v": "a.v"},
        "into": {"stream": "out"},
    },
}  # fmt: skip


def plan_of(reader: str, tasks: int) -> Plan:
    body = {"name": "q", "from": {"table": "a"}, "into": {"table": "out"}, "tasks": tasks, **READERS[reader]}
    plan = build_plan(QueryDefinition.model_validate(body), CATALOG)
    return replace(plan, inputs=tuple(replace(item, feed=FEED) for item in plan.inputs))


@st.composite
def changes(draw: st.DrawFn) -> list[Record]:
    """Puts and deletes of both tables, in the order of event time, all times of a key different."""
    records = []
    for ts in range(draw(st.integers(1, 14))):
        name, key = draw(st.sampled_from("ab")), draw(st.integers(1, 3))
        is_delete = draw(st.integers(0, 3)) == 0
        row = {"id": key, "other": draw(st.integers(1, 3)), "v": draw(st.sampled_from("xy")), "at": ts}
        records.append(Record(name, dict.fromkeys(COLUMNS) | {"id": key} if is_delete else row, ts, int(is_delete)))
    return records


def content(plan: Plan, records: list[Record], cuts: list[int]) -> set[tuple[Any, ...]]:
    """What is there in the end, without the times of results: those of groups depend on what passed through them."""
    own = [record for record in records if record.relation in {item.relation.name for item in plan.inputs}]
    if plan.output.kind == "stream":
        own += [Record("s", {"id": key}, 100, 0) for key in (1, 2, 3)]
    made = run(plan, own, [cut for cut in cuts if cut < len(own)], restarts=True)
    if plan.output.kind == "stream":
        return {row[2:] for row in made}
    places = [2 + list(plan.output.columns).index(name) for name in plan.output.key]
    last = {tuple(row[place] for place in places): row for row in made}
    return {row[2:] for row in last.values() if row[1] == "0"}


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(sorted(READERS)), st.integers(1, 3), changes())
def test_every_permutation_of_the_same_puts_cut_anyhow_gives_the_same(
    data: st.DataObject, reader: str, tasks: int, in_order: list[Record]
) -> None:
    arrived = data.draw(st.permutations(in_order))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(in_order)), max_size=5)))
    plan = plan_of(reader, tasks)
    assert content(plan, arrived, cuts) == content(plan, in_order, [])


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), changes(), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_every_row_is_the_one_with_the_latest_event_time_also_where_the_number_of_tasks_changes(
    data: st.DataObject, in_order: list[Record], counts: list[int]
) -> None:
    of_a = [record for record in in_order if record.relation == "a"]
    arrived = data.draw(st.permutations(of_a))
    tasks, made = Tasks(plan_of("copy", 1), 1), []
    for start, stop in pairwise([0, *range(1, len(arrived)), len(arrived)]):
        for count in counts:
            tasks.change(count)
        batch = [Stored(record.relation, record.row, record.ts, record.op) for record in arrived[start:stop]]
        made += tasks.process(batch, start, 0)[0]
    last = {row[2]: row for row in made}
    expected = {record.row["id"]: record for record in of_a}
    rows = {int(key): json.loads(row[0]) for key, row in last.items() if row[1] == "0"}
    assert rows == {key: record.ts for key, record in expected.items() if record.op == 0}
