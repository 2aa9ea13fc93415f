"""One running query: its streaming DataFrame, its life, its errors, its speed."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from engine.connectors.admission import BatchLimit
from engine.connectors.blob_files import BlobFolder
from engine.connectors.packets import PACKET_DDL
from engine.connectors.postgres import connect
from engine.connectors.replay_reader import ReplayReader, can_replay, replay_feed
from engine.connectors.sink import Sink
from engine.errors import EngineError
from engine.plan.clock import held_feeds, needs_ticks
from engine.plan.model import Feed, Plan
from engine.spark.checkpoint import begin_run
from engine.spark.cluster import is_cluster, require_fit_workers
from engine.spark.failures import decoded, told_to_spark
from engine.spark.launch_state import Launch, open_state
from engine.spark.leftovers import remember_callback, sweep
from engine.spark.reports import spark_phases
from engine.spark.source import FORMAT, SPEC_OPTION, Clock, SourceSpec, start_positions
from engine.spark.stages import StageWork, StatePlace
from engine.spark.surroundings import Surroundings

REMEMBERED_BATCHES = 32
_WAITING = "Waiting for data to arrive"
"""What Spark says of a query that has looked and found nothing."""

log = structlog.stdlib.get_logger(__name__)

_STARTING = threading.Lock()
"""Queries start one after another: each brings Python processes up, and of twenty started at once some missed their time to call back."""


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch whose results are visible.

    Attributes:
        query: its name.
        epoch: the launch.
        batch_id: counted from 0 in each checkpoint, over all launches.
        rows: input records.
        began_ns: when Spark began to carry it out, by the wall clock.
        ended_ns: when its results were committed.
    """

    query: str
    epoch: int
    batch_id: int
    rows: int
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a query runs; none of it changes results.

    Attributes:
        trigger_ms: least time between the starts of two batches; 0: as fast as it goes.
        is_available_now: end when everything that is there at the start has been read.
        max_rows: bound of one batch.
        max_bytes: bound of one batch, as stored in the feeds.
        on_commit: told of each batch after its commit, in Spark's thread: quick, and raises nothing.
        on_first_commit: told once, in the same way.
        on_restoring: told now and then while a launch shares state out among another number of tasks: that it goes on.
    """

    trigger_ms: int = 0
    is_available_now: bool = False
    max_rows: int = 1_000_000
    max_bytes: int = 256 * 1024 * 1024
    on_commit: Callable[[CommittedBatch], None] | None = None
    on_first_commit: Callable[[], None] | None = None
    on_restoring: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The newest batch that Spark has reported.

    Attributes:
        batch_id: counted from 0 in each checkpoint, over all launches.
        rows: input records.
        duration_ms: from planning to Spark's commit.
    """

    batch_id: int
    rows: int
    duration_ms: int

    @property
    def rows_per_second(self) -> float:
        return self.rows * 1000 / max(self.duration_ms, 1)


