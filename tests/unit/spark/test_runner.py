"""What a launched query leaves behind when Spark ends it, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

import structlog
from pyspark.sql.streaming.query import StreamingQuery

from engine.connectors.blob_files import BlobFolder
from engine.connectors.sink import Sink
from engine.plan.model import LateRecords, Plan
from engine.spark.runner import RunningQuery, RunOptions, _Commits, _Stages


class EndedQuery:
    """A streaming query that failed outside of its batches, such as in planning one."""

    isActive = False  # noqa: N815 - Spark's name

    def exception(self) -> Exception:
        return ValueError("the source is away")


def test_a_query_that_failed_between_batches_lets_go_of_its_blobs_and_its_connection(tmp_path: Path) -> None:
    aside = BlobFolder(tmp_path / "checkpoint" / "epoch-1")
    aside.open()
    plan = cast("Plan", SimpleNamespace(late_records=LateRecords(0, 0)))
    sink = Sink("", plan, uuid4(), uuid4(), 1)
    commits = _Commits(sink, _Stages((), 1), structlog.stdlib.get_logger(), ("q", 1), RunOptions(), aside, 0)
    query = RunningQuery(cast("StreamingQuery", EndedQuery()), commits)
    error = query.error()
    assert error is not None
    assert "the source is away" in str(error)
    assert not aside.path.exists()
