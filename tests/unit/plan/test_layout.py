"""How plans spread records over tasks, what they read, and the rules that keep results in order."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan, normalise, state_fingerprint
from engine.plan.catalog import Catalog, CatalogEntry, source_entry
from engine.plan.model import Plan
from engine.plan.operators.row_operators import Filter, Projection
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.plan.operators.windows import WindowAggregation

STREAM: dict[str, Any] = {
    "key": ["id"],
    "columns": {"id": "string", "origin": "string", "dest": "string", "carrier": "string", "delay": "int", "at": "timestamp"},
    "event_time": "at",
}


def table(key: list[str], **columns: str) -> dict[str, Any]:
    return {"key": key, "columns": columns}


def catalog(**changes: Any) -> Catalog:
    tables: dict[str, dict[str, Any]] = {
        "weather": {**table(["origin"], origin="string", temp="double"), "versioned": {"history_retention": "2h"}},
        "route": table(["a", "b"], a="string", b="string", x="int"),
        "back": table(["b", "a"], a="string", b="string", y="int"),
        "airline": table(["carrier"], carrier="string", name="string"),
    }
    entries: dict[str, CatalogEntry] = {
        name: source_entry(name, TableDefinition.model_validate(definition)) for name, definition in tables.items()
    }
    return {**entries, "dep": source_entry("dep", StreamDefinition.model_validate({**STREAM, **changes}))}


def build(source: Catalog | None = None, **parts: Any) -> Plan:
    definition = {"name": "q", "from": {"stream": "dep"}, "into": {"stream": "out"}, **parts}
    return build_plan(QueryDefinition.model_validate(definition), source or catalog())


def refused(**parts: Any) -> set[tuple[str, str]]:
    with pytest.raises(DefinitionInvalid) as caught:
        build(**parts)
    return {(problem.pointer, problem.code) for problem in caught.value.problems}


WEATHER = {"table": "weather", "as": "w", "on": "dep.origin = w.origin"}
ROUTE = {"table": "route", "on": "dep.origin = route.a AND dep.dest = route.b"}
BACK = {"table": "back", "on": "dep.dest = back.b AND dep.origin = back.a"}
HOUR = {"type": "tumbling", "size": "1h"}
COUNT = {"n": "count(*)"}


def hashes(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {source.alias: source.hash_key for source in plan.inputs}


def test_joins_that_share_a_column_are_hashed_by_it_in_one_stage() -> None:
    plan = build(joins=[WEATHER, ROUTE], select={"id": "id", "x": "x", "temp": "temp"})
    assert hashes(plan) == {"w": ("origin",), "route": ("a",), "dep": ("origin",)}
    assert len(plan.stages) == 1
    first, second = plan.stages[0].operators[:2]
    assert isinstance(first, StreamTableJoin)
    assert isinstance(second, StreamTableJoin)
    assert (second.stream_key, second.table_key) == (("dep.origin", "dep.dest"), ("route.a", "route.b"))
    assert {"origin", "dest"} <= set(plan.inputs[-1].columns)


def test_a_key_declared_in_another_order_is_hashed_in_the_order_of_the_first_join() -> None:
    plan = build(joins=[ROUTE, BACK], select={"id": "id", "x": "x", "y": "y"})
    assert hashes(plan) == {"route": ("a", "b"), "back": ("a", "b"), "dep": ("origin", "dest")}
    second = plan.stages[0].operators[1]
    assert isinstance(second, StreamTableJoin)
    assert (second.table_key, second.stream_key) == (("back.b", "back.a"), ("dep.dest", "dep.origin"))


def test_joins_that_share_nothing_get_a_stage_each_and_each_table_is_read_where_it_is_joined() -> None:
    plan = build(joins=[WEATHER, {"table": "airline"}], select={"id": "id", "temp": "temp", "name": "name"})
    first, second = plan.stages
    assert (first.running, second.running) == (1, None)
    assert first.exchange_key == ("dep.carrier",)
    assert [(one.alias, one.stage, one.hash_key) for one in plan.inputs] == [
        ("w", 0, ("origin",)), ("dep", 0, ("origin",)), ("airline", 1, ("carrier",)),
    ]  # fmt: skip
    assert {"dep.id", "dep.carrier", "w.temp", "w.$match"} <= set(first.emitted)
    assert {"airline.name", *first.emitted} <= set(second.schema)


def test_a_filter_at_the_source_may_name_its_columns_with_the_alias() -> None:
    parts: dict[str, Any] = {"from": {"stream": "dep", "as": "d", "where": "d.carrier <> 'XX' AND delay > 1"}}
    plan = build(**parts, select={"id": "d.id"})
    assert plan.inputs[0].where == '"carrier" <> \'XX\' AND "delay" > 1'
    assert plan.inputs[0].columns == ("id",)


def test_every_text_in_a_plan_names_its_columns_in_full() -> None:
    plan = build(joins=[WEATHER], where="temp > delay", select={"id": "id", "t": "temp * 2"})
    condition, projection = plan.stages[0].operators[1:]
    assert condition == Filter('"w"."temp" > "dep"."delay"')
    assert projection == Projection((("id", '"dep"."id"'), ("t", '"w"."temp" * 2')))


def test_select_and_having_find_a_group_column_with_and_without_its_alias() -> None:
    plan = build(
        group_by=["dep.origin"], window=HOUR, aggregate=COUNT, having="dep.origin <> 'X' AND n > 1",
        select={"airport": "dep.origin", "window_start": "window_start", "window_end": "window_end", "twice": "n * 2"},
        into={"table": "out"},
    )  # fmt: skip
    window, projection = plan.stages[0].operators
    assert isinstance(window, WindowAggregation)
    assert window.having == '"origin" <> \'X\' AND "n" > 1'
    assert isinstance(projection, Projection)
    assert dict(projection.columns)["airport"] == '"origin"'
    assert plan.output.key == ("airport", "window_start", "window_end")


def test_a_group_column_may_be_bracketed_and_quoted() -> None:
    assert build(group_by=['("origin")'], window=HOUR, aggregate=COUNT).inputs[0].hash_key == ("origin",)


def test_a_contradictory_on_is_refused_and_no_part_of_it_is_forgotten() -> None:
    both = "dep.origin = w.origin AND dep.dest = w.origin"
    assert ("/joins/0/on", "join_key_mismatch") in refused(joins=[{**WEATHER, "on": both}], select={"id": "id"})


def test_brackets_and_sides_of_on_do_not_matter() -> None:
    plain = build(joins=[ROUTE], select={"x": "x"})
    assert build(joins=[{**ROUTE, "on": "(route.b = dep.dest) AND ((route.a = origin))"}], select={"x": "x"}) == plain


def test_a_table_whose_rows_several_tasks_would_write_gets_a_stage_by_its_key() -> None:
    parts: dict[str, Any] = {"joins": [WEATHER], "select": {"id": "id", "temp": "temp"}, "into": {"table": "out"}}
    plan = build(**parts)
    assert plan.stages[0].exchange_key == ("dep.id",)
    assert [type(operator) for operator in plan.stages[1].operators] == [Projection]
    keyed = build(catalog(key=["origin", "id"]), **{**parts, "select": {"id": "id", "origin": "dep.origin", "temp": "temp"}})
    assert keyed.output.key == ("origin", "id")


def test_problems_beside_an_unknown_relation_are_reported_too() -> None:
    window = {"type": "hopping", "size": "1h", "advance": "2h"}
    found = refused(**{"from": {"stream": "nope"}, "joins": [{"table": "nix"}], "window": window, "aggregate": COUNT})
    assert found == {
        ("/from/stream", "unknown_relation"), ("/joins/0/table", "unknown_relation"), ("/window/advance", "advance_exceeds_size"),
    }  # fmt: skip


def test_aliases_are_spelled_out_and_normalising_twice_changes_nothing() -> None:
    definition = QueryDefinition.model_validate(
        {"name": "q", "from": {"stream": "dep"}, "joins": [{"table": "weather"}], "into": {"stream": "out"}}
    )
    once = normalise(definition)
    dumped = once.model_dump(mode="json", by_alias=True)
    assert (dumped["from"]["as"], dumped["joins"][0]["as"]) == ("dep", "weather")
    assert normalise(once) == once
    assert QueryDefinition.model_validate(dumped) == once


def test_what_a_source_says_of_reading_alone_leaves_state_valid() -> None:
    parts: dict[str, Any] = {"group_by": ["origin"], "window": HOUR, "aggregate": COUNT}
    before = state_fingerprint(build(**parts))
    wider = {**STREAM["columns"], "more": "int"}
    assert state_fingerprint(build(catalog(on_bad_record="stop", max_future_skew="2d", columns=wider), **parts)) == before
    assert state_fingerprint(build(**{**parts, "window": {**HOUR, "grace": "5m"}})) == before
    assert state_fingerprint(build(**{**parts, "tasks": 2})) == before
    assert state_fingerprint(build(**{**parts, "group_by": ["dest"]})) != before


def test_whether_a_join_waits_at_all_is_part_of_its_state() -> None:
    def fingerprint(**join: Any) -> str:
        return state_fingerprint(build(joins=[{**WEATHER, **join}], select={"id": "id"}))

    assert fingerprint(type="left", grace="1m") == fingerprint(type="left", grace="2m", late="drop", expired="drop")
    assert fingerprint() != fingerprint(grace="0s")


def test_a_plan_pickles_and_starts_at_the_instant_asked_for() -> None:
    plan = build(start={"at": "2013-01-01T01:00:00+01:00"}, select={"id": "id"})
    assert plan.inputs[0].start == 1_356_998_400_000
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301 - our own bytes
