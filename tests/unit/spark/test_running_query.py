"""What a launched query leaves behind when its slot ends, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

from engine.commit.task_states import new_layout
from engine.plan.model import LateRecords, Plan
from engine.runtime.checkpoint import note_planned
from engine.runtime.launches.launch_state import Launch, LaunchState
from engine.runtime.launches.launched_query import LaunchContext
from engine.runtime.launches.run_options import RunOptions
from engine.runtime.limits.watchdog import STALL_S
from engine.spark.streams.running_query import REST_STALLS, RunningQuery


def a_query(directory: Path) -> RunningQuery:
    plan = cast(
        "Plan", SimpleNamespace(query="q", stages=(), output=SimpleNamespace(kind="stream"), late_records=LateRecords(0, 0))
    )
    launch = Launch(uuid4(), uuid4(), 1, directory)
    return RunningQuery(LaunchContext(plan, launch, LaunchState(0, {}, new_layout(1)), "", RunOptions(), directory))


def test_what_ended_a_query_first_is_what_is_told(tmp_path: Path) -> None:
    query = a_query(tmp_path)
    assert (query.is_active, query.error()) == (True, None)
    query.fail(ValueError("the source is away"))
    query.fail(ValueError("the session is gone"))
    assert not query.is_active
    assert "the source is away" in str(query.error())


def test_a_query_that_was_stopped_commits_nothing_any_more(tmp_path: Path) -> None:
    query = a_query(tmp_path)
    assert query.stop(1)
    assert query.commit([], {}) is None
    assert (query.is_active, query.error(), query.next_batch) == (False, None, 0)


class Rounds:
    """A shared slot as one sees it who leaves it in the midst of a round that does not end."""

    is_shared, cycles_done = True, 5

    def __init__(self) -> None:
        self.waited: list[tuple[int, float]] = []

    def leave(self, _member: RunningQuery) -> bool:
        return True

    def await_cycle(self, done: int, timeout: float) -> bool:
        self.waited.append((done, timeout))
        return False


def test_the_wait_for_a_round_that_was_left_has_an_end(tmp_path: Path) -> None:
    query, slot = a_query(tmp_path), Rounds()
    query.slot = cast("Any", slot)
    note_planned(tmp_path, 0)
    assert query.stop(1)
    assert not query.await_rest()
    assert slot.waited == [(5, REST_STALLS * STALL_S)]
    at_rest = a_query(tmp_path)
    assert at_rest.stop(1)
    assert at_rest.await_rest(), "it was in none"
