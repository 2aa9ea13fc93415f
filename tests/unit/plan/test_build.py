"""From definitions to plans: what is laid out, and what is refused with which pointer."""

from __future__ import annotations

from typing import Any

import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan, normalise, state_fingerprint
from engine.plan.catalog import Catalog, derived_entry, source_entry
from engine.plan.operators.row_operators import Filter, Projection
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.plan.operators.windows import WindowAggregation

CATALOG: Catalog = {
    "flights": source_entry(
        "flights",
        StreamDefinition.model_validate(
            {
                "key": ["origin"],
                "columns": {"origin": "string", "dest": "string", "delay": "int", "at": "timestamp", "tags": "map<string,int>"},
                "event_time": "at",
            }
        ),
    ),
    "keyless": source_entry("keyless", StreamDefinition.model_validate({"columns": {"v": "int"}})),
    "weather": source_entry(
        "weather",
        TableDefinition.model_validate(
            {
                "key": ["origin"],
                "columns": {"origin": "string", "temp": "double", "delay": "int"},
                "versioned": {"history_retention": "1h"},
            }
        ),
    ),
    "plain": source_entry(
        "plain", TableDefinition.model_validate({"key": ["origin"], "columns": {"origin": "string", "x": "int"}})
    ),
    "numbered": source_entry("numbered", TableDefinition.model_validate({"key": ["n"], "columns": {"n": "int", "y": "int"}})),
}
JOIN = {"table": "weather", "as": "w", "type": "left", "on": "flights.origin = w.origin", "grace": "10m"}
SELECT = {"origin": "flights.origin", "temp": "w.temp"}
WINDOW = {"type": "tumbling", "size": "1h"}
COUNT = {"n": "count(*)"}


def query(**parts: Any) -> QueryDefinition:
    return QueryDefinition.model_validate({"name": "q", "from": {"stream": "flights"}, "into": {"stream": "result"}, **parts})


def refused(**parts: Any) -> set[tuple[str, str]]:
    with pytest.raises(DefinitionInvalid) as caught:
        build_plan(query(**parts), CATALOG)
    return {(problem.pointer, problem.code) for problem in caught.value.problems}


def test_a_join_puts_tables_before_the_stream_and_hashes_both_by_the_join_key() -> None:
    plan = build_plan(query(joins=[JOIN], select=SELECT), CATALOG)
    table, stream = plan.inputs
    assert (table.alias, table.hash_key, table.columns) == ("w", ("origin",), ("origin", "temp"))
    assert (stream.alias, stream.hash_key, stream.columns) == ("flights", ("origin",), ("origin",))
    join = plan.stages[0].operators[0]
    assert isinstance(join, StreamTableJoin)
    assert (join.grace_ms, join.history_retention_ms, join.stream_key) == (600_000, 3_600_000, ("flights.origin",))
    assert plan.output.key == ("origin",)


def test_a_window_by_the_join_key_stays_in_the_stage_and_another_group_gets_its_own() -> None:
    by_key = build_plan(query(joins=[JOIN], group_by=["flights.origin"], window=WINDOW, aggregate=COUNT), CATALOG)
    assert [type(operator) for operator in by_key.stages[0].operators] == [StreamTableJoin, WindowAggregation, Projection]
    by_dest = build_plan(query(joins=[JOIN], where="w.temp > 3", group_by=["dest"], window=WINDOW, aggregate=COUNT), CATALOG)
    first, second = by_dest.stages
    assert [type(operator) for operator in first.operators] == [StreamTableJoin, Filter]
    assert first.exchange_key == ("flights.dest",)
    assert [type(operator) for operator in second.operators] == [WindowAggregation, Projection]
    assert "w.$match" in second.schema


def test_without_a_join_inputs_are_hashed_by_the_group() -> None:
    plan = build_plan(query(group_by=["dest"], window=WINDOW, aggregate=COUNT, into={"table": "result"}), CATALOG)
    assert plan.inputs[0].hash_key == ("dest",)
    assert plan.output.key == ("dest", "window_start", "window_end")
    assert plan.output.is_windowed
    assert plan.output.retention_ms == 7 * 86_400_000


def test_a_tumbling_window_is_a_hopping_one_that_advances_by_its_size() -> None:
    window = build_plan(query(window=WINDOW, aggregate=COUNT), CATALOG).stages[0].operators[0]
    assert isinstance(window, WindowAggregation)
    assert (window.size_ms, window.advance_ms, window.group) == (3_600_000, 3_600_000, ())


