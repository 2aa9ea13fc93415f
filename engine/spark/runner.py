"""One running query: where it stands, its life, its errors, its speed. It is a member of a carrier (``engine.spark.carrier``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from uuid import UUID

import structlog
from pyspark.sql import SparkSession

from engine.connectors.admission import BatchLimit
from engine.connectors.blob_files import BlobFolder
from engine.connectors.packets import Packet
from engine.connectors.postgres import connect
from engine.connectors.replay_reader import ReplayReader, can_replay, replay_feed
from engine.connectors.sink import Sink
from engine.connectors.sink_link import SinkLink
from engine.connectors.task_states import Cursor
from engine.errors import EngineError
from engine.plan.clock import held_feeds, needs_ticks
from engine.plan.model import Feed, Plan
from engine.spark.carrier import Carrier
from engine.spark.checkpoint import begin_run, planned_batch
from engine.spark.cluster import is_cluster, require_fit_workers
from engine.spark.failures import decoded
from engine.spark.launch_state import Launch, LaunchState, open_state
from engine.spark.source import Clock, SourceSpec, start_positions
from engine.spark.stages import StageWork, StatePlace
from engine.spark.surroundings import Surroundings
from engine.spark.weight import Weight

log = structlog.stdlib.get_logger(__name__)


ROUND_S = 10.0
"""How long a query that leaves a shared carrier waits for the end of the round that it is in; what comes of that is not committed."""


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch whose results are visible.

    Attributes:
        query: its name.
        epoch: the launch.
        batch_id: counted from 0 in each checkpoint, over all launches.
        rows: input records.
        began_ns: when its commit began, by the wall clock.
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
    """The newest batch.

    Attributes:
        batch_id: counted from 0 in each checkpoint, over all launches.
        rows: input records.
        duration_ms: how long its commit took, and of the round before everything else.
    """

    batch_id: int
    rows: int
    duration_ms: int

    @property
    def rows_per_second(self) -> float:
        return self.rows * 1000 / max(self.duration_ms, 1)


class RunningQuery:
    """A launched query: what it is, where it stands, what has become of it. Methods may be called from any thread.

    Attributes:
        carrier: that has it now; None while it moves.
        moving: held while it goes from one carrier to another.
        on_weight: told after a commit whether it is heavy.
        on_settled: told after each commit.

    Args:
        plan: what it does.
        launch: which launch.
        state: what it goes on from.
        dsn: the database of feeds and results.
        options: how it runs.
        run: the launch's scratch directory.
        surroundings: what workers elsewhere must have; None where they are this process's own.
        parallel: how many tasks of Spark do a stage of a large batch.
    """

    def __init__(
        self,
        plan: Plan,
        launch: Launch,
        state: LaunchState,
        dsn: str,
        options: RunOptions,
        run: Path,
        surroundings: Surroundings | None = None,
        parallel: int = 1,
    ) -> None:
        self.name = f"{plan.query}@{launch.epoch}"
        self.parallel = parallel
        self.carrier: Carrier | None = None
        self._plan, self._launch, self._dsn, self._options, self._run = plan, launch, dsn, options, run
        self._layout, self._surroundings = state.layout, surroundings
        self._cursor: Cursor = state.cursor
        self._next_batch = state.first_batch
        self._has_committed = False
        self._failure: BaseException | None = None
        self._is_over = False
        self._aside: BlobFolder | None = None
        self._progress: BatchProgress | None = None
        self._sink = Sink(dsn, plan, launch.query_id, launch.checkpoint_id, launch.epoch)
        self._committing = threading.Lock()
        self.moving = threading.Lock()
        self.on_weight: Callable[[RunningQuery, bool], None] | None = None
        self.on_settled: Callable[[], None] | None = None
        self._weight = Weight()
        # Spark calls back in threads of its own: what the launch's thread has bound is taken along.
        bound = {"query": plan.query, "epoch": launch.epoch} | structlog.contextvars.get_contextvars()
        self._log = log.bind(**bound)

    @classmethod
    def opened(cls, spark: SparkSession, plan: Plan, launch: Launch, dsn: str, options: RunOptions | None = None) -> RunningQuery:
        """Find out where a query goes on, for a carrier to take it. Its fence is taken (``claim_epoch``) and its output exists.

        Args:
            spark: the driver's session.
            plan: what it does.
            launch: which launch.
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
            state = open_state(spark, connection, plan, launch, lambda: start_positions(dsn, plan.inputs), options.on_restoring)
        plan = replace(plan, hash_seed=state.layout.hash_seed)
        run = begin_run(launch.directory, launch.epoch, state.first_batch)
        parallel = min(plan.tasks, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
        surroundings = _surroundings(spark, run if launch.elsewhere is None else None)
        return cls(plan, launch, state, dsn, options, run, surroundings, parallel)

    @classmethod
    def start(cls, spark: SparkSession, plan: Plan, launch: Launch, dsn: str, options: RunOptions | None = None) -> RunningQuery:
        """Start a query in a carrier of its own; see ``opened``."""
        query = cls.opened(spark, plan, launch, dsn, options)
        query.ride_alone(spark, lambda _carrier, error: query.fail(error))
        return query

    def ride_alone(self, spark: SparkSession, on_end: Callable[[Carrier, BaseException | None], None]) -> None:
        """Go on in a carrier of its own, and start that. See ``Carrier``."""
        carrier = Carrier(spark, self._dsn, self.name, pool=None, on_end=on_end)
        carrier.join(self)
        self.carrier = carrier
        carrier.start(self._options.trigger_ms, is_available_now=self._options.is_available_now)

    def board(self, link: SinkLink, aside: BlobFolder | None, limit: BatchLimit | None, cores: int) -> SourceSpec:
        """See ``Member``."""
        plan, query_id = self._plan, self._launch.query_id
        self._aside, self._sink.link = aside, link
        moves = 0 if self._sink.carrier is None else self._sink.carrier["moves"] + 1
        self._sink.carrier = {"is_shared": limit is not None, "moves": moves}
        return SourceSpec(
            self._dsn,
            plan.inputs,
            plan.tasks,
            self._cursor,
            limit or BatchLimit(self._options.max_rows, self._options.max_bytes),
            cores,
            Clock(query_id, held_feeds(plan)) if needs_ticks(plan) else None,
            plan.release,
            _replays(plan, query_id, self._dsn),
            self._surroundings,
            self._layout.generation,
            aside,
            self._works(),
            self._next_batch,
            self._run,
        )

    def stages(self) -> tuple[StageWork, ...]:
        """See ``Member``."""
        return self._works()

    def _works(self) -> tuple[StageWork, ...]:
        launch = self._launch
        place = StatePlace(self._dsn, launch.query_id, launch.epoch, launch.segments, self._layout.segments)
        return tuple(StageWork(self._plan, stage.index, place, self._surroundings, self._aside) for stage in self._plan.stages)

    def commit(self, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> BaseException | None:
        """See ``Member``."""
        began_ns, cpu_began_ns = time.time_ns(), time.thread_time_ns()
        with self._committing:
            if self._is_over:
                return None
            try:
                done = self._sink.commit(self._next_batch, packets, phases_ms)
            except BaseException as error:  # noqa: BLE001 - remembered
                self._end(error)
                return error
            batch_id, self._next_batch = self._next_batch, self._next_batch + 1
            self._cursor = done.cursor or self._cursor
        is_first, self._has_committed = not self._has_committed, True
        if is_first and self._options.on_first_commit is not None:
            self._options.on_first_commit()
        ended_ns = time.time_ns()
        self._progress = BatchProgress(batch_id, done.rows, (ended_ns - began_ns) // 1_000_000 + sum(phases_ms.values()))
        self._log.debug("batch_committed", batch_id=batch_id, rows=done.rows)
        if self._options.on_commit is not None:
            self._options.on_commit(CommittedBatch(self._plan.query, self._launch.epoch, batch_id, done.rows, began_ns, ended_ns))
        if self.on_weight is not None:
            work_ms = (time.thread_time_ns() - cpu_began_ns) // 1_000_000 + done.cpu_ms
            self.on_weight(self, self._weight.after(done.rows, work_ms, time.monotonic()))
        if self.on_settled is not None:
            self.on_settled()
        return None

    def fail(self, error: BaseException | None) -> None:
        """Take note of the end, and of what brought it about; what came first counts."""
        with self._committing:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if not self._is_over:
            self._failure, self._is_over = error, True

    @property
    def is_under_way(self) -> bool:
        """Whether a batch is planned that is not committed."""
        planned = planned_batch(self._launch.directory.parent, self._launch.checkpoint_id)
        return planned is not None and planned >= self._next_batch

    def is_light(self) -> bool:
        """Whether it has had little to do for a while."""
        return not self._weight.after(0, 0, time.monotonic())

    @property
    def next_batch(self) -> int:
        """Number of the batch that is to be committed next."""
        return self._next_batch

    @property
    def is_active(self) -> bool:
        """It has neither failed nor ended."""
        return not self._is_over

    @property
    def phase(self) -> Literal["preparing", "first_batch"] | None:
        """What it does before its first commit; None after that."""
        if self._has_committed or (self.carrier is not None and self.carrier.has_looked_at(self)):
            return None
        return "first_batch" if self.is_under_way else "preparing"

    def error(self) -> EngineError | None:
        """Return why it ended; None while it runs, and after an orderly end."""
        return None if self._failure is None else decoded(self._failure)

    def stop(self, timeout: float) -> bool:
        """Stop: the batch at hand, if it is not being committed, is abandoned. Returns whether it stopped within ``timeout`` seconds."""
        if not self._committing.acquire(timeout=timeout):
            return False
        try:
            self._end(None)
        finally:
            self._committing.release()
        # From here on no carrier takes it any more.
        if not self.moving.acquire(timeout=timeout):
            return False
        try:
            carrier = self.carrier
            if carrier is None or not carrier.is_shared:
                return carrier is None or carrier.stop(timeout)
            is_under_way = self.is_under_way
            carrier.leave(self)
            if is_under_way:  # a worker may still write segments, which is to be over before somebody removes their directory
                carrier.await_round(min(timeout, ROUND_S))
            return True
        finally:
            self.moving.release()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until a carrier of its own ended; returns whether it did. Does not raise: see ``error``."""
        assert self.carrier is not None  # noqa: S101 - it was started
        is_over = self.carrier.await_end(timeout)
        if is_over:
            self.fail(self.carrier.failure)
        return is_over

    def progress(self) -> BatchProgress | None:
        """Return the newest batch that was committed, None before the first."""
        return self._progress


def _surroundings(spark: SparkSession, scratch: Path | None) -> Surroundings | None:
    """Return what workers elsewhere must have, which some of them have shown to; None where they are this process's own.

    Args:
        spark: the driver's session.
        scratch: directory of the launch, beside its state; None: the state is in no directory.
    """
    if not is_cluster(spark.sparkContext.master):
        return None
    surroundings = Surroundings.of_driver(scratch)
    require_fit_workers(spark.sparkContext, surroundings)
    return surroundings


def _replays(plan: Plan, query_id: UUID, dsn: str) -> ReplayReader | None:
    name = replay_feed(query_id)
    return ReplayReader(dsn, Feed(name, "log", name), plan) if can_replay(plan) else None
