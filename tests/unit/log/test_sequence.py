"""P6: the numbers of a batch's rows across its tasks, and how far the merge had come with each."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.frames.causes import CAUSE_COLUMNS
from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME
from engine.log.sequence import ReadSpan, numbered
from engine.operators.tasks.order import NO_LANE, lane_of

Cause = tuple[int, int, int]
BEFORE, BEHIND = (BEFORE_ALL_TIME, NO_LANE, 50), (AFTER_ALL_TIME, NO_LANE, 60)


def causes(*rows: Cause) -> pl.DataFrame:
    """Rows are (head, lane, place)."""
    return pl.DataFrame(rows, schema=dict.fromkeys(CAUSE_COLUMNS, pl.Int64), orient="row")


def numbers(*tasks: list[Cause]) -> list[list[int]]:
    found = numbered([causes(*rows) for rows in tasks], None, {})
    return [own.tolist() for own in found.sequences]


def heads(*tasks: list[Cause], reached_ms: int | None = None, read: dict[int, list[ReadSpan]] | None = None) -> list[list[int]]:
    found = numbered([causes(*rows) for rows in tasks], reached_ms, read or {})
    return [own.tolist() for own in found.heads]


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([[(5, 0, 0), (7, 0, 2)], [(6, 0, 1)]], [[0, 2], [1]]),  # by head
        ([[(5, 1, 0)], [(5, 0, 9)]], [[1], [0]]),  # of one head by lane
        ([[(5, 0, 8)], [(5, 0, 7)]], [[1], [0]]),  # of one lane by place
        ([[(5, 0, 7), (5, 0, 7)], [(5, 0, 7)]], [[0, 1], [2]]),  # of one record by task, each in the order of emission
        ([[(9, 0, 1)], [], [(8, 0, 0)]], [[1], [], [0]]),
        ([[BEFORE, (5, 0, 1), BEHIND], [BEFORE, (4, 0, 0), BEHIND]], [[0, 3, 4], [1, 2, 5]]),  # the clock: before all records, or behind
        ([[(2**60, 0, 2**61)], [(5, 2**40, 0)], [(2**60, 0, 2**61 - 1)]], [[2], [0], [1]]),  # too large for one number per row
        ([[], []], [[], []]),
        ([], []),
    ],
)  # fmt: skip
def test_rows_are_numbered_by_what_caused_them(tasks: list[list[Cause]], expected: list[list[int]]) -> None:
    assert numbers(*tasks) == expected


def test_what_an_earlier_moment_caused_comes_first() -> None:
    assert numbers([(BEFORE_ALL_TIME, NO_LANE, 9)], [(BEFORE_ALL_TIME, NO_LANE, 8)]) == [[1], [0]]


def test_one_task_alone_keeps_its_own_order() -> None:
    assert numbers([(9, 0, 3), (5, 0, 0), (7, 1, 1)]) == [[0, 1, 2]]


def test_heads_never_fall_and_never_below_what_was_reached_before() -> None:
    assert heads([(5, 0, 0), (9, 0, 1)], [(7, 1, 0)], reached_ms=6) == [[6, 9], [7]]


def test_what_the_clock_causes_stands_where_the_merge_has_come() -> None:
    read = {0: [ReadSpan(0, 12)], 1: [ReadSpan(0, None)]}
    assert heads([BEFORE, (9, 0, 1), BEHIND], reached_ms=4, read=read) == [[4, 9, 12]]
    assert numbered([causes(BEFORE)], None, {}).reached_ms is None


@pytest.mark.parametrize(
    ("reached_ms", "read", "rows", "reached_after"),
    [
        (None, {}, [], None),
        (3, {}, [], 3),
        (None, {0: [ReadSpan(0, None)]}, [], None),
        (None, {0: [ReadSpan(0, 7)]}, [], 7),  # nothing came of what was read: it was read all the same
        (9, {0: [ReadSpan(0, 7)]}, [], 9),
        (None, {0: [ReadSpan(0, 7), ReadSpan(5, 4)], 1: [ReadSpan(0, 8)]}, [(6, 0, 1)], 8),
        (None, {}, [(6, 0, 1)], 6),
    ],
)
def test_the_merge_has_come_as_far_as_was_read(
    reached_ms: int | None, read: dict[int, list[ReadSpan]], rows: list[Cause], reached_after: int | None
) -> None:
    assert numbered([causes(*rows)], reached_ms, read).reached_ms == reached_after


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=40),
    st.sets(st.integers(1, 39), max_size=5),
    st.lists(st.integers(0, 2), min_size=40, max_size=40),
)
def test_heads_that_begin_anew_in_each_span_become_those_of_the_lane(times: list[int], cuts: set[int], tasks: list[int]) -> None:
    """As where one partition is all that is read: its splits do not know what stands before them."""
    lane = lane_of(0, 3)
    known: list[int] = []
    spans = []
    for start, end in pairwise([0, *sorted(cut for cut in cuts if cut < len(times)), len(times)]):
        known += np.maximum.accumulate(times[start:end]).tolist()
        spans.append(ReadSpan(start, max(times[start:end])))
    rows: list[list[Cause]] = [[], [], []]
    for place, (head, task) in enumerate(zip(known, tasks, strict=False)):
        rows[task].append((head, lane, place))
    whole = np.maximum.accumulate(times).tolist()
    expected = [[whole[place] for place in range(len(times)) if tasks[place] == task] for task in range(3)]
    found = numbered([causes(*own) for own in rows], None, {lane: spans[::-1]})
    assert [own.tolist() for own in found.heads] == expected


def test_spans_of_a_lane_say_nothing_of_another_and_those_without_records_nothing_at_all() -> None:
    read = {lane_of(0, 0): [ReadSpan(0, 90), ReadSpan(5, None), ReadSpan(8, 20)], lane_of(0, 1): [ReadSpan(0, 7)]}
    assert heads([(7, lane_of(0, 1), 9)], read=read) == [[7]]
    assert heads([(20, lane_of(0, 0), 9)], read=read) == [[90]]
    assert heads([(30, lane_of(0, 0), 2)], read=read) == [[30]]
