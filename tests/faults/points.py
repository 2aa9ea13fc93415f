"""Named points in a driver's life, and a driver's parts that kill everything of it at the n-th passage of one of them.

Nothing of this is in the product: ``armed_driver`` starts the real driver with these subclasses in place of the classes they extend. The
environment says where to die; a file is written first, so that whoever started the driver knows that it did.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from app.driver.ports import LaunchOrder, QueryHandle
from app.driver.process_group import session_members
from app.driver.spark_runner import SparkRunner
from engine.connectors.packets import Packet
from engine.connectors.sink import Sink
from engine.spark.bridge import StageProcessor
from engine.spark.source import Offset, PacketReader, PacketSource

POINT, PASSAGE, MARK = "FAULTS_POINT", "FAULTS_PASSAGE", "FAULTS_MARK"

DATA_POINTS = {
    "batch planned": "Spark has written down what the batch reads, nothing else has happened",
    "before state commit": "a task's segments are on disk and its manifest is handed to Spark's state store, which has not committed it",
    "between state commits": "the first stage's state is committed, the second's is not",
    "before sink transaction": "every task's state is committed, the sink has not begun",
    "in sink transaction": "everything is written, not committed",
    "between sink and Spark": "the results are visible, Spark does not know that the batch is done",
    "batch done": "Spark knows",
    "during snapshot upload": "files of a snapshot of the state store are in the checkpoint, what names them is not",
}
LIFECYCLE_POINTS = {
    "fence taken": "a launch holds the fence, the checkpoint has not been taken over",
    "checkpoint taken over": "it has been renamed, nothing runs yet",
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


class ArmedReader(PacketReader):
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        # Spark asks for the next batch when it has noted that the last one is done.
        passing("batch done")
        return super().latestOffset(start, limit)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        passing("batch planned")
        return super().partitions(start, end)


class ArmedSource(PacketSource):
    def streamReader(self, schema: StructType) -> PacketReader:  # noqa: N802 - Spark's name
        reader = super().streamReader(schema)
        return ArmedReader(reader._spec, reader._feeds)


class ArmedProcessor(StageProcessor):
    def _work(self, *arguments: Any) -> list[Packet]:
        if self._stage.index == 1:
            # Spark begins a stage when all tasks of the one before have committed.
            passing("between state commits")
        packets = super()._work(*arguments)
        passing("before state commit")
        return packets


class ArmedSink(Sink):
    def commit(self, batch_id: int, packets: pa.Table, earlier_ms: Mapping[str, int] | None = None) -> None:
        passing("before sink transaction")
        super().commit(batch_id, packets, earlier_ms)
        passing("between sink and Spark")

    def _write(self, *arguments: Any) -> None:
        super()._write(*arguments)
        passing("in sink transaction")


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


class ArmedRunner(SparkRunner):
    def open(self) -> None:
        super().open()
        if os.environ.get(POINT) == "during snapshot upload":
            # Else it takes ten batches and a minute until there is one.
            self._session.conf.set("spark.sql.streaming.stateStore.maintenanceInterval", "200ms")
            self._session.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1")
            threading.Thread(target=_watch_uploads, args=(self._checkpoints_dir, self._jvm()), daemon=True).start()

    def launch(self, order: LaunchOrder) -> QueryHandle:
        passing("fence taken")
        handle = ArmedHandle(super().launch(order))
        passing("launched")
        return handle

    def _jvm(self) -> psutil.Process:
        gateway = self._session.sparkContext._gateway
        return psutil.Process(gateway.proc.pid)


def _watch_uploads(checkpoints: Path, jvm: psutil.Process) -> None:
    """Stop the JVM whenever a file of a snapshot appears; die if what names the file is still missing, else let it go on."""
    while True:
        for store in checkpoints.glob("*/*/epoch-*/spark/state/*/*"):
            if _is_half_uploaded(store):
                jvm.suspend()
                if _is_half_uploaded(store):
                    passing("during snapshot upload")
                jvm.resume()
        time.sleep(0.001)


def _is_half_uploaded(store: Path) -> bool:
    """Whether the newest file of a snapshot is newer than the newest archive, which lists the files and comes last."""
    files, archives = (_newest(store.glob(pattern)) for pattern in ("SSTs/*.sst", "[0-9]*.zip"))
    return files > archives


def _newest(paths: Iterable[Path]) -> int:
    found = 0
    for path in paths:
        with suppress(FileNotFoundError):
            found = max(found, path.stat().st_mtime_ns)
    return found
