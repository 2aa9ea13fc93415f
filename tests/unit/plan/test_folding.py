"""Which aggregations may fold a batch's changes: only those whose sink would do so (T3)."""

from __future__ import annotations

from typing import Any

import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition
from engine.plan.build import build_plan, state_fingerprint
from engine.plan.catalog import source_entry
from engine.plan.model import Plan, changes_with_readers, folded
from engine.plan.operators.aggregation import Aggregation

VIEWS = StreamDefinition.model_validate({"key": ["id"], "columns": {"id": "string", "ad": "string"}})
CATALOG = {"views": source_entry("views", VIEWS)}
LIMITED = {"mode": "until_time_limit", "limit": "5m"}
WINDOWS: list[dict[str, Any] | None] = [
    None,
    {"type": "hopping", "size": "1h", "advance": "1m"},
    {"type": "session", "gap": "1m"},
    {"type": "sliding", "difference": "1m"},
]


def build(**parts: Any) -> Plan:
    body = {"name": "q", "from": {"stream": "views"}, "group_by": ["ad"], "aggregate": {"ids": "collect_list(id)"}, **parts}
    return build_plan(QueryDefinition.model_validate(body), CATALOG)


def folds(plan: Plan) -> bool:
    return any(each.is_folded for stage in plan.stages for each in stage.operators if isinstance(each, Aggregation))


@pytest.mark.parametrize("window", WINDOWS)
def test_the_changes_of_an_unversioned_table_are_folded(window: dict[str, Any] | None) -> None:
    plan = build(window=window, into={"table": "out"}, select=None, having="ids is not null")
    assert not folds(plan)
    assert folds(folded(plan))
    assert state_fingerprint(plan) == state_fingerprint(folded(plan))


@pytest.mark.parametrize(("function", "is_growing"), [("collect_list(id)", True), ("count(*)", False), ("top_k(id, 3)", False)])
def test_what_queries_read_has_every_change_but_of_results_that_grow(function: str, is_growing: bool) -> None:
    """P4: a reader of the table would find other groups, other matches, with other batches."""
    plan = build(aggregate={"found": function}, into={"table": "out"})
    assert folds(folded(plan))
    assert folds(folded(plan, is_read=True)) == is_growing
    assert changes_with_readers(plan) == (not is_growing)


@pytest.mark.parametrize(
    "parts",
    [
        {"into": {"stream": "out"}},
        {"into": {"table": "out", "versioned": {"history_retention": "1h"}}},
        {"into": {"table": "out"}, "suppress": LIMITED},
        {"into": {"table": "out"}, "window": WINDOWS[1], "suppress": {"mode": "until_window_closes"}},
        {"into": {"table": "out"}, "window": WINDOWS[1], "suppress": {"mode": "window_end_then_corrections"}},
    ],
)
def test_where_each_change_counts_every_one_is_made(parts: dict[str, Any]) -> None:
    assert not folds(folded(build(**parts)))
    assert not changes_with_readers(build(**parts))
