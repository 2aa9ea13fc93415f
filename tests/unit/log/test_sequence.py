"""P6: the numbers of a batch's rows across its tasks, and how far the merge had come with each."""

from __future__ import annotations

import polars as pl
import pytest

from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME
from engine.frames.frames import HEAD, POS, RANK
from engine.log.sequence import numbered

Cause = tuple[int, int, bytes | None]
BEFORE, BEHIND = (BEFORE_ALL_TIME, 0, None), (AFTER_ALL_TIME, 99, None)


def causes(*rows: Cause) -> pl.DataFrame:
    """Rows are (head, position, rank)."""
    return pl.DataFrame(rows, schema={HEAD: pl.Int64, POS: pl.Int64, RANK: pl.Binary}, orient="row")


def numbers(*tasks: list[Cause]) -> list[list[int]]:
    found = numbered([causes(*rows) for rows in tasks], None, None)
    return [own.tolist() for own in found.sequences]


def heads(*tasks: list[Cause], reached_ms: int | None = None, newest: int | None = None) -> list[list[int]]:
    found = numbered([causes(*rows) for rows in tasks], reached_ms, newest)
    return [own.tolist() for own in found.heads]


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([[(5, 10, None), (7, 12, None)], [(6, 11, None)]], [[0, 2], [1]]),  # by position
        ([[(5, 10, b"b")], [(5, 10, b"a"), (5, 10, b"c")]], [[1], [0, 2]]),  # of one position by rank
        ([[(5, 10, b"a")], [(5, 10, None)]], [[1], [0]]),  # the record itself first
        ([[(5, 10, b"a"), (5, 10, b"a")], [(5, 10, b"b")]], [[0, 1], [2]]),  # of one rank as its task emitted them
        ([[(9, 11, None)], [], [(8, 10, None)]], [[1], [], [0]]),
        ([[BEFORE, (5, 11, None), BEHIND], [(4, 10, None)]], [[0, 2, 3], [1]]),
        ([[], []], [[], []]),
        ([], []),
    ],
)
def test_rows_are_numbered_by_their_places(tasks: list[list[Cause]], expected: list[list[int]]) -> None:
    assert numbers(*tasks) == expected


def test_one_task_alone_keeps_its_own_order() -> None:
    assert numbers([(9, 12, None), (5, 10, None), (7, 11, None)]) == [[0, 1, 2]]


def test_heads_never_fall_and_never_below_what_was_reached_before() -> None:
    assert heads([(5, 10, None), (9, 12, None)], [(7, 11, None)], reached_ms=6) == [[6, 9], [7]]


def test_what_the_clock_causes_stands_where_the_merge_has_come() -> None:
    assert heads([BEFORE, (9, 11, None), BEHIND], reached_ms=4, newest=12) == [[4, 9, 12]]
    assert numbered([causes(BEFORE)], None, None).reached_ms is None


@pytest.mark.parametrize(
    ("reached_ms", "newest", "rows", "reached_after"),
    [
        (None, None, [], None),
        (3, None, [], 3),
        (None, 7, [], 7),  # nothing came of what was read: it was read all the same
        (9, 7, [], 9),
        (None, 8, [(6, 10, None)], 8),
        (None, None, [(6, 10, None)], 6),
    ],
)
def test_the_merge_has_come_as_far_as_was_read(
    reached_ms: int | None, newest: int | None, rows: list[Cause], reached_after: int | None
) -> None:
    assert numbered([causes(*rows)], reached_ms, newest).reached_ms == reached_after
