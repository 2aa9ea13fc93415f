"""Records of streams without a value: passed on, dropped and counted, or deletes (T6)."""

from __future__ import annotations

from typing import Any

import pytest

from app.testing.machines.workbench import Workbench
from tests.unit.operators.running import append, bench_of, query, run, stream, table

SOURCES = {
    "orders": stream(["id"], id="string", n="int"),
    "parcels": stream(["id"], id="string", weight="int"),
    "people": table(["id"], id="string", name="string"),
}
WITHOUT = {"id": "a", "$op": "delete"}
RECORDS = [("orders", 1, {"id": "a", "n": 1}), ("orders", 2, WITHOUT), ("orders", 3, {"id": "b", "n": None})]
COPY = {"from": {"stream": "orders"}}


def changes(*definitions: dict[str, Any], step: int = 1) -> list[tuple[Any, ...]]:
    return run(SOURCES, definitions, RECORDS, step).rows()


def bench_with(definition: dict[str, Any]) -> Workbench:
    bench = bench_of(SOURCES, definition)
    append(bench, RECORDS)
    bench.run_until_idle(0)
    return bench


@pytest.mark.parametrize("step", [1, 3])
def test_a_select_passes_them_on(step: int) -> None:
    definition = query(**COPY, select={"id": "id", "n": "n"})
    further = {**query(**{"from": {"stream": "out"}}), "name": "r", "into": {"stream": "far"}}
    assert changes(definition, further, step=step) == [(1, 0, "a", 1), (2, 1, "a", None), (3, 0, "b", None)]


@pytest.mark.parametrize("parts", [{"from": {"stream": "orders", "where": "n IS NULL"}}, {**COPY, "where": "n IS NULL"}])
def test_no_condition_holds_for_them(parts: dict[str, Any]) -> None:
    assert [(ts, key) for ts, _, key, *_ in changes(query(**parts))] == [(3, "b")]


@pytest.mark.parametrize(
    ("parts", "operator"),
    [
        ({**COPY, "group_by": ["id"], "aggregate": {"n": "count(*)"}, "into": {"table": "out"}}, "aggregate"),
        ({**COPY, "group_by": ["id"], "window": {"type": "tumbling", "size": "1h"}, "aggregate": {"n": "count(*)"}}, "window"),
        ({**COPY, "joins": [{"table": "people", "type": "left"}]}, "people"),
        ({**COPY, "joins": [{"stream": "parcels", "type": "left", "within": {"before": "1h", "after": "1h"}}]}, "parcels"),
    ],
)
def test_aggregations_and_joins_drop_and_count_them(parts: dict[str, Any], operator: str) -> None:
    bench = bench_with(query(**parts))
    assert bench.outcome("q").counters[operator, "null_value"] == 1
    assert all(2 not in frame["_ts"] for frame in bench.outcome("q").changes)


def test_in_a_table_they_delete_the_row_of_their_key() -> None:
    definition = query(**COPY, into={"table": "out"})
    assert [row[:3] for row in changes(definition)] == [(1, 0, "a"), (2, 1, "a"), (3, 0, "b")]
