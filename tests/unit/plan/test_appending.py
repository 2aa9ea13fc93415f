"""Several queries that write into one stream: what fits into it, and what its readers read."""

from __future__ import annotations

from typing import Any

import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan, state_fingerprint
from engine.plan.catalog import CatalogEntry, derived_entry, source_entry, with_parts
from engine.plan.model import Plan

COLUMNS = {"id": "string", "n": "int", "at": "bigint", "note": "string"}


def stream(**parts: Any) -> Any:
    return StreamDefinition.model_validate({"key": ["id"], "columns": COLUMNS, **parts})


SOURCES: dict[str, CatalogEntry] = {
    "orders": source_entry("orders", stream(columns={**COLUMNS, "n": "bigint"}, event_time="at")),
    "web": source_entry("web", stream()),
    "shop": source_entry("shop", stream()),
    "shared": source_entry("shared", stream(connector={"type": "log", "feed": "all", "where": "n > 0"})),
    "prices": source_entry(
        "prices", TableDefinition.model_validate({"key": ["id"], "columns": {"id": "string", "price": "double"}})
    ),
}


def plan(catalog: dict[str, CatalogEntry], **parts: Any) -> Plan:
    return build_plan(QueryDefinition.model_validate({"name": "q", "from": {"stream": "web"}, **parts}), catalog)


def appended(catalog: dict[str, CatalogEntry], name: str, source: str, to: str = "orders") -> dict[str, CatalogEntry]:
    made = plan(catalog, name=name, **{"from": {"stream": source}}, into={"stream": name, "append_to": to})
    return with_parts({**catalog, name: derived_entry(made)})


READER: dict[str, Any] = {
    "from": {"stream": "orders"},
    "joins": [{"table": "prices", "as": "p", "on": "upper(orders.id) = p.id"}],
    "select": {"id": "orders.id", "n": "orders.n"},
    "into": {"stream": "out"},
}


def test_a_reader_reads_the_stream_and_its_parts_as_one_input() -> None:
    catalog = appended(appended(SOURCES, "from_web", "web"), "from_shop", "shop")
    read = plan(catalog, **READER).inputs
    assert [(one.index, one.feed.name, one.read_as, one.stage) for one in read] == [
        (0, "log:orders", 0, 0), (1, "log:prices", 1, 1), (2, "log:from_web", 0, 0), (3, "log:from_shop", 0, 0),
    ]  # fmt: skip
    assert {one.relation.name for one in read if one.alias == "orders"} == {"orders"}
    assert [one.alias for one in plan(catalog, **READER).whole_inputs] == ["orders", "p"]


def test_another_writer_is_nothing_to_the_state_of_a_reader() -> None:
    before, after = plan(SOURCES, **READER), plan(appended(SOURCES, "from_web", "web"), **READER)
    assert before != after
    assert state_fingerprint(before) == state_fingerprint(after)


def test_results_may_be_appended_to_a_result() -> None:
    own = derived_entry(plan(SOURCES, name="kept", into={"stream": "kept"}))
    catalog = appended({**SOURCES, "kept": own}, "from_shop", "shop", "kept")
    reader = plan(catalog, name="r", **{"from": {"stream": "kept"}}, into={"stream": "out"})
    assert [one.feed.name for one in reader.inputs] == ["log:kept", "log:from_shop"]


@pytest.mark.parametrize(
    ("parts", "pointer", "code"),
    [
        ({"into": {"stream": "out", "append_to": "out"}}, "/into/append_to", "name_clash"),
        ({"into": {"stream": "out", "append_to": "order"}}, "/into/append_to", "unknown_relation"),
        ({"into": {"stream": "out", "append_to": "prices"}}, "/into/append_to", "wrong_kind"),
        ({"into": {"stream": "out", "append_to": "shared"}}, "/into/append_to", "unsupported_option"),
        ({"into": {"stream": "out", "append_to": "from_shop"}}, "/into/append_to", "unsupported_option"),
        ({"select": {"id": "id", "at": "at", "amount": "n"}}, "/select/amount", "unknown_column"),
        ({"select": {"id": "id", "at": "at", "n": "n * 1.5"}}, "/select/n", "type_mismatch"),
        ({"select": {"id": "id", "at": "at", "note": "n"}}, "/select/note", "type_mismatch"),
        ({"select": {"id": "id", "n": "n"}}, "/select", "unknown_column"),
        ({"from": {"stream": "orders"}}, "/into", "query_cycle"),
        ({"from": {"stream": "of_orders"}}, "/into", "query_cycle"),
    ],
)  # fmt: skip
def test_what_cannot_be_appended_is_refused(parts: dict[str, Any], pointer: str, code: str) -> None:
    catalog = appended(SOURCES, "from_shop", "shop")
    catalog["of_orders"] = derived_entry(plan(catalog, **{"from": {"stream": "orders"}}, into={"stream": "of_orders"}))
    with pytest.raises(DefinitionInvalid) as caught:
        plan(catalog, **{"into": {"stream": "out", "append_to": "orders"}, **parts})
    assert (pointer, code) in {(problem.pointer, problem.code) for problem in caught.value.problems}


def test_a_table_cannot_be_a_part_of_a_stream() -> None:
    with pytest.raises(ValueError, match="append_to"):
        QueryDefinition.model_validate({"name": "q", "from": {"stream": "web"}, "into": {"table": "out", "append_to": "orders"}})
