"""P14: where marks of time stand between the rows of a derived relation's log."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from engine.frames.clocks import I64, Clock, Wait
from engine.frames.frames import HEAD, POS, RANK
from engine.log.marks import Marks, decode_marks, encode_marks, marks_of

SECOND = 1_000


def ints(*values: int) -> I64:
    return np.array(values, np.int64)


def at(*positions: int) -> pl.DataFrame:
    return pl.DataFrame(
        [(0, position, None) for position in positions], schema={HEAD: pl.Int64, POS: pl.Int64, RANK: pl.Binary}, orient="row"
    )


def made(rows: pl.DataFrame, clock: Clock, last_mark_ms: int | None = 10) -> list[tuple[int, int]]:
    """Return the number of the row behind each mark, and its time; the first row has the number 100."""
    found = marks_of(rows, clock, lambda places: 10 * places, 100, (None, None), last_mark_ms)
    return list(zip(found.numbers.tolist(), found.times.tolist(), strict=True))


CLOCK = Clock(start=10, places=ints(1, 2, 3), times=ints(20, 30, 40), entered=1)


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ((), []),  # without rows, inside of a second
        ((2,), [(100, 20), (101, 30)]),  # before the row, and behind the last row of a place that raises time
        ((2, 2), [(100, 20), (102, 30)]),
        ((5,), [(100, 40)]),  # the last of several rises before a row
        ((0,), []),  # time rises behind it, without rows
    ],
)
def test_marks_stand_before_the_first_row_of_a_place_and_behind_the_row_that_raises_time(
    positions: tuple[int, ...], expected: list[tuple[int, int]]
) -> None:
    assert made(at(*positions), CLOCK) == expected


def test_a_rise_of_a_batch_without_rows_is_told_before_the_next_row_at_its_place() -> None:
    assert made(at(0, 1), CLOCK, last_mark_ms=8) == [(100, 10), (102, 20)]
    found = marks_of(at(3), Clock(start=10, first=3), lambda places: 10 * places, 100, (25, None), 8)
    assert (found.times.tolist(), found.heads.tolist()) == ([10], [30])


def test_time_without_rows_is_told_at_each_full_second() -> None:
    clock = Clock(start=10, places=ints(1, 2, 3, 4), times=ints(20, SECOND, SECOND + 10, 3 * SECOND + 5), entered=1)
    assert made(at(), clock) == [(100, SECOND), (100, 3 * SECOND + 5)]


def test_after_a_longer_wait_marks_go_on_where_time_reaches_the_last_one_again() -> None:
    """P15: an edit that lengthens a wait sets the time behind the operator back; the log's time never falls (T1)."""
    behind = CLOCK.behind(Wait(5))
    assert made(at(1, 2, 3), behind) == [(101, 15), (102, 25), (103, 35)]
    assert made(at(1, 2, 3), behind, last_mark_ms=15) == [(102, 25), (103, 35)]
    assert made(at(1, 2, 3), behind, last_mark_ms=30) == [(103, 35)]
    assert made(at(1, 2, 3), behind, last_mark_ms=40) == []


def test_marks_survive_their_bytes() -> None:
    marks = Marks(ints(100, 100, 103), ints(5, 7, 7), ints(20, 30, 40), 9)
    again = decode_marks(encode_marks(marks), 9)
    assert [part.tolist() for part in (again.numbers, again.heads, again.times)] == [[100, 100, 103], [5, 7, 7], [20, 30, 40]]
    assert again.wait_ms == 9
