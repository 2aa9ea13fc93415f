"""The key of a stream that a query writes: that of what is read, or what `into.key` says."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import DefinitionInvalid
from tests.unit.operators.running import bench_of, query, run, stream, table

SOURCES = {
    "orders": stream(["id"], id="string", item="string", n="int", tags="map<string,int>"),
    "items": table(["item"], item="string", colour="string"),
}
BY_ITEM = {
    "from": {"stream": "orders"},
    "select": {"id": "id", "kind": "upper(item)"},
    "into": {"stream": "by_item", "key": ["kind"]},
}


def refused(**parts: Any) -> set[tuple[str, str]]:
    with pytest.raises(DefinitionInvalid) as caught:
        bench_of(SOURCES, query(**parts))
    return {(problem.pointer, problem.code) for problem in caught.value.problems}


def test_a_stream_has_the_key_of_what_it_is_made_of_unless_the_definition_says_another() -> None:
    for key, expected in ((None, ("id",)), (["kind"], ("kind",)), (["kind", "id"], ("kind", "id")), ([], ())):
        bench = bench_of(SOURCES, query(**{**BY_ITEM, "into": {"stream": "by_item", "key": key}}))
        assert bench.plan("q").output.key == expected
        assert bench.catalog["by_item"].relation.key == expected


def test_a_reader_meets_and_counts_by_the_given_key() -> None:
    named = {"name": "n", "into": {"stream": "named"}, "from": {"stream": "by_item"}, "tasks": 3}
    joined = {
        **named,
        "joins": [{"table": "items", "as": "i", "on": "by_item.kind = i.item"}],
        "select": {"id": "by_item.id", "c": "i.colour"},
    }
    records = [("items", 1, {"item": "X", "colour": "red"}), ("orders", 2, {"id": "a", "item": "x"}), ("orders", 3, {"id": "b"})]
    assert run(SOURCES, [query(**BY_ITEM), joined], records).select("id", "c").rows() == [("a", "red")]


def test_records_without_a_key_go_on_in_their_order() -> None:
    copy = {"name": "n", "into": {"stream": "copy"}, "from": {"stream": "by_item"}, "tasks": 1}
    records = [("orders", place, {"id": str(place), "item": None if place % 2 else "x"}) for place in range(6)]
    changes = run(SOURCES, [query(**BY_ITEM), copy], records, step=4)
    assert changes.select("id", "kind").rows() == [(str(place), None if place % 2 else "X") for place in range(6)]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (["item"], ("/into/key/0", "unknown_column")),
        (["kind", "kind"], ("/into/key/1", "name_clash")),
        (["id", "tags"], ("/into/key/1", "type_mismatch")),
    ],
)
def test_a_key_is_made_of_columns_of_the_result_that_can_be_compared(key: list[str], problem: tuple[str, str]) -> None:
    select = {**BY_ITEM["select"], "tags": "tags"}  # type: ignore[dict-item]
    assert refused(**{**BY_ITEM, "select": select, "into": {"stream": "by_item", "key": key}}) == {problem}


@pytest.mark.parametrize(
    "parts",
    [
        {"from": {"stream": "orders"}, "into": {"table": "out", "key": ["id"]}},
        {"from": {"table": "items"}, "into": {"stream": "out", "key": ["colour"]}},
        {
            "from": {"stream": "orders"},
            "group_by": ["item"],
            "aggregate": {"n": "count(*)"},
            "into": {"stream": "out", "key": ["n"]},
        },
    ],
)
def test_what_has_a_key_of_its_own_takes_no_other(parts: dict[str, Any]) -> None:
    assert ("/into/key", "unsupported_option") in refused(**parts)
