"""Every fault of a definition is found at once: of its shape and by its rules, beside misspelt fields too, each at the user's own pointer."""

from __future__ import annotations

from typing import Any

import pytest

from app.catalog.relations.rules import read_source
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan, read_query
from engine.plan.catalog import Catalog, source_entry

STREAM = {"key": ["item"], "columns": {"item": "string", "quantity": "int", "at": "timestamp"}, "event_time": "at"}
TABLE = {
    "key": ["item"], "columns": {"item": "string", "price": "double", "at": "timestamp"}, "event_time": "at",
    "versioned": {"history_retention": "2d"},
}  # fmt: skip
CATALOG: Catalog = {
    "orders": source_entry("orders", StreamDefinition.model_validate(STREAM)),
    "prices": source_entry("prices", TableDefinition.model_validate(TABLE)),
}
COUNT: dict[str, Any] = {
    "name": "counted", "from": {"stream": "orders"}, "group_by": ["item"], "window": {"type": "tumbling", "size": "1h"},
    "aggregate": {"n": "count(*)"}, "into": {"table": "counted"},
}  # fmt: skip
JOIN: dict[str, Any] = {
    "name": "joined", "from": {"stream": "orders"}, "joins": [{"table": "prices", "as": "p", "on": "orders.item = p.item"}],
    "select": {"item": "orders.item", "price": "p.price"}, "into": {"stream": "joined"},
}  # fmt: skip


def faults(body: Any) -> dict[str, tuple[str, str]]:
    """Return pointer → (code, detail) of its first fault."""
    with pytest.raises(DefinitionInvalid) as caught:
        read_query(body, lambda: CATALOG)
    return {problem.pointer: (problem.code, problem.detail) for problem in reversed(caught.value.problems)}


def codes(body: Any) -> dict[str, str]:
    return {pointer: code for pointer, (code, _) in faults(body).items()}


