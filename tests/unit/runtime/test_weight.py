"""Who is heavy, and who is light again."""

from __future__ import annotations

from engine.runtime.limits.batch_size import SHARED_LIMIT
from engine.runtime.limits.load import HEAVY_ROWS, LIGHT_AFTER_S, WINDOW_S, Weight


def test_a_large_batch_makes_a_query_heavy_for_a_while() -> None:
    weight = Weight()
    assert not weight.after(HEAVY_ROWS - 1, 10, 0.0)
    assert weight.after(HEAVY_ROWS, 10, 1.0)
    assert weight.after(1, 10, 2.0)
    assert weight.after(1, 10, 2.0 + LIGHT_AFTER_S - 0.1)
    assert not weight.after(1, 10, 2.0 + LIGHT_AFTER_S)


def test_a_batch_that_left_records_unread_makes_a_query_heavy_however_small_it_is() -> None:
    weight = Weight()
    assert not weight.after(10, 10, 0.0)
    assert weight.after(10, 10, 1.0, is_full=True)
    assert weight.after(10, 10, 2.0)
    assert not weight.after(10, 10, 2.0 + LIGHT_AFTER_S)


def test_whatever_fills_half_of_a_shared_batch_is_heavy() -> None:
    assert SHARED_LIMIT.max_rows >= HEAVY_ROWS * 2, "chunks that fit into the bound only once fill more than half of it"


def test_much_work_makes_a_query_heavy_and_one_long_batch_does_not() -> None:
    weight = Weight()
    assert not weight.after(10, 1_000, 0.0)
    assert weight.after(10, 600, 1.0), "more than 15 % of the last ten seconds"
    fresh = Weight()
    assert not any(fresh.after(10, 40, number * 0.5) for number in range(100)), "8 % of a core for 50 seconds"


def test_a_heavy_query_that_stays_at_work_does_not_come_back() -> None:
    weight = Weight()
    assert weight.after(HEAVY_ROWS, 10, 0.0)
    assert all(weight.after(10, 100, number * 1.0) for number in range(1, 120)), "10 % is too much to be light"


def test_a_query_without_batches_is_light_after_a_while() -> None:
    weight = Weight()
    assert weight.after(HEAVY_ROWS, 5_000, 0.0)
    assert weight.after(0, 0, WINDOW_S + 1)
    assert not weight.after(0, 0, WINDOW_S + 1 + LIGHT_AFTER_S)


def test_a_query_that_holds_its_stream_up_without_cpu_is_heavy() -> None:
    weight = Weight()
    assert not weight.after(10, 5, 0.0, wall_ms=2_000)
    assert weight.after(10, 5, 3.0, wall_ms=2_000), "40 % of the last ten seconds"
    assert all(weight.after(10, 5, number * 3.0, wall_ms=2_000) for number in range(2, 40)), "it holds others up as before"
    assert weight.after(10, 5, 130.0, wall_ms=10)
    assert not weight.after(10, 5, 130.0 + LIGHT_AFTER_S, wall_ms=10)
