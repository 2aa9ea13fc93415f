"""Batches follow what they emit."""

from __future__ import annotations

from engine.runtime.limits.batch_size import BatchLimit, BatchSize

LIMIT = BatchLimit(20_000, 1 << 20)
MOST = 1_000


def test_batches_that_emit_little_have_their_slots_bound() -> None:
    size = BatchSize()
    assert not size.after(20_000, MOST // 2, LIMIT, MOST)
    assert size.within(LIMIT) == LIMIT


def test_a_batch_that_emits_much_makes_the_next_one_smaller_in_proportion() -> None:
    size = BatchSize()
    assert size.after(10_000, MOST, LIMIT, MOST)
    assert size.within(LIMIT) == BatchLimit(5_000, LIMIT.max_bytes)
    assert not size.after(100, 0, LIMIT, MOST), "a short batch tells nothing of a long one"
    assert size.after(5_000, MOST // 5, LIMIT, MOST)
    assert size.rows == 10_000
    assert size.after(10_000, MOST // 5, LIMIT, MOST)
    assert size.within(LIMIT) == LIMIT


def test_a_batch_that_was_given_up_is_tried_smaller_down_to_one_record() -> None:
    size = BatchSize()
    tried = []
    while size.refused(LIMIT):
        tried.append(size.rows)
    assert tried == [1_250, 78, 4, 1]
    assert size.is_least
    assert size.after(1, MOST * 9, LIMIT, MOST) is False
    assert size.rows == 1


def test_a_batch_that_has_cost_a_worker_does_not_come_back() -> None:
    size = BatchSize()
    assert size.refused(LIMIT, is_for_good=True)
    for _ in range(20):
        size.after(size.rows or 20_000, 0, LIMIT, MOST)
    assert size.rows == 10_000