def without(body: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


def test_a_misspelt_field_is_suggested_and_read_as_what_was_meant() -> None:
    body = {**without(COUNT, "window"), "windw": {"type": "tumbling", "size": "1h", "advance": "1h"}, "having": "m > 1"}
    found = faults(body)
    assert found["/windw"] == ("unknown_field", "There is no field `windw` here; did you mean window?")
    assert found["/windw/advance"][0] == "unknown_field", "the rules of the window are applied below the name that was written"
    assert found.keys() == {"/windw", "/windw/advance"}, "having is not looked at before the window is right"


def test_faults_of_shape_and_of_rules_come_together() -> None:
    body = {
        **JOIN,
        "jions": [],
        "where": "quantty > 0",
        "joins": [{"table": "prices", "as": "p", "on": "orders.item = p.item", "grace": "9d", "late": "dropp"}],
        "select": {"item": "orders.itm", "n": "lenght(item)", "bad": 7},
        "tasks": 0,
    }
    assert codes(body) == {
        "/jions": "unknown_field",
        "/joins/0/late": "unknown_value",
        "/select/bad": "invalid_value",
        "/tasks": "invalid_value",
        "/where": "unknown_column",
        "/select/item": "unknown_column",
        "/select/n": "unknown_function",
    }, "a grace is not judged in a join whose other options cannot be read"
    assert "did you mean joins?" in faults(body)["/jions"][1]
    assert "did you mean drop?" in faults(body)["/joins/0/late"][1]
    body["joins"][0]["late"], body["select"]["bad"], body["tasks"] = "drop", "1", 4
    assert codes(body) == {
        "/jions": "unknown_field",
        "/joins/0/grace": "grace_exceeds_history_retention",
        "/where": "unknown_column",
        "/select/item": "unknown_column",
        "/select/n": "unknown_function",
    }


def test_what_only_follows_from_a_part_that_cannot_be_read_is_not_reported() -> None:
    assert codes({**JOIN, "joins": [7]}) == {"/joins/0": "invalid_value"}
    assert codes({**COUNT, "window": {"type": "tumbled", "size": "1h"}, "suppress": {"mode": "until_window_closes"}}) == {
        "/window/type": "unknown_value"
    }
    assert codes({**COUNT, "aggregate": {"n": 1}, "having": "n > 1"}) == {"/aggregate/n": "invalid_value"}


def test_a_wrong_member_of_a_list_leaves_the_pointers_of_the_others() -> None:
    joins = [7, {**JOIN["joins"][0], "grce": "1h"}, {"table": "prices", "as": "q", "on": "orders.item = q.item", "late": "drop"}]
    assert codes({**JOIN, "joins": joins}) == {
        "/joins/0": "invalid_value",
        "/joins/1/grce": "unknown_field",
        "/joins/2/late": "late_without_grace",
    }


def test_what_every_query_has_may_be_missing_beside_other_faults() -> None:
    body = {**without(COUNT, "name", "into"), "aggregate": {"n": "sum(itm)"}}
    assert codes(body) == {"/name": "field_missing", "/into": "field_missing", "/aggregate/n": "unknown_column"}


@pytest.mark.parametrize("body", [None, 7, [], "x", {}, {"from": 7}, {"joins": {"a": 1}}, {"name": {}, "from": [], "into": [[]]}])
def test_bodies_of_any_shape_are_refused_and_never_fail(body: Any) -> None:
    assert codes(body)


def test_relations_columns_functions_and_values_are_suggested() -> None:
    assert "did you mean orders?" in faults({**COUNT, "from": {"stream": "ordes"}, "x": 1})["/from/stream"][1]
    found = faults({**COUNT, "aggregate": {"n": "summ(quantity)", "m": "sum(quantty)"}, "x": 1})
    assert "did you mean sum?" in found["/aggregate/n"][1]
    assert "did you mean quantity?" in found["/aggregate/m"][1]
    assert "did you mean hopping?" in faults({**COUNT, "window": {"type": "hoping", "size": "1h"}})["/window/type"][1]


def test_a_source_reports_everything_at_once() -> None:
    body = {
        "key": ["itm"], "columns": {"item": "strng", "at": "timestamp", "n": "int"}, "event_tme": "at", "on_bad_record": "rejct",
        "connector": {"type": "log", "partitons": 2, "where": "n > "},
    }  # fmt: skip
    with pytest.raises(DefinitionInvalid) as caught:
        read_source(StreamDefinition, body)
    found = {problem.pointer: problem.detail for problem in caught.value.problems}
    assert found.keys() == {"/columns/item", "/event_tme", "/on_bad_record", "/connector/partitons"}
    assert "did you mean event_time?" in found["/event_tme"]
    assert "did you mean partitions?" in found["/connector/partitons"]
    assert "string" in found["/columns/item"]
    body["columns"]["item"] = "string"  # type: ignore[index]
    with pytest.raises(DefinitionInvalid) as caught:
        read_source(TableDefinition, {**body, "conflict": "latest_event_time"})
    assert {problem.pointer for problem in caught.value.problems} == {
        "/key/0", "/event_tme", "/on_bad_record", "/connector/partitons", "/connector/where",
    }  # fmt: skip


def test_a_body_that_is_too_deep_to_be_set_right_is_refused_all_the_same() -> None:
    deep: Any = 1
    for _ in range(600):
        deep = [deep]
    assert codes({**COUNT, "tasks": 0, "x": deep})["/tasks"] == "invalid_value"


def test_every_name_of_an_expression_that_there_is_not_is_reported() -> None:
    body = {**JOIN, "select": {"item": "orders.item", "price": "shout(p.prise) + uper(orders.itm) + orders.itm"}}
    with pytest.raises(DefinitionInvalid) as caught:
        build_plan(QueryDefinition.model_validate(body), CATALOG)
    found = [(each.pointer, each.code, each.detail.rpartition("; ")[2]) for each in caught.value.problems]
    assert found == [
        ("/select/price", "unknown_function", "GET /v1/functions lists all"),
        ("/select/price", "unknown_function", "did you mean upper?"),
        ("/select/price", "unknown_column", "did you mean p.price?"),
        ("/select/price", "unknown_column", "did you mean orders.item?"),
    ]


def test_every_name_in_an_aggregate_that_there_is_not_is_reported() -> None:
    body = {**COUNT, "aggregate": {"n": "sum(quantty + shout(itm))", "m": "conut(quantity)"}}
    with pytest.raises(DefinitionInvalid) as caught:
        build_plan(QueryDefinition.model_validate(body), CATALOG)
    assert [(each.pointer, each.code) for each in caught.value.problems] == [
        ("/aggregate/n", "unknown_function"), ("/aggregate/n", "unknown_column"), ("/aggregate/n", "unknown_column"),
        ("/aggregate/m", "unknown_function"),
    ]  # fmt: skip
