"""Named points in a driver's life, and a driver's parts that kill everything of it at the n-th passage of one of them.

Nothing of this is in the product: ``armed_driver`` starts the real driver with these subclasses in place of the classes they extend. The
environment says where to die; a file is written first, so that whoever started the driver knows that it did.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from app.driver.launches.ports import LaunchOrder
from app.driver.launches.spark_runner import SparkRunner
from app.driver.supervisor.process_group import session_members
from engine.commit.sink import Draft, Sink
from engine.commit.sink_batch import Committed
from engine.operators.tasks.task import Task
from engine.postgres.postgres import shared_connection
from engine.runtime.executor import QueryHandle
from engine.runtime.stages import StageWork
from engine.sources.packets import Packet
from engine.spark.streams.scheduling import FOLDER_OPTION, CycleReader, PacketSource
from engine.state.segments.files import FileSegmentStore

POINT, PASSAGE, MARK = "FAULTS_POINT", "FAULTS_PASSAGE", "FAULTS_MARK"

DATA_POINTS = {
    "batch planned": "Spark has written down what the batch reads, nothing else has happened",
    "task worked": "its segments are on disk, its manifest is on its way to the sink",
    "between stages": "the first stage has done its work, the second has not begun",
    "before sink transaction": "every task has done its work, the sink has not begun",
    "in sink transaction": "everything is written, not committed",
    "between sink and Spark": "the results are visible, Spark does not know that the batch is done",
    "batch done": "Spark knows",
    "next batch waits": "everything is written, not committed, and the next batch is read; the queries ride alone",
}
ALONE = "next batch waits"
"""At this point a commit is held back until the next batch is read, as it is only where a query rides alone."""

HOLD_S = 5.0
LIFECYCLE_POINTS = {
    "fence taken": "a launch holds the fence, its state has not been opened",
    "state opened": "it is what the launch goes on from, nothing runs yet",
    "launched": "the query runs, nobody has noted it",
    "stopping": "the query is told to stop",
    "stopped": "it has stopped, nobody has noted it",
    "purging": "the directory of a deleted query is gone, its row is not",
}

_passages = count(1)
T = TypeVar("T")


def passing(point: str) -> None:
    """Die here if this is the point, and the passage of it by this process."""
    if os.environ.get(POINT) == point and next(_passages) == int(os.environ[PASSAGE]):
        die(point)


def die(point: str) -> None:
    """Kill everything of this process's session, itself last."""
    Path(os.environ[MARK]).write_text(point)
    own = os.getpid()
    while others := [pid for pid in session_members(os.getsid(0)) if pid != own]:
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    os.kill(own, signal.SIGKILL)


def passing_after(point: str, function: Callable[..., T]) -> Callable[..., T]:
    """Return a function that does the same, and passes a point when it has."""

    def armed(*arguments: Any) -> T:
        answer = function(*arguments)
        passing(point)
        return answer

    return armed


class ArmedReader(CycleReader):
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        # Spark asks for the next batch when it has noted that the last one is done.
        passing("batch done")
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        passing("batch planned")
        return super().partitions(start, end)


class ArmedSource(PacketSource):
    def streamReader(self, schema: StructType) -> CycleReader:  # noqa: N802 - Spark's name
        return ArmedReader(Path(self.options[FOLDER_OPTION]))


class ArmedWork(StageWork):
    def _at_state(self, ordinals: Sequence[int]) -> dict[int, tuple[Task, FileSegmentStore]]:
        if self._place.is_overlapped:
            with shared_connection(self._place.dsn) as connection:
                row = connection.execute(
                    "SELECT batch_id FROM log.commit WHERE query_id = %s", (self._place.query_id,)
                ).fetchone()
            if row is not None and row[0] is not None and row[0] < self._batch_id - 1:
                passing(ALONE)
        return super()._at_state(ordinals)

    def _work(self, *arguments: Any) -> list[Packet]:
        if self._stage.index == 1:
            # Spark begins a stage when all tasks of the one before are done.
            passing("between stages")
        packets = super()._work(*arguments)
        passing("task worked")
        return packets


class ArmedSink(Sink):
    def commit_draft(self, draft: Draft) -> Committed:
        passing("before sink transaction")
        done = super().commit_draft(draft)
        passing("between sink and Spark")
        return done

    def write(self, *arguments: Any) -> None:
        super().write(*arguments)
        passing("in sink transaction")
        if os.environ.get(POINT) == ALONE and self.execution is not None and not self.execution["is_shared"]:
            time.sleep(HOLD_S)  # a worker kills this process meanwhile


class ArmedHandle:
    """A handle that passes points around its stop."""

    def __init__(self, handle: QueryHandle) -> None:
        self._handle = handle

    @property
    def is_active(self) -> bool:
        return self._handle.is_active

    @property
    def phase(self) -> str | None:
        return self._handle.phase

    def error(self) -> Exception | None:
        return self._handle.error()

    def stop(self, timeout_s: float, /) -> bool:
        passing("stopping")
        is_over = self._handle.stop(timeout_s)
        passing("stopped")
        return is_over

    def await_rest(self) -> bool:
        return self._handle.await_rest()


class ArmedRunner(SparkRunner):
    def launch(self, order: LaunchOrder) -> QueryHandle:
        passing("fence taken")
        handle = ArmedHandle(super().launch(order))
        passing("launched")
        return handle