def test_the_default_select_of_a_join_leaves_out_the_tables_key() -> None:
    plan = build_plan(query(joins=[{"table": "plain", "on": "flights.origin = plain.origin"}]), CATALOG)
    assert plan.output.columns.names == ("origin", "dest", "delay", "at", "tags", "x")


def test_the_default_retention_is_spelled_out_and_grows_with_the_window() -> None:
    long = query(window={"type": "tumbling", "size": "30d", "grace": "1d"}, aggregate=COUNT, into={"table": "out"})
    assert normalise(long).model_dump(mode="json", by_alias=True)["window"]["retention"] == "31d"


def test_graces_late_policies_and_retentions_may_change_in_place_and_windows_may_not() -> None:
    def fingerprint(**parts: Any) -> str:
        return state_fingerprint(build_plan(query(**parts), CATALOG))

    first = fingerprint(joins=[JOIN], select=SELECT)
    assert fingerprint(joins=[{**JOIN, "grace": "20m", "late": "drop"}], select=SELECT, late_records={"max_rows": 1}) == first
    assert fingerprint(joins=[{**JOIN, "type": "inner"}], select=SELECT) != first
    counted: dict[str, Any] = {"group_by": ["dest"], "aggregate": COUNT, "into": {"table": "out"}}
    by_hour = fingerprint(**counted, window=WINDOW)
    assert fingerprint(**counted, window={**WINDOW, "retention": "9d"}) == by_hour
    assert fingerprint(**counted, window={"type": "tumbling", "size": "2h"}) != by_hour


def test_plans_of_equal_definitions_are_equal() -> None:
    assert build_plan(query(joins=[JOIN], select=SELECT), CATALOG) == build_plan(query(joins=[JOIN], select=SELECT), CATALOG)


