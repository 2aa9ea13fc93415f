"""Rows of arrays' elements: `explode` in a `select`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import DefinitionInvalid
from tests.unit.operators.running import append, bench_of, query, run, stream, table

SOURCES = {
    "baskets": stream(["id"], id="string", items="array<string>", counts="array<int>", parts="array<struct<name:string>>"),
    "people": table(["id"], id="string", name="string", items="array<string>"),
}
FROM = {"from": {"stream": "baskets"}}
BASKETS = [
    ("baskets", 1, {"id": "a", "items": ["x", None, "y"], "counts": [1]}),
    ("baskets", 2, {"id": "b", "items": [], "counts": None}),
    ("baskets", 3, {"id": "c", "items": None, "counts": [7, 8], "parts": [{"name": "n"}]}),
]


def rows(select: dict[str, str], step: int = 1, **more: Any) -> list[tuple[Any, ...]]:
    return run(SOURCES, [query(**FROM, select=select, **more)], BASKETS, step).drop("_op").rows()


@pytest.mark.parametrize("step", [1, 3])
def test_each_element_makes_a_row_in_order_and_empty_arrays_none(step: int) -> None:
    assert rows({"id": "id", "item": "explode(items)"}, step) == [(1, "a", "x"), (1, "a", None), (1, "a", "y")]


@pytest.mark.parametrize("step", [1, 3])
def test_several_arrays_run_side_by_side_and_the_shorter_is_filled_up(step: int) -> None:
    select = {"id": "id", "item": "explode(items)", "count": "explode(counts)", "part": "explode(parts)"}
    assert rows(select, step) == [
        (1, "a", "x", 1, None), (1, "a", None, None, None), (1, "a", "y", None, None),
        (3, "c", None, 7, {"name": "n"}), (3, "c", None, 8, None),
    ]  # fmt: skip


def test_an_element_is_a_value_like_any_other_and_the_same_array_counts_once() -> None:
    select = {"id": "id", "item": "upper(explode(items)) || '!'", "again": "explode(items)", "at": "$event_time_ms"}
    assert rows(select) == [(1, "a", "X!", "x", 1), (1, "a", None, None, 1), (1, "a", "Y!", "y", 1)]


def test_arrays_may_be_computed_also_of_the_event_time() -> None:
    select = {"id": "id", "part": "explode(split(id || ',' || CAST($event_time_ms AS string), ','))"}
    assert rows(select, where="id <> 'b'") == [(1, "a", "a"), (1, "a", "1"), (3, "c", "c"), (3, "c", "3")]


def test_behind_a_join_arrays_of_both_sides_can_be_exploded() -> None:
    join = {"table": "people", "as": "p", "on": "baskets.id = p.id"}
    select = {
        "id": "baskets.id",
        "item": "explode(baskets.items)",
        "theirs": "explode(p.items)",
        "at": "explode(split(p.name, 'n'))",
    }
    records = [("people", 0, {"id": "a", "name": "Ann", "items": ["u"]}), *BASKETS]
    changes = run(SOURCES, [query(**FROM, joins=[join], select=select)], records)
    assert changes.drop("_ts", "_op").rows() == [("a", "x", "u", "A"), ("a", None, None, ""), ("a", "y", None, "")]


def test_the_rows_of_all_combinations_of_an_array() -> None:
    select = {"id": "id", "kept": "explode(cube(items))"}
    assert rows(select, where="id = 'a'") == [
        (1, "a", [None, None, None]), (1, "a", [None, None, "y"]), (1, "a", ["x", None, None]), (1, "a", ["x", None, "y"]),
    ]  # fmt: skip


def test_a_record_without_a_value_gives_no_row_and_is_counted() -> None:
    bench = bench_of(SOURCES, query(**FROM, select={"id": "id", "item": "explode(items)"}))
    append(bench, [("baskets", 1, {"id": "a", "items": ["x"], "$op": "delete"})])
    bench.run_until_idle(0)
    assert bench.outcome("q").counters == {("select", "null_value"): 1}
    assert not any(frame.height for frame in bench.outcome("q").changes)


def test_rows_go_on_with_the_key_of_their_record_or_another() -> None:
    select = {"id": "id", "item": "explode(items)"}
    for into, key in (({"stream": "out"}, ("id",)), ({"stream": "out", "key": ["item"]}, ("item",))):
        assert bench_of(SOURCES, query(**FROM, select=select, into=into)).plan("q").output.key == key


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"select": {"x": "explode(id)"}}, ("/select/x", "type_mismatch")),
        ({"select": {"x": "explode(items, counts)"}}, ("/select/x", "type_mismatch")),
        ({"select": {"x": "explode(split(explode(items), ','))"}}, ("/select/x", "not_a_scalar")),
        ({"select": {"x": "explode(nothing)"}}, ("/select/x", "unknown_column")),
        ({"where": "explode(counts) > 1"}, ("/where", "unknown_function")),
        ({"select": {"id": "id", "x": "explode(items)"}, "into": {"table": "out"}}, ("/select/x", "unsupported_option")),
        ({"from": {"table": "people"}, "select": {"x": "explode(items)"}}, ("/select/x", "unsupported_option")),
        (
            {"group_by": ["id"], "aggregate": {"n": "count(*)"}, "select": {"x": "explode(items)"}},
            ("/select/x", "unsupported_option"),
        ),
    ],
)
def test_what_cannot_make_rows_is_refused(parts: dict[str, Any], problem: tuple[str, str]) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        bench_of(SOURCES, query(**{**FROM, **parts}))
    assert problem in {(each.pointer, each.code) for each in caught.value.problems}


@given(st.lists(st.tuples(*[st.none() | st.lists(st.integers(0, 3) | st.none(), max_size=3)] * 2), max_size=8), st.integers(1, 8))
def test_every_slicing_gives_what_one_record_after_the_other_gives(given_rows: list[tuple[Any, Any]], step: int) -> None:
    sources = {"s": stream(["id"], id="int", a="array<int>", b="array<int>")}
    definition = query(**{"from": {"stream": "s"}}, select={"id": "id", "a": "explode(a)", "b": "explode(b)"})
    records = [("s", place, {"id": place, "a": a, "b": b}) for place, (a, b) in enumerate(given_rows)]
    expected = [
        (place, (a or [])[at : at + 1] or [None], (b or [])[at : at + 1] or [None])
        for place, (a, b) in enumerate(given_rows)
        for at in range(max(len(a or []), len(b or [])))
    ]
    changes = run(sources, [definition], records, step)
    found = [] if changes.is_empty() else changes.select("id", "a", "b").rows()
    assert found == [(place, *a, *b) for place, a, b in expected]
