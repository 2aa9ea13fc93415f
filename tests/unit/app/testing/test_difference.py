"""Aligning what was expected with what was found."""

from __future__ import annotations

from operator import eq

from hypothesis import given
from hypothesis import strategies as st

from app.testing.comparing.difference import Line, Pair, align, unified

LETTERS = st.lists(st.sampled_from("abc"), max_size=8)


def diff(wanted: str, found: str) -> list[str]:
    return [str(line) for line in unified(align(wanted, found, eq), wanted, found)]


def test_equal_lists_have_no_difference() -> None:
    assert diff("abc", "abc") == []


def test_a_row_that_is_missing_and_one_too_many_are_told_apart() -> None:
    assert diff("abc", "axc") == ["@@ -1,3 +1,3 @@", " a", "-b", "+x", " c"]


def test_expected_lines_come_before_found_ones() -> None:
    assert diff("ab", "xy") == ["@@ -1,2 +1,2 @@", "-a", "-b", "+x", "+y"]


def test_nothing_where_something_was_expected() -> None:
    assert diff("a", "") == ["@@ -1,1 +0,0 @@", "-a"]


def test_far_apart_differences_are_hunks_of_their_own() -> None:
    assert diff("a" + "o" * 20 + "b", "x" + "o" * 20 + "y")[:6] == ["@@ -1,4 +1,4 @@", "-a", "+x", " o", " o", " o"]


def test_rows_match_by_what_is_compared_and_common_lines_show_the_expected_text() -> None:
    pairs = align([1.0, 2.0], [1.2, 5.0], lambda wanted, found: round(wanted) == round(found))
    assert pairs == [Pair(0, 0), Pair(1, None), Pair(None, 1)]
    assert unified(pairs, ["1", "2"], ["1.2", "5"])[1] == Line(" ", "1")


@given(LETTERS, LETTERS)
def test_an_alignment_covers_both_lists_in_order_and_is_longest(wanted: list[str], found: list[str]) -> None:
    pairs = align(wanted, found, eq)
    assert [pair.wanted for pair in pairs if pair.wanted is not None] == list(range(len(wanted)))
    assert [pair.found for pair in pairs if pair.found is not None] == list(range(len(found)))
    common = [pair for pair in pairs if pair.wanted is not None and pair.found is not None]
    assert all(wanted[pair.wanted or 0] == found[pair.found or 0] for pair in common)
    assert len(common) == longest_common(wanted, found)


def longest_common(left: list[str], right: list[str]) -> int:
    if not left or not right:
        return 0
    if left[0] == right[0]:
        return 1 + longest_common(left[1:], right[1:])
    return max(longest_common(left[1:], right), longest_common(left, right[1:]))
