"""What a launched query leaves behind when its carrier ends, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

from engine.connectors.task_states import new_layout
from engine.plan.model import LateRecords, Plan
from engine.spark.launch_state import Launch, LaunchState
from engine.spark.run_options import RunOptions
from engine.spark.runner import RunningQuery


def a_query(directory: Path) -> RunningQuery:
    plan = cast("Plan", SimpleNamespace(query="q", output=SimpleNamespace(kind="stream"), late_records=LateRecords(0, 0)))
    launch = Launch(uuid4(), uuid4(), 1, directory)
    return RunningQuery(plan, launch, LaunchState(0, {}, new_layout(1)), "", RunOptions(), directory)


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
