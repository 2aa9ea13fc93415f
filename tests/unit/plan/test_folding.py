"""Which aggregations may fold a batch's changes: only those whose sink would do so (T3)."""

from __future__ import annotations

from typing import Any

import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition
from engine.plan.build import build_plan, state_fingerprint
from engine.plan.catalog import source_entry
from engine.plan.folding import unfolded
from engine.plan.model import Aggregation, Plan

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
    assert folds(plan)
    assert not folds(unfolded(plan))
    assert state_fingerprint(plan) == state_fingerprint(unfolded(plan))


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
    assert not folds(build(**parts))
