from __future__ import annotations

from itertools import pairwise

from engine.sources.kafka.brokers.client import FIRST_GROWTH_S, LEAST_BYTES, LONGEST_GROWTH_S, MOST_BYTES, STEP, FetchSize


def test_the_size_falls_with_each_failure_to_the_least() -> None:
    size = FetchSize()
    assert size.now(0.0) == MOST_BYTES
    for _ in range(5):
        size.failed(size.now(0.0), 0.0)
    assert size.now(0.0) == LEAST_BYTES


def test_the_full_size_is_back_within_two_growths_after_an_outage() -> None:
    size = FetchSize()
    for _ in range(9):
        size.failed(size.now(100.0), 100.0)
    assert size.now(100.0 + FIRST_GROWTH_S - 1) == LEAST_BYTES
    assert size.now(100.0 + FIRST_GROWTH_S) == LEAST_BYTES * STEP
    assert size.now(100.0 + 2 * FIRST_GROWTH_S) == MOST_BYTES
    assert size.now(1e9) == MOST_BYTES


def test_a_growth_that_fails_is_tried_again_later_and_later() -> None:
    size, now_s, grown_at_s = FetchSize(), 0.0, list[float]()
    size.failed(size.now(now_s), now_s)
    while len(grown_at_s) < 12:
        now_s += 1.0
        if size.now(now_s) == MOST_BYTES:
            grown_at_s.append(now_s)
            size.failed(MOST_BYTES, now_s)
    waits = [late - early for early, late in pairwise(grown_at_s)]
    assert waits[:3] == [2 * FIRST_GROWTH_S, 4 * FIRST_GROWTH_S, 8 * FIRST_GROWTH_S]
    assert waits[-1] == LONGEST_GROWTH_S


def test_an_outage_after_a_slow_time_is_over_as_soon_as_any_other() -> None:
    size = FetchSize(MOST_BYTES, changed_at_s=0.0, growth_s=LONGEST_GROWTH_S, has_grown=True)
    assert size.now(LONGEST_GROWTH_S) == MOST_BYTES
    size.failed(MOST_BYTES, 1_000.0)
    assert size.now(1_000.0 + FIRST_GROWTH_S) == MOST_BYTES


def test_a_failure_of_a_client_from_before_the_last_one_changes_nothing() -> None:
    size = FetchSize()
    size.failed(MOST_BYTES, 0.0)
    size.failed(MOST_BYTES, 0.0)
    assert size.now(0.0) == MOST_BYTES // STEP
