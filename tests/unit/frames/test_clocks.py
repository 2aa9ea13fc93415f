"""The time before an operator, over the places of one batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.frames.clocks import BEFORE_ALL_TIME, NEVER, Clock, Wait


def rising(start: int, places: list[int], times: list[int], silence_ms: int = 0) -> Clock:
    silence_ms = 0 if start == BEFORE_ALL_TIME else silence_ms
    return Clock(start, first=0, silence_ms=silence_ms).rising(
        np.array(places, np.int64), np.array(times, np.int64), start + silence_ms
    )


@pytest.mark.parametrize("is_turned", [False, True])
def test_the_time_of_two_tables_is_the_greater_one_also_in_silence_and_where_one_had_no_record_before(is_turned: bool) -> None:
    one, other = rising(5, [4], [20], 3), rising(BEFORE_ALL_TIME, [3], [9])
    joined = other.joined(one) if is_turned else one.joined(other)
    assert joined.before(np.arange(6)).tolist() == [5, 6, 7, 8, 9, 20]
    assert joined.end == 20


def test_of_two_tables_the_one_that_has_waited_less_is_set_back() -> None:
    """T1d: or rows of the other one would be behind the time that their producer handed on (P15)."""
    waited, other = replace(rising(BEFORE_ALL_TIME, [3], [9]), waited_ms=10), rising(5, [4], [20])
    joined = waited.joined(other)
    assert joined.before(np.arange(6)).tolist() == [-5, -5, -5, -5, 9, 10]
    assert joined.wait_ms == 10


def test_behind_a_shorter_wait_time_goes_on_with_each_millisecond_of_the_silence() -> None:
    """J11, T10: an edit while the sources are idle."""
    behind = rising(50, [4], [70], 3).behind(Wait(10)).going_on(20)
    assert behind.before(np.arange(6)).tolist() == [20, 41, 42, 43, 43, 60]
    assert behind.reached(np.array([20, 30, 42, 43, 60, 61])).tolist() == [0, 0, 1, 2, 4, NEVER]
    assert (behind.end, behind.wait_ms, behind.is_silence(np.array([2, 3])).tolist()) == (60, 10, [True, False])
    assert rising(50, [], [], 3).behind(Wait(10)).going_on(20).end == 43, "where no record comes, too"
