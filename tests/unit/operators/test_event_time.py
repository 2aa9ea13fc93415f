"""The pseudo-column ``$event_time_ms``: of each record by its relation's name, of the row by itself."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import DefinitionInvalid
from tests.unit.operators.running import bench_of, query, run, stream, table

SOURCES = {
    "orders": stream(["id"], id="string", item="string", n="int"),
    "parcels": stream(["id"], id="string", weight="int"),
    "prices": table(["item"], item="string", price="int"),
    "items": table(["item"], item="string", colour="string", maker="string"),
}
ORDERS = [
    ("orders", 5, {"id": "a", "item": "x"}),
    ("orders", 30, {"id": "b", "item": "x"}),
    ("orders", 20, {"id": "a", "item": "y"}),
]
PRICED = {"table": "prices", "as": "p", "on": "orders.item = p.item", "type": "left"}
PARCELS = {"stream": "parcels", "as": "s", "on": "orders.id = s.id", "within": {"before": "1m", "after": "1m"}}


def rows(definition: dict[str, Any], *records: Any, step: int = 1) -> list[tuple[Any, ...]]:
    return run(SOURCES, [query(**definition)], records, step).drop("_ts", "_op").rows()


def test_a_streams_event_time_is_a_number_in_select() -> None:
    select = {"id": "id", "at": "$event_time_ms", "later": "orders.$event_time_ms + 1"}
    assert rows({"from": {"stream": "orders"}, "select": select}, *ORDERS) == [("a", 5, 6), ("b", 30, 31), ("a", 20, 21)]


@pytest.mark.parametrize("place", ["from", "where"])
def test_conditions_read_the_event_time(place: str) -> None:
    condition = {"where": "$event_time_ms > 10"}
    definition = {"from": {"stream": "orders", **condition}} if place == "from" else {"from": {"stream": "orders"}, **condition}
    assert rows({**definition, "select": {"id": "id"}}, *ORDERS) == [("b",), ("a",)]


def test_behind_a_join_the_bare_name_is_the_results_time_and_each_side_has_its_own() -> None:
    select = {"id": "orders.id", "mine": "orders.$event_time_ms", "theirs": "s.$event_time_ms", "both": "$event_time_ms"}
    definition = {
        "from": {"stream": "orders"},
        "joins": [PARCELS],
        "where": "$event_time_ms > orders.$event_time_ms",
        "select": select,
    }
    parcels = [("parcels", 2, {"id": "a"}), ("parcels", 40, {"id": "b"})]
    assert rows(definition, *ORDERS, *parcels) == [("b", 30, 40, 40)]


def test_a_table_that_a_stream_meets_shows_when_its_row_was_put() -> None:
    select = {"id": "orders.id", "mine": "orders.$event_time_ms", "theirs": "p.$event_time_ms"}
    definition = {"from": {"stream": "orders"}, "joins": [PRICED], "select": select}
    assert rows(definition, ("prices", 3, {"item": "x", "price": 7}), *ORDERS) == [("a", 5, 3), ("b", 30, 3), ("a", 20, None)]


def test_rows_are_grouped_by_and_aggregated_over_the_event_time() -> None:
    definition = {
        "from": {"stream": "orders"}, "group_by": ["$event_time_ms / 25"], "aggregate": {"newest": "max($event_time_ms)"},
        "into": {"table": "out"}, "select": {"part": "group_1", "newest": "newest", "at": "$event_time_ms"},
    }  # fmt: skip
    assert rows(definition, *ORDERS) == [(0, 5, 5), (1, 30, 30), (0, 20, 20)]


def test_behind_a_join_groups_and_aggregates_read_the_rows_time() -> None:
    definition = {
        "from": {"stream": "orders"}, "joins": [PARCELS], "group_by": ["$event_time_ms"],
        "aggregate": {"least": "min($event_time_ms)", "mine": "max(orders.$event_time_ms)"}, "into": {"table": "out"},
    }  # fmt: skip
    assert rows(definition, *ORDERS, ("parcels", 7, {"id": "a"})) == [(7, 7, 5), (20, 20, 20)]


def test_a_table_is_aggregated_over_the_times_of_its_rows_as_they_are_now() -> None:
    definition = {
        "from": {"table": "items"}, "group_by": ["colour"], "aggregate": {"times": "sum($event_time_ms)"}, "into": {"table": "out"},
    }  # fmt: skip
    puts = [("items", 4, {"item": "x", "colour": "red"}), ("items", 6, {"item": "y", "colour": "red"})]
    assert rows(definition, *puts, ("items", 9, {"item": "x", "colour": "red"})) == [("red", 4), ("red", 10), ("red", 15)]


def test_joined_tables_show_both_times_and_the_results() -> None:
    select = {"item": "items.item", "mine": "items.$event_time_ms", "theirs": "p.$event_time_ms", "both": "$event_time_ms"}
    join = {"table": "prices", "as": "p", "on": "items.item = p.item"}
    definition = {
        "from": {"table": "items"}, "joins": [join], "where": "$event_time_ms < 9", "select": select, "into": {"table": "out"},
    }  # fmt: skip
    records = [("items", 4, {"item": "x"}), ("prices", 6, {"item": "x"}), ("prices", 9, {"item": "x"})]
    changes = run(SOURCES, [query(**definition)], records)
    assert changes.select("_op", "item", "mine", "theirs", "both").rows()[0] == (0, "x", 4, 6, 6)
    assert changes["_op"].to_list() == [0, 1]


def test_a_foreign_key_may_be_made_of_the_event_time() -> None:
    sources = {**SOURCES, "days": table(["day"], day="bigint", name="string")}
    join = {"table": "days", "as": "d", "on": "items.$event_time_ms - items.$event_time_ms % 10 = d.day"}
    definition = {
        "from": {"table": "items"}, "joins": [join], "select": {"item": "items.item", "name": "d.name"}, "into": {"table": "out"},
    }  # fmt: skip
    records = [("days", 1, {"day": 20, "name": "third"}), ("items", 27, {"item": "x"}), ("items", 31, {"item": "y"})]
    assert run(sources, [query(**definition)], records).select("item", "name").rows() == [("x", "third")]


def test_a_stream_meets_a_table_by_its_event_time() -> None:
    sources = {**SOURCES, "days": table(["day"], day="bigint", name="string")}
    definition = {
        "from": {"stream": "orders"}, "joins": [{"table": "days", "as": "d", "on": "orders.$event_time_ms = d.day"}],
        "select": {"id": "orders.id", "name": "d.name"},
    }  # fmt: skip
    records = [("days", 1, {"day": 20, "name": "third"}), *ORDERS]
    assert run(sources, [query(**definition, tasks=3)], records, step=4).select("id", "name").rows() == [("a", "third")]


def test_results_by_the_event_time_do_not_depend_on_tasks() -> None:
    definition = {
        "from": {"stream": "orders"},
        "group_by": ["$event_time_ms"],
        "aggregate": {"n": "count(*)"},
        "into": {"table": "out"},
    }
    one, three = (run(SOURCES, [query(**definition) | {"tasks": tasks}], ORDERS) for tasks in (1, 3))
    assert one.rows() == three.rows()


def test_the_event_time_is_no_column_unless_it_is_asked_for() -> None:
    bench = bench_of(SOURCES, query(**{"from": {"stream": "orders"}, "joins": [PRICED]}))
    assert "$event_time_ms" not in " ".join(bench.plan("q").stages[0].schema.names)


def test_streams_meet_by_the_event_times_of_both() -> None:
    join = {**PARCELS, "on": "orders.$event_time_ms = s.$event_time_ms"}
    definition = {"from": {"stream": "orders"}, "joins": [join], "select": {"mine": "orders.id", "theirs": "s.id"}}
    assert rows({**definition, "tasks": 2}, *ORDERS, ("parcels", 20, {"id": "z"})) == [("a", "z")]


def test_a_tables_key_is_met_not_its_time() -> None:
    join = {**PRICED, "on": "orders.n = p.$event_time_ms"}
    with pytest.raises(DefinitionInvalid, match="met by its key"):
        bench_of(SOURCES, query(**{"from": {"stream": "orders"}, "joins": [join]}))
