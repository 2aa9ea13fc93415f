"""What a query's time goes into."""

from __future__ import annotations

import pytest

from engine.runtime.limits.effort import BatchEffort, Effort


def test_parts_of_a_shared_round_are_what_the_worker_measured_and_the_rest_is_the_rounds() -> None:
    effort = Effort(0.0)
    effort.after(BatchEffort(part_ms=100, tasks_ms=60, commit_ms=50, busiest=0.75), {}, 1.0)
    assert effort.measured(1.0) == {"reading": 0, "tasks": 0, "commit": 0, "round": 0}, "Spark has not told of it yet"
    effort.after(BatchEffort(5, 5, 5, None), {"spark_trigger": 650, "spark_add_batch": 200}, 2.0)
    found = effort.measured(2.0)
    assert found == {"reading": 0.02, "tasks": 0.03, "commit": 0.025, "round": 0.25, "busiest_task": 0.75}


def test_where_several_workers_read_what_is_neither_work_nor_commit_is_reading() -> None:
    effort = Effort(0.0)
    effort.after(BatchEffort(None, tasks_ms=300, commit_ms=200, busiest=None), {}, 1.0)
    effort.after(BatchEffort(None, 1, 1, None), {"spark_trigger": 1_000, "spark_add_batch": 900}, 10.0)
    assert effort.measured(10.0) == {"reading": 0.04, "tasks": 0.03, "commit": 0.02, "round": 0.01}


@pytest.mark.parametrize("count", [1, 100])
def test_only_the_last_seconds_count_and_no_share_is_more_than_all(count: int) -> None:
    effort = Effort(0.0)
    for _ in range(count + 1):
        effort.after(BatchEffort(1_000, 1_000, 0, None), {}, 5.0)
    assert effort.measured(10.0)["tasks"] == min(count / 10, 1)
    assert effort.measured(16.0)["tasks"] == 0
