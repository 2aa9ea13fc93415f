"""When an answer is the one that a page shows, and what is written where it is not."""

from __future__ import annotations

import pytest

from tests.guide.answers import fits, json_fits, text_fits, written
from tests.guide.grid import grid


@pytest.mark.parametrize(
    ("shown", "found", "is_one"),
    [
        ("a\nb", "a  \nb\n", True),
        ("a", "a\nb", False),
        ("", "", True),
        ("", "a", False),
        ("took … ms", "took 17 ms", True),
        ("took … ms", "took 17 s", False),
        ("a\n…\nz", "a\nb\nc\nz", True),
        ("a\n…\nz", "a\nz", True),
        ("a\n…\nz", "a\nb", False),
        ("a.c", "abc", False),
    ],
)
def test_texts(shown: str, found: str, is_one: bool) -> None:
    assert text_fits(shown, found) is is_one


@pytest.mark.parametrize(
    ("shown", "found", "is_one"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": "…"}, {"a": [1]}, True),
        ({"a": "at … UTC"}, {"a": "at 12 UTC"}, True),
        ([1, 2], [1, 2, 3], False),
        ([1, "…"], [1, 2, 3], True),
        (["…"], [], True),
        ([{"a": 1}], [{"a": 1, "b": 2}], True),
        (1, 1.0, False),
        (True, 1, False),
        (None, None, True),
        ({"a": None}, {"a": 0}, False),
    ],
)
def test_values(shown: object, found: object, is_one: bool) -> None:
    assert json_fits(shown, found) is is_one


def test_an_empty_block_of_json_is_no_answer() -> None:
    assert not fits("", "{}", is_json=True)
    assert written("", '{"a": 1}', is_json=True) == '{\n  "a": 1\n}'


def test_what_fits_is_kept_and_lines_that_fit_are_kept() -> None:
    assert written("took … ms", "took 5 ms", is_json=False) == "took … ms"
    assert written("took … ms\nold", "took 5 ms\nnew", is_json=False) == "took … ms\nnew"
    assert written("old", "one\ntwo", is_json=False) == "one\ntwo"
    assert written('{"a": "…"}', '{"a": 1, "b": 2}', is_json=True) == '{"a": "…"}'


def test_rows_stand_below_their_columns_and_numbers_at_the_right() -> None:
    assert grid(["ITEM", "N"], [["tea", 12], ["x", None], ["y", 3]]) == (
        "ITEM |    N\n-----+-----\ntea  |   12\nx    | NULL\ny    |    3\n(3 rows)"
    )
    assert grid(["A"], []) == "A\n-\n(0 rows)"
    assert grid(["A"], [[True]]) == "A\n----\ntrue\n(1 row)"
