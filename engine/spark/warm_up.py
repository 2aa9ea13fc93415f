"""A query of one empty batch that runs Spark's whole path once, so that the first real query starts warm.

The first query of a JVM loads about 8,000 classes, RocksDB's library and the compilers of Spark's plans: 3 to 5 s of CPU, while its user
waits. An idle driver does this in advance. The same run, in a separate process at the lowest priority, makes the class archive
from which later JVMs start (``engine.spark.java``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from uuid import uuid4

import psutil
import pyarrow as pa
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from engine.processes.python_processes import import_environment, python_command
from engine.sources.packets import PACKET_DDL, Packet, packet_batch
from engine.spark.cluster import is_cluster
from engine.spark.java import can_archive, find_java, remove_stale
from engine.spark.session import SparkSettings, class_archive, session_of

FORMAT = "slackwater-warm-up"

BATCHES = 2
"""The second batch reads the state of the first."""

_TASKS = (0, 1)
_LOWEST_PRIORITY = 19
_ARCHIVING_MEMORY = "512m"
_ARCHIVING_BYTES = 2 << 30
"""The least free memory for making an archive: it saves a quarter of a start, which is not worth the last memory of a host."""

log = structlog.stdlib.get_logger(__name__)


class _Nothing(DataSource):
    """A source of ``BATCHES`` batches without records, built like the real one."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return PACKET_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        return _NothingReader()


class _NothingReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"batch": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's name
        return {"batch": min(start["batch"] + 1, BATCHES)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        yield packet_batch(Packet(task, "tick", 0, 0, 0, 0, None, None, 0, b"") for task in _TASKS)


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def warm_up(session: SparkSession) -> None:
    """Run the query in a driver's session, and remove its files."""
    checkpoint = mkdtemp(prefix="warm-up-", dir=session.conf.get("spark.local.dir"))
    session.dataSource.register(_Nothing)
    packets = session.readStream.format(FORMAT).load()
    packets = packets.repartitionById(1, "task").mapInArrow(_pass_on, PACKET_DDL)
    writer = packets.writeStream.foreachBatch(_take).outputMode("append").queryName(FORMAT)
    query = writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 milliseconds").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


def _take(batch: DataFrame, batch_id: int) -> None:  # noqa: ARG001
    batch.toArrow()


def make_class_archive(settings: SparkSettings) -> bool:
    """Make the class archive for later starts if none exists and the Java can; takes tens of seconds at the lowest priority.

    Returns:
        Whether an archive exists now.
    """
    java = find_java()
    archive = class_archive(settings, java)
    if archive.exists() or is_cluster(settings.master):
        return archive.exists()
    if not can_archive(java) or psutil.virtual_memory().available < _ARCHIVING_BYTES:
        return False
    remove_stale(archive, is_shared=settings.class_dir is not None)
    given = {"data_dir": str(settings.data_dir), "master": settings.master, "class_dir": str(archive.parent)}
    done = subprocess.run(
        python_command("engine.spark.warm_up"),
        input=json.dumps(given), text=True, capture_output=True, check=False, env=import_environment(),
    )  # fmt: skip
    if done.returncode != 0 or not archive.exists():
        log.warning("class_archive_not_made", exit_code=done.returncode, detail=done.stderr[-500:])
        return False
    log.info("class_archive_made", bytes=archive.stat().st_size)
    return True


def main() -> None:
    """Make the archive: run the warm-up in a JVM that writes its classes to a file when it ends."""
    os.nice(_LOWEST_PRIORITY)
    given = json.load(sys.stdin)
    settings = SparkSettings(Path(given["data_dir"]), given["master"], _ARCHIVING_MEMORY, class_dir=Path(given["class_dir"]))
    archive = class_archive(settings, find_java())
    draft = archive.with_suffix(f".draft-{uuid4().hex}")
    with session_of(replace(settings, archive_to=draft)) as session:
        warm_up(session)
    draft.replace(archive)


if __name__ == "__main__":
    main()