class RunningQuery:
    """A launched query. Made by ``start``; methods may be called from any thread."""

    def __init__(self, query: StreamingQuery, commits: _Commits) -> None:
        self._query = query
        self._commits = commits
        commits.query = query
        self._is_stopping = False

    @classmethod
    def start(
        cls,
        spark: SparkSession,
        plan: Plan,
        query_id: UUID,
        checkpoint_id: UUID,
        epoch: int,
        checkpoint_dir: Path,
        dsn: str,
        options: RunOptions | None = None,
    ) -> RunningQuery:
        """Start a query. Its fence is taken (``claim_epoch``) and its output exists.

        Args:
            spark: the driver's session.
            plan: what it does.
            query_id: which query.
            checkpoint_id: names its state.
            epoch: this launch.
            checkpoint_dir: of the checkpoint.
            dsn: the database of feeds and results.
            options: how it runs.

        Raises:
            SourceUnavailable: a feed cannot be read now.
            StateCorrupt: the state is damaged or lacks files.
            StateNewer: a newer version wrote it.
            RepartitionPremature: the number of tasks was changed too early.
            ClusterBusy: the cluster gives no executor.
            WorkersUnfit: the cluster's workers have not what the driver has.
        """
        options = options or RunOptions()
        with connect(dsn, "slackwater-launch") as connection:
            launch = Launch(query_id, checkpoint_id, epoch, checkpoint_dir)
            state = open_state(spark, connection, plan, launch, lambda: start_positions(dsn, plan.inputs), options.on_restoring)
        plan = replace(plan, hash_seed=state.layout.hash_seed)
        scratch = begin_run(checkpoint_dir, epoch, state.first_batch)
        # Spark calls back in threads of its own: what the launch's thread has bound is taken along.
        bound = {"query": plan.query, "epoch": epoch} | structlog.contextvars.get_contextvars()
        sink = Sink(dsn, plan, query_id, checkpoint_id, epoch)
        aside = _blob_folder(spark, scratch)
        if aside is not None:
            aside.open()
        surroundings = _surroundings(spark, scratch)
        place = StatePlace(dsn, query_id, epoch, checkpoint_dir / state.layout.segments, state.first_batch)
        stages = tuple(StageWork(plan, stage.index, place, surroundings, aside) for stage in plan.stages)
        parallel = min(plan.tasks, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
        commits = _Commits(
            sink, _Stages(stages, parallel), log.bind(**bound), (plan.query, epoch), options, aside, state.first_batch
        )
        sweep(spark)
        with _STARTING:
            spec = SourceSpec(
                dsn,
                plan.inputs,
                plan.tasks,
                state.cursor,
                BatchLimit(options.max_rows, options.max_bytes),
                spark.sparkContext.defaultParallelism,
                Clock(query_id, held_feeds(plan)) if needs_ticks(plan) else None,
                plan.release,
                _replays(plan, query_id, dsn),
                surroundings,
                state.layout.generation,
                aside,
                stages,
            )
            packets = spark.readStream.format(FORMAT).option(SPEC_OPTION, spec.encoded()).load()
            writer = packets.writeStream.foreachBatch(commits.commit).outputMode("append").queryName(f"{plan.query}@{epoch}")
            writer = writer.option("checkpointLocation", str(scratch))
            if options.is_available_now:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=f"{options.trigger_ms} milliseconds")
            try:
                return cls(writer.start(), commits)
            except Exception as error:
                raise decoded(error) from error

    @property
    def is_active(self) -> bool:
        """It has neither failed nor ended."""
        return bool(self._query.isActive)

    @property
    def phase(self) -> Literal["preparing", "first_batch"] | None:
        """What it does before its first commit; None after that."""
        if self._commits.has_committed:
            return None
        status = self._query.status
        if status["isDataAvailable"]:
            return "first_batch"
        return None if status["message"] == _WAITING else "preparing"

    def error(self) -> EngineError | None:
        """Return why it ended; None while it runs, and after an orderly end."""
        if self._query.isActive:
            return None
        # Outside of a batch nobody else does: what failed may have been its planning.
        self._commits.close()
        if self._is_stopping:
            return None
        failure = self._commits.failure or self._query.exception()
        return None if failure is None else decoded(failure)

    def stop(self, timeout: float) -> bool:
        """Stop after the batch at hand is abandoned; returns whether it stopped within ``timeout`` seconds."""
        self._is_stopping = self._is_stopping or self.is_active
        stopper = threading.Thread(target=self._query.stop, daemon=True)
        stopper.start()
        stopper.join(timeout)
        if stopper.is_alive():
            return False
        self._commits.close()
        return True

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until it ended; returns whether it did. Does not raise: see ``error``."""
        with suppress(StreamingQueryException):
            self._query.awaitTermination(timeout)  # type: ignore[arg-type]  # fractions work
        return not self._query.isActive

    def progress(self) -> BatchProgress | None:
        """Return the newest batch that was reported, None before the first."""
        for report in reversed(self._query.recentProgress):
            rows = self._commits.rows(int(report["batchId"]))
            if rows is not None:
                return BatchProgress(
                    self._commits.first_batch + int(report["batchId"]), rows, int(report["durationMs"]["triggerExecution"])
                )
        return None


class _Stages:
    """The stages of a query, for the batches that Spark hands over."""

    def __init__(self, stages: Sequence[StageWork], parallel: int) -> None:
        self._stages = stages
        self._parallel = parallel

    def done(self, batch: DataFrame) -> DataFrame:
        """Return what the last stage makes of a batch. One that was read in one part comes with all stages done (``PacketReader.read``)."""
        if batch._jdf.queryExecution().toRdd().getNumPartitions() == 1:  # noqa: SLF001 - ``DataFrame.rdd`` would set a conversion up
            return batch
        for stage in self._stages:
            batch = batch.repartitionById(self._parallel, "task").mapInArrow(stage, PACKET_DDL)
        return batch


def _surroundings(spark: SparkSession, scratch: Path) -> Surroundings | None:
    """Return what workers elsewhere must have, which some of them have shown to; None where they are this process's own."""
    if not is_cluster(spark.sparkContext.master):
        return None
    surroundings = Surroundings.of_driver(scratch)
    require_fit_workers(spark.sparkContext, surroundings)
    return surroundings


