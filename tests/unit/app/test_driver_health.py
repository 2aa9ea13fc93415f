"""When a supervisor says that no driver comes up."""

from __future__ import annotations

import pytest

from app.driver.supervisor.health import READY_WITHIN_S, DriverHealth


def test_drivers_that_die_of_their_start_are_trouble_from_the_third_on() -> None:
    health = DriverHealth(unready_since=0.0)
    for at_s in (1.0, 2.0):
        health.ended(1, 0.5, at_s)
        assert health.trouble(at_s) is None
    health.ended(3, 0.5, 3.0)
    found = health.trouble(3.0)
    assert found is not None
    assert "3 drivers in a row" in found
    assert "Spark" in found
    assert "slackwater doctor" in found


def test_a_driver_that_was_ready_and_died_soon_counts_as_well() -> None:
    health = DriverHealth(unready_since=0.0)
    for at_s in (10.0, 20.0, 30.0):
        health.saw_ready(5.0)
        health.ended(-9, 9.0, at_s)
    assert "signal 9 killed it" in (health.trouble(30.0) or "")


def test_a_driver_that_lived_makes_the_count_begin_anew() -> None:
    health = DriverHealth(unready_since=0.0)
    for at_s in (1.0, 2.0, 3.0):
        health.ended(1, 0.5, at_s)
    health.saw_ready(61.0)
    assert health.trouble(64.0) is None
    health.ended(1, 70.0, 80.0)
    assert health.trouble(80.0) is None


@pytest.mark.parametrize(("now_s", "is_trouble"), [(READY_WITHIN_S - 1, False), (READY_WITHIN_S + 1, True)])
def test_a_driver_that_never_becomes_ready_is_trouble_after_a_while(now_s: float, is_trouble: bool) -> None:
    assert (DriverHealth(unready_since=0.0).trouble(now_s) is not None) == is_trouble


def test_a_process_that_cannot_be_made_is_trouble() -> None:
    health = DriverHealth(unready_since=0.0)
    for _ in range(3):
        health.did_not_start("No space left on device")
    assert "No space left on device" in (health.trouble(1.0) or "")


def test_a_driver_that_was_ready_is_followed_at_once_however_often_it_is_killed() -> None:
    health = DriverHealth(unready_since=0.0)
    for at_s in (14.0, 28.0, 42.0, 56.0, 70.0):
        health.saw_ready(9.0)
        health.ended(-9, 14.0, at_s)
        assert health.pause_s == 0.0


def test_drivers_that_become_ready_and_end_again_and_again_are_started_more_seldom() -> None:
    health = DriverHealth(unready_since=0.0)
    pauses = []
    for at_s in range(9):
        health.saw_ready(float(at_s))
        health.ended(1, 0.5, float(at_s))
        pauses.append(health.pause_s)
    assert pauses == [0.0] * 5 + [1.0, 2.0, 4.0, 8.0]


def test_drivers_that_do_not_come_up_are_started_ever_more_seldom_killed_ones_less_so() -> None:
    health = DriverHealth(unready_since=0.0)
    pauses = []
    for at_s in range(8):
        health.ended(1, 0.5, float(at_s))
        pauses.append(health.pause_s)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    health.ended(-9, 0.5, 9.0)
    assert health.pause_s == 5.0
