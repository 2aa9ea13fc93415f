"""What a query's time goes into."""

from __future__ import annotations

import pytest

from app.status.limiting import Facts, limit_of, slow_function
from engine.runtime.limits.time_breakdown import BatchEffort, Effort


def test_parts_of_a_shared_round_are_what_the_worker_measured_and_the_rest_is_the_rounds() -> None:
    effort = Effort(0.0)
    effort.after(BatchEffort(part_ms=100, tasks_ms=60, commit_ms=50, busiest=0.75), {}, 1.0)
    assert effort.measured(1.0) == {"reading": 0, "tasks": 0, "commit": 0, "other_queries": 0}, "Spark has not told of it yet"
    effort.after(BatchEffort(5, 5, 5, None), {"spark_trigger": 650, "spark_add_batch": 200}, 2.0)
    found = effort.measured(2.0)
    assert found == {"reading": 0.02, "tasks": 0.03, "commit": 0.025, "other_queries": 0.25, "busiest_task": 0.75}


def test_where_several_workers_read_what_is_neither_work_nor_commit_is_reading() -> None:
    effort = Effort(0.0)
    effort.after(BatchEffort(None, tasks_ms=300, commit_ms=200, busiest=None), {}, 1.0)
    effort.after(BatchEffort(None, 1, 1, None), {"spark_trigger": 1_000, "spark_add_batch": 900}, 10.0)
    assert effort.measured(10.0) == {"reading": 0.04, "tasks": 0.03, "commit": 0.02, "other_queries": 0.01}


@pytest.mark.parametrize("count", [1, 100])
def test_only_the_last_seconds_count_and_no_share_is_more_than_all(count: int) -> None:
    effort = Effort(0.0)
    for _ in range(count + 1):
        effort.after(BatchEffort(1_000, 1_000, 0, None), {}, 5.0)
    assert effort.measured(10.0)["tasks"] == min(count / 10, 1)
    assert effort.measured(16.0)["tasks"] == 0


@pytest.mark.parametrize("batch_ms", [300, 3_000, 7_000, 30_000])
def test_a_query_that_never_waits_is_busy_all_the_time_however_long_its_batches_are(batch_ms: int) -> None:
    effort = Effort(0.0)
    batch = BatchEffort(batch_ms, batch_ms, 0, None, {"score": batch_ms})
    for number in range(1, 101):
        effort.after(batch, {}, number * batch_ms / 1_000)
    found = effort.measured(101 * batch_ms / 1_000, batch)
    assert (found["tasks"], found["functions"]) == (1.0, {"score": 1.0})


def test_of_a_long_batch_only_the_last_seconds_count() -> None:
    effort = Effort(0.0)
    effort.after(BatchEffort(4_000, 4_000, 0, None, {"score": 2_000}), {}, 12.0)
    found = effort.measured(20.0, BatchEffort(4_000, 4_000, 0, None, {"tax": 400}))
    assert (found["tasks"], found["functions"]) == (0.6, {"score": 0.1, "tax": 0.04})


def test_a_function_that_several_readers_wait_for_limits_reading_before_spark_has_reported() -> None:
    effort = Effort(0.0)
    found = effort.measured(10.0, BatchEffort(None, 200, 0, None, {"score": 9_000}, read_ms=9_500))
    assert found == {"reading": 0.95, "tasks": 0.02, "commit": 0, "other_queries": 0, "functions": {"score": 0.9}}
    facts = Facts("running", is_waiting=False, is_merging=False, unread=0, measured=found, age_s=0.1)
    assert limit_of(facts) == "reading"
    reason = slow_function(facts)
    assert reason is not None
    assert "the Python function score for 90%" in reason.detail
