"""What columns are called changes nothing: the same definition over renamed relations gives the same changes, name for name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.errors import DefinitionInvalid
from engine.expressions.syntax import quoted
from engine.expressions.types.types import Schema
from engine.plan.build import build_plan
from engine.plan.catalog import Catalog
from engine.plan.model import Plan
from tests.examples import examples
from tests.property.test_definitions import CATALOG, definitions
from tests.property.test_definitions_run import FEED, record_of, run

NAMES = (
    "ctid", "xmin", "s", "a", "t", "id", "key", "value", "element", "entry", "low", "high", "first", "last", "matches", "count",
    "hash", "time", "start", "end", "left", "right", "group", "group_2", "window", "input", "reason", "offset", "record", "state",
    "event_time_ms", "literal", "len", "%s", "{}", "it's", "a b", " ", "back\\slash", "a$b", "é", "Id", "ID", "select", "case",
    "null", "a,b", "a/b", "(a", "a*", "a^$", "n" * 63,
)  # fmt: skip
OWN = ("id", "origin", "n", "big", "x", "at", "tags", "y", "z")
"""Columns of the sources that definitions are drawn over."""

Names = dict[str, str]


def renamed(catalog: Catalog, names: Names) -> Catalog:
    """Return the catalog with the columns of its relations renamed."""

    def name(entry: Any) -> Any:
        relation = entry.relation
        columns = Schema(tuple((names.get(column, column), kind) for column, kind in relation.columns.items()))
        key = tuple(names.get(column, column) for column in relation.key)
        return replace(entry, relation=replace(relation, columns=columns, key=key))

    return {each: name(entry) for each, entry in catalog.items()}


def in_words(value: Any, names: Names) -> Any:
    """Return a definition whose expressions say the new names; the definitions that are drawn qualify every column."""
    if isinstance(value, dict):
        return {name: in_words(inner, names) for name, inner in value.items()}
    if isinstance(value, list):
        return [in_words(inner, names) for inner in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"\b([abcd])\.(\w+)\b", lambda found: quoted(names.get(found[2], found[2]), found[1]), value)


def planned(body: dict[str, Any], catalog: Catalog) -> Plan:
    plan = build_plan(QueryDefinition.model_validate(body), catalog)
    inputs = tuple(replace(item, feed=FEED, start="earliest") for item in plan.inputs)
    return replace(plan, inputs=inputs)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.data())
def test_what_columns_are_called_changes_nothing(data: st.DataObject) -> None:
    body = data.draw(definitions()) | {"tasks": 1}
    try:
        plan = planned(body, CATALOG)
    except DefinitionInvalid:
        assume(False)
        raise
    names = dict(zip(OWN, data.draw(st.permutations(NAMES)), strict=False))
    assume(not {"value", "group_2"} & set(names.values()) or "group_by" not in body)  # results have columns of these names
    other = planned(in_words(body, names), renamed(CATALOG, names))
    relations = sorted({item.relation.name for item in plan.inputs})
    records = [record_of(data.draw, data.draw(st.sampled_from(relations))) for _ in range(data.draw(st.integers(1, 20)))]
    again = [record._replace(row={names.get(name, name): value for name, value in record.row.items()}) for record in records]
    cuts = [len(records) // 2] if len(records) > 1 else []
    assert run(other, again, cuts, restarts=True) == run(plan, records, cuts, restarts=True)