def test_a_query_that_would_read_its_own_result_through_another_is_refused() -> None:
    upstream = derived_entry(build_plan(query(into={"stream": "upstream"}), CATALOG))
    catalog = {**CATALOG, "upstream": upstream}
    reader = query(**{"name": "p", "from": {"stream": "upstream"}, "into": {"stream": "flights"}})
    with pytest.raises(DefinitionInvalid, match="own result"):
        build_plan(reader, catalog)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"from": {"stream": "nowhere"}}, ("/from/stream", "unknown_relation")),
        ({"from": {"stream": "weather"}}, ("/from/stream", "wrong_kind")),
        ({"from": {"table": "flights"}}, ("/from/table", "wrong_kind")),
        ({"from": {"stream": "flights", "where": "nope = 1"}}, ("/from/where", "unknown_column")),
        ({"where": "delay + 1"}, ("/where", "type_mismatch")),
        ({"where": "pg_sleep(1) = 1"}, ("/where", "unknown_function")),
        ({"where": "1; drop table x"}, ("/where", "expression_malformed")),
        ({"where": "delay = (select 1)"}, ("/where", "not_a_scalar")),
        ({"select": {"x": "origin || "}}, ("/select/x", "expression_malformed")),
        ({"select": {}}, ("/select", "invalid_value")),
        ({"joins": [{**JOIN, "grace": "2h"}], "select": SELECT}, ("/joins/0/grace", "grace_exceeds_history_retention")),
        ({"joins": [{"table": "plain", "grace": "1m"}]}, ("/joins/0/grace", "grace_needs_versioned_table")),
        ({"joins": [{"table": "plain", "grace": "0s", "unversioned_ok": True}]},
         ("/joins/0/grace", "grace_needs_versioned_table")),
        ({"joins": [{"table": "plain", "late": "drop"}]}, ("/joins/0/late", "late_without_grace")),
        ({"joins": [{**JOIN, "on": "flights.dest = w.temp"}]}, ("/joins/0/on", "join_key_mismatch")),
        ({"joins": [{**JOIN, "on": "flights.delay = w.origin"}]}, ("/joins/0/on", "type_mismatch")),
        ({"joins": [{**JOIN, "on": "flights.nope = w.origin"}]}, ("/joins/0/on", "unknown_column")),
        ({"joins": [{**JOIN, "on": "flights.origin = lower(w.origin)"}]}, ("/joins/0/on", "join_key_mismatch")),
        ({"joins": [{**JOIN, "on": "flights.origin > w.origin"}]}, ("/joins/0/on", "join_key_mismatch")),
        ({"joins": [{**JOIN, "on": "upper(flights.delay) = w.origin"}]}, ("/joins/0/on", "type_mismatch")),
        ({"joins": [{"table": "numbered"}]}, ("/joins/0/on", "unknown_column")),
        ({"joins": [JOIN, JOIN]}, ("/joins/1/table", "name_clash")),
        ({"joins": [JOIN]}, ("/select", "name_clash")),
        ({"joins": [{**JOIN, "type": "outer"}]}, ("/joins/0/type", "unsupported_pair")),
        ({"joins": [{**JOIN, "grace": None, "hold": {"at_most": "1m"}}]}, ("/joins/0/hold", "hold_without_grace")),
        ({"joins": [{**JOIN, "hold": {"at_most": "0s"}}]}, ("/joins/0/hold/at_most", "invalid_value")),
        ({"joins": [{"stream": "keyless"}]}, ("/joins/0/on", "field_missing")),
        ({"suppress": {"mode": "until_window_closes"}}, ("/suppress/mode", "final_without_window")),
        ({"group_by": ["dest"]}, ("/aggregate", "group_without_aggregate")),
        ({"aggregate": COUNT}, ("/group_by", "group_missing")),
        ({"window": WINDOW}, ("/aggregate", "window_without_aggregate")),
        ({"window": {"type": "tumbling"}, "aggregate": COUNT}, ("/window/size", "field_missing")),
        ({"window": {"type": "tumbling", "size": "0s"}, "aggregate": COUNT}, ("/window/size", "invalid_value")),
        ({"window": {**WINDOW, "advance": "1m"}, "aggregate": COUNT}, ("/window/advance", "unknown_field")),
        ({"window": {"type": "hopping", "size": "1m", "advance": "2m"}, "aggregate": COUNT},
         ("/window/advance", "advance_exceeds_size")),
        ({"window": {**WINDOW, "grace": "1h", "retention": "90m"}, "aggregate": COUNT},
         ("/window/retention", "retention_below_size_plus_grace")),
        ({"window": {"type": "session", "size": "1m"}, "aggregate": COUNT}, ("/window/gap", "field_missing")),
        ({"window": {"type": "sliding", "difference": "8d", "retention": "7d"}, "aggregate": COUNT},
         ("/window/retention", "retention_below_size_plus_grace")),
        ({"window": WINDOW, "aggregate": {"x": "sum(origin)"}}, ("/aggregate/x", "type_mismatch")),
        ({"window": WINDOW, "group_by": ["dest"], "aggregate": {"dest": "count(*)"}}, ("/aggregate/dest", "name_clash")),
        ({"window": WINDOW, "group_by": ["tags"], "aggregate": COUNT}, ("/group_by/0", "type_mismatch")),
        ({"window": WINDOW, "group_by": ["lower(dest)", "lower(origin)"], "aggregate": {"group_2": "count(*)"}},
         ("/aggregate/group_2", "name_clash")),
        ({"window": WINDOW, "aggregate": COUNT, "having": "n"}, ("/having", "type_mismatch")),
        ({"having": "delay > 1"}, ("/having", "having_without_aggregate")),
        ({"window": WINDOW, "aggregate": COUNT, "having": "sum(delay) > 1"}, ("/having", "aggregate_unnamed")),
        ({"window": WINDOW, "aggregate": COUNT, "having": "sum(nothing) > 1"}, ("/having", "unknown_column")),
        ({"into": {"table": "result"}, "select": {"dest": "dest"}}, ("/select", "key_missing_in_select")),
        ({"from": {"stream": "keyless"}, "into": {"table": "result"}}, ("/into/table", "key_missing_in_select")),
        ({"into": {"stream": "flights"}}, ("/into", "query_cycle")),
        ({"idle": {"after": "0s"}}, ("/idle/after", "invalid_value")),
        ({"into": {"stream": "result", "versioned": {"history_retention": "1h"}}}, ("/into/versioned", "unsupported_option")),
        ({"into": {"table": "result", "materialize_open": True}}, ("/into/materialize_open", "unsupported_option")),
        ({"into": {"stream": "result", "connector": {"type": "kafka", "connection": "c", "topic": "a b"}}},
         ("/into/connector/topic", "invalid_value")),
    ],
)  # fmt: skip
def test_a_wrong_definition_is_refused_with_a_pointer(parts: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected in refused(**parts)


def test_every_problem_is_reported_at_once() -> None:
    found = refused(where="nope = 1", joins=[{**JOIN, "grace": "2h"}], idle={"after": "0s"}, select=SELECT)
    assert {
        ("/where", "unknown_column"),
        ("/joins/0/grace", "grace_exceeds_history_retention"),
        ("/idle/after", "invalid_value"),
    } <= found