def _blob_folder(spark: SparkSession, run: Path) -> BlobFolder | None:
    """Return where a launch's large blobs go; None where workers may be on other hosts."""
    if is_cluster(spark.sparkContext.master):
        return None
    scratch = Path(spark.conf.get("spark.local.dir") or "")
    return BlobFolder(scratch / "blobs" / run.parent.name / run.name)


def _replays(plan: Plan, query_id: UUID, dsn: str) -> ReplayReader | None:
    name = replay_feed(query_id)
    return ReplayReader(dsn, Feed(name, "log", name), plan) if can_replay(plan) else None


class _Commits:
    """The callback Spark hands each batch to. Remembers the failure itself: Spark only passes its text on.

    Attributes:
        query: whose batches these are, for its reports; not known before the first batch may have come.
        first_batch: number of the batch that Spark counts as 0.
    """

    def __init__(
        self,
        sink: Sink,
        stages: _Stages,
        logger: structlog.stdlib.BoundLogger,
        launch: tuple[str, int],
        options: RunOptions,
        aside: BlobFolder | None,
        first_batch: int,
    ) -> None:
        self.first_batch = first_batch
        self._aside = aside
        self.failure: BaseException | None = None
        self.has_committed = False
        self.query: StreamingQuery | None = None
        self._launch = launch
        self._on_commit, self._on_first_commit = options.on_commit, options.on_first_commit
        self._log = logger
        self._sink = sink
        self._stages = stages
        self._rows: deque[tuple[int, int]] = deque(maxlen=REMEMBERED_BATCHES)

    def commit(self, batch: DataFrame, batch_id: int) -> None:
        began_ns = time.time_ns()
        try:
            if not self.has_committed:
                remember_callback(batch.sparkSession)
            packets = self._stages.done(batch).toArrow()
            report = None if self.query is None else self.query.lastProgress  # one call to the JVM; recentProgress makes hundreds
            self._sink.commit(self.first_batch + batch_id, packets, spark_phases(report, batch_id))
            if self._aside is not None:
                self._aside.clear()
        except BaseException as error:  # noqa: BLE001 - told to Spark, short
            self.failure = error
            self.close()
            raise told_to_spark(error) from None
        is_first, self.has_committed = not self.has_committed, True
        if is_first and self._on_first_commit is not None:
            self._on_first_commit()
        rows = _rows_read(packets)
        self._rows.append((batch_id, rows))
        self._log.debug("batch_committed", batch_id=batch_id, rows=rows)
        if self._on_commit is not None:
            self._on_commit(CommittedBatch(*self._launch, self.first_batch + batch_id, rows, began_ns, time.time_ns()))

    def rows(self, batch_id: int) -> int | None:
        return next((rows for known, rows in tuple(self._rows) if known == batch_id), None)

    def close(self) -> None:
        self._sink.close()
        if self._aside is not None:
            self._aside.close()


def _rows_read(packets: pa.Table) -> int:
    """Add up what the batch's ``progress`` packets say."""
    progress = packets.filter(pc.equal(packets.column("kind"), "progress")).column("blob")
    reports: list[dict[str, Any]] = [json.loads(blob) for blob in progress.to_pylist()]
    return sum(int(report["rows"]) for report in reports)
