"""One running query: its position, its life, its errors, its speed. It is a query of a slot (``engine.spark.streams.slot``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal
from uuid import UUID

import structlog
from pyspark.sql import SparkSession

from engine.commit.history.retained_commits import retain
from engine.commit.sink import Draft, Sink
from engine.commit.sink_batch import Committed
from engine.commit.task_states import Cursor
from engine.definition.sources.connector_list import DEFAULT
from engine.errors import EmissionTooLarge, EngineError
from engine.plan.clock import feeds_held_for, needs_ticks
from engine.plan.model import Feed, Plan
from engine.plan.result_feeds import result_feed
from engine.postgres.postgres import LAUNCHES, borrowed_connection
from engine.postgres.sink_link import SinkLink
from engine.runtime.blob_files import BlobFolder
from engine.runtime.checkpoint import begin_run, forget_planned, planned_batch, time_since_planned
from engine.runtime.failures import decoded
from engine.runtime.launch_state import Launch, LaunchState, open_state
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.limits.measurements import Measured
from engine.runtime.limits.watchdog import Ended, WorkBounds, take_note
from engine.runtime.planning.cursors import start_positions
from engine.runtime.planning.source_spec import Clock, SourceSpec
from engine.runtime.run_options import BatchProgress, CommittedBatch, RunOptions
from engine.runtime.stages import StageWork, StatePlace, WorkPlace
from engine.runtime.worker_requirements import WorkerRequirements
from engine.sources.log.replay_reader import ReplayReader, can_replay, replay_feed
from engine.sources.packets import Packet
from engine.spark.cluster import worker_requirements_of
from engine.spark.streams.slot import Slot
from engine.spark.streams.slot_query import OWN_EMITTED, SHARED_EMITTED, SHARED_LIMIT, SlotMode

REST_STALLS: Final = 3
"""A query that stalls in a cycle is ended after one stall time, and the cycle with it. After this many stall times the wait ends: a cycle
that still runs makes progress for others, and nothing bounds its time."""

log = structlog.stdlib.get_logger(__name__)


class RunningQuery:
    """A launched query: its plan, its position, its state of life. Methods may be called from any thread.

    Attributes:
        slot: its current slot; None while it moves.
        moving: lock held while it moves from one slot to another.
        on_weight: called after a commit with whether it is heavy.
        on_settled: called after each commit.
        on_failed: called once with the error that ended it.
        is_settled: it has committed something since this was set to false.

    Args:
        state: the state that it resumes from.
        dsn: the database of feeds and results.
        run: the launch's scratch directory.
        surroundings: requirements of workers on other hosts; None: workers are processes of this host.
        parallel: how many Spark tasks do a stage of a large batch.
    """

    def __init__(
        self,
        plan: Plan,
        launch: Launch,
        state: LaunchState,
        dsn: str,
        options: RunOptions,
        run: Path,
        surroundings: WorkerRequirements | None = None,
        parallel: int = 1,
    ) -> None:
        self.name = f"{plan.query}@{launch.epoch}"
        self.parallel = parallel
        self.slot: Slot | None = None
        self._plan, self._launch, self._dsn, self._options, self._run = plan, launch, dsn, options, run
        self._layout, self._surroundings = state.layout, surroundings
        self._cursor: Cursor = state.cursor
        self._next_batch = state.first_batch
        self._has_committed = False
        self._failure: BaseException | None = None
        self._is_over = False
        self._left: tuple[Slot, int] | None = None
        """The shared slot that it left during a cycle, and how many cycles that slot had done."""
        self._aside: BlobFolder | None = None
        self._is_overlapped = False
        self._progress: BatchProgress | None = None
        self._sink = Sink(dsn, plan, launch.query_id, launch.checkpoint_id, launch.epoch)
        self._sink.retaining = options.retaining
        self._committing = threading.Lock()
        self.moving = threading.Lock()
        self.on_weight: Callable[[RunningQuery, bool], None] | None = None
        self.on_settled: Callable[[], None] | None = None
        self.on_failed: Callable[[RunningQuery, BaseException], None] | None = None
        self.is_settled = True
        self._measured = Measured()
        self._ride = SlotMode.SHARED
        self._moves = -1
        self._is_resized = False
        self._is_put_off, self._times_put_off = False, 0
        # Spark calls back in threads of its own, so the context of the launch's thread is copied.
        bound = {"query": plan.query, "epoch": launch.epoch} | structlog.contextvars.get_contextvars()
        self._log = log.bind(**bound)

    @classmethod
    def prepare(
        cls, spark: SparkSession, plan: Plan, launch: Launch, dsn: str, options: RunOptions | None = None
    ) -> RunningQuery:
        """Find where a query resumes, for a slot to run it. Its launch holds the fence (``claim_epoch``), and its output exists.

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
            WorkersUnfit: the cluster's workers differ from the driver.
        """
        options = options or RunOptions()
        with borrowed_connection(dsn, LAUNCHES) as connection:

            def retain_launch() -> None:
                with connection.transaction(), connection.cursor() as cursor:
                    retain(cursor, launch.query_id, result_feed(plan.output), options.retaining, is_of_launch=True)

            start = partial(start_positions, dsn, plan.inputs)
            state = open_state(connection, plan, launch, start, retain_launch, options.on_restoring)
        plan = replace(plan, hash_seed=state.layout.hash_seed)
        run = begin_run(launch.directory, launch.epoch, state.first_batch)
        parallel = min(plan.tasks, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
        surroundings = worker_requirements_of(spark.sparkContext, run if launch.elsewhere is None else None)
        return cls(plan, launch, state, dsn, options, run, surroundings, parallel)

    @classmethod
    def start(cls, spark: SparkSession, plan: Plan, launch: Launch, dsn: str, options: RunOptions | None = None) -> RunningQuery:
        """Start a query in its own slot; see ``prepare``."""
        query = cls.prepare(spark, plan, launch, dsn, options)
        query.use_own_slot(spark, lambda _slot, error: query.fail(error))
        return query

    def use_own_slot(
        self, spark: SparkSession, on_end: Callable[[Slot, BaseException | None], None], *, is_trial: bool = False
    ) -> None:
        """Resume in a new slot of its own, and start the slot. See ``Slot``."""
        slot = Slot(spark, self._dsn, self.name, pool=None, is_trial=is_trial, on_end=on_end)
        slot.join(self)
        self.slot = slot
        slot.start(self._options.trigger_ms, is_available_now=self._options.is_available_now)

    def board(self, link: SinkLink, aside: BlobFolder | None, ride: SlotMode, cores: int) -> SourceSpec:
        """See ``Member``."""
        plan, query_id = self._plan, self._launch.query_id
        self._aside = aside
        forget_planned(self._run)  # left from its earlier slot, which no longer works for it
        if self._sink.link is not link:
            self._sink.link, self._moves = link, self._moves + 1
        self._ride, self._is_resized = ride, False
        is_postponed, self._is_put_off = self._is_put_off, False
        # The last commit says when work that waits on the clock is planned (``earliest_wake``).
        self._is_overlapped = ride is SlotMode.DEDICATED and not needs_ticks(plan)
        return SourceSpec(
            self._dsn,
            plan.inputs,
            plan.tasks,
            self._cursor,
            self._measured.size.within(self._limit),
            cores,
            Clock(query_id, feeds_held_for(plan)) if needs_ticks(plan) else None,
            plan.release,
            _replays(plan, query_id, self._dsn),
            self._surroundings,
            self._layout.generation,
            aside,
            self._works(),
            self._next_batch,
            self._run,
            self._bounds,
            is_postponed,
        )

    @property
    def _limit(self) -> BatchLimit:
        """Bound of a batch that emits little."""
        return BatchLimit(self._options.max_rows, self._options.max_bytes) if self._ride is SlotMode.DEDICATED else SHARED_LIMIT

    @property
    def _most_emitted(self) -> int:
        """Bytes that one batch may emit."""
        return OWN_EMITTED if self._ride is SlotMode.DEDICATED else SHARED_EMITTED

    @property
    def _bounds(self) -> WorkBounds:
        """The bounds of its work in its current slot."""
        bounds = self._options.bounds.alone if self._ride is SlotMode.DEDICATED else self._options.bounds
        return replace(bounds, emitted_bytes=None if self._measured.size.is_least else self._most_emitted)

    @property
    def is_overlapped(self) -> bool:
        """See ``Member``."""
        return self._is_overlapped

    def stages(self, batch_id: int) -> tuple[StageWork, ...]:
        """See ``Member``."""
        return tuple(work.of_batch(batch_id) for work in self._works())

    def _works(self) -> tuple[StageWork, ...]:
        launch = self._launch
        place = StatePlace(self._dsn, launch.query_id, launch.epoch, launch.segments, self._layout.segments, self._is_overlapped)
        at = WorkPlace(self._surroundings, self._aside, self._run, self._bounds)
        return tuple(StageWork(self._plan, stage.index, place, at) for stage in self._plan.stages)

    def commit(self, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> BaseException | None:
        """See ``Committing``."""
        with self._committing:
            if self._is_over:
                return None
            try:
                draft = self._drafted(packets, phases_ms)
                done = self._sink.commit_draft(draft)
            except BaseException as error:  # noqa: BLE001 - remembered
                self._end(error)
                return error
            self._note(draft, done, phases_ms, 1)
        return None

    @contextmanager
    def drafting(self, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> Iterator[Draft | None]:
        """See ``Committing``."""
        with self._committing:
            yield None if self._is_over else self._drafted(packets, phases_ms)

    def _drafted(self, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> Draft:
        draft = self._sink.drafted(self._next_batch, packets, phases_ms)
        self._sink.execution = self._execution(draft.contents())
        return draft

    def record_committed(self, draft: Draft, phases_ms: Mapping[str, int], together: int) -> BaseException | None:
        """See ``Committing``."""
        try:
            done = draft.committed()
        except EngineError as error:
            self._end(error)
            return error
        self._note(draft, done, phases_ms, together)
        return None

    def _note(self, draft: Draft, done: Committed, phases_ms: Mapping[str, int], together: int) -> None:
        """Record a committed batch; see ``Committing.record_committed``."""
        self._next_batch += 1
        self._cursor = done.cursor or self._cursor
        spent = draft.spent
        is_heavy = self._measured.after(done, spent, together, phases_ms)
        self._is_resized = self._measured.resized(done, self._limit, self._most_emitted)
        is_first, self._has_committed = not self._has_committed, True
        if is_first and self._options.on_first_commit is not None:
            self._options.on_first_commit()
        commit_ms = spent.wall_ns // together // 1_000_000
        self._progress = BatchProgress(draft.batch_id, done.rows, commit_ms + sum(phases_ms.values()))
        self._log.debug("batch_committed", batch_id=draft.batch_id, rows=done.rows)
        if self._options.on_commit is not None:
            ended_ns = time.time_ns()
            self._options.on_commit(
                CommittedBatch(
                    self._plan.query, self._launch.epoch, draft.batch_id, done.rows, ended_ns - spent.wall_ns, ended_ns
                )
            )
        if self.on_weight is not None:
            self.on_weight(self, is_heavy)
        self.is_settled = True
        if (told := self.on_settled) is not None:
            told()

    def _execution(self, batch: Committed) -> dict[str, Any]:
        """Return how the query runs and why, for the batch's commit to record."""
        return {
            "is_shared": self._ride is SlotMode.SHARED,
            "is_trial": self._ride is SlotMode.ISOLATED,
            "is_waiting": self._ride is SlotMode.SHARED and self._measured.is_heavy,
            "moves": self._moves,
            "deferred": self._times_put_off,
            **self._measured.as_status(batch),
        }

    @property
    def is_resized(self) -> bool:
        """See ``Member``."""
        return self._is_resized

    def postponed(self) -> None:
        """See ``Member``."""
        self._is_put_off = True
        self._times_put_off += 1
        self._log.debug("batch_put_off", batch_id=self._next_batch, times=self._times_put_off)

    def goes_on_after(self, error: BaseException) -> bool:
        """See ``Member``."""
        return isinstance(error, EmissionTooLarge) and self._is_made_smaller(is_for_good=False)

    def goes_on_with_less(self, ended: Ended | None) -> bool:
        """Whether to retry a batch with less input, because its process was ended for too much memory."""
        return ended is not None and ended.reason == "memory" and self._is_made_smaller(is_for_good=True)

    def _is_made_smaller(self, *, is_for_good: bool) -> bool:
        is_smaller = self._measured.size.refused(self._limit, is_for_good=is_for_good)
        if is_smaller:
            self._log.info("batch_made_smaller", batch_id=self._next_batch, max_rows=self._measured.size.rows)
        return is_smaller

    def fail(self, error: BaseException | None) -> None:
        """Record the end and its cause; the first cause counts."""
        with self._committing:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if not self._is_over:
            self._failure, self._is_over = error, True
            if error is not None and self.on_failed is not None:
                self.on_failed(self, error)

    @property
    def is_under_way(self) -> bool:
        """Whether a batch is planned and not committed."""
        planned = planned_batch(self._run)
        return planned is not None and planned >= self._next_batch

    def accusation(self) -> Ended | None:
        """Return, once, why a process that worked for it was ended; None: none was, or the reason was not recorded."""
        found = take_note(self._run)
        return found if found is not None and found.batch_id in (None, self._next_batch) else None

    def overdue(self) -> Ended | None:
        """Return how long the current batch has run, if that is longer than the stall time.

        The kernel can end a process that lets no other thread run; this leaves no note.
        """
        planned_s = time_since_planned(self._run)
        if planned_s is None or not self.is_under_way or planned_s < self._options.bounds.stall_s:
            return None
        return Ended("stalled", self._next_batch, round(planned_s, 1), self._options.bounds.stall_s)

    def is_light(self) -> bool:
        """Whether it has had little work for a while."""
        return self._measured.is_light()

    @property
    def query_id(self) -> UUID:
        """The query of this launch."""
        return self._launch.query_id

    @property
    def next_batch(self) -> int:
        """Number of the next batch to commit."""
        return self._next_batch

    @property
    def is_active(self) -> bool:
        """It has neither failed nor ended."""
        return not self._is_over

    @property
    def phase(self) -> Literal["preparing", "first_batch"] | None:
        """The phase before its first commit; None after it."""
        if self._has_committed or (self.slot is not None and self.slot.has_looked_at(self)):
            return None
        return "first_batch" if self.is_under_way else "preparing"

    def error(self) -> EngineError | None:
        """Return the error that ended it; None while it runs, and after an orderly end."""
        return None if self._failure is None else decoded(self._failure)

    def stop(self, timeout: float) -> bool:
        """Stop, and abandon the current batch unless its commit has begun. Return whether it stopped within ``timeout`` seconds.

        After that nothing of the batch is committed. A shared slot still finishes the cycle that the query was in: see ``await_rest``.
        """
        if not self._committing.acquire(timeout=timeout):
            return False
        try:
            self._end(None)
        finally:
            self._committing.release()
        # From here on no slot can take it.
        if not self.moving.acquire(timeout=timeout):
            return False
        try:
            slot = self.slot
            if slot is None or not slot.is_shared:
                return slot is None or slot.stop(timeout)
            done = slot.rounds_done
            if slot.leave(self) and self.is_under_way:
                self._left = slot, done
            return True
        finally:
            self.moving.release()

    def await_rest(self) -> bool:
        """Wait until no worker works for it. For a stopped query this is the end of its last cycle, or of its slot.

        Returns:
            False if this took more than ``REST_STALLS`` times the stall time of that cycle.
        """
        if self._left is None:
            return True
        slot, done = self._left
        return slot.await_round(done, REST_STALLS * self._options.bounds.stall_s)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until its own slot ended; return whether it did. Does not raise: see ``error``."""
        assert self.slot is not None  # noqa: S101 - it was started
        is_over = self.slot.await_end(timeout)
        if is_over:
            self.fail(self.slot.failure)
        return is_over

    def progress(self) -> BatchProgress | None:
        """Return the newest committed batch, None before the first."""
        return self._progress


def _replays(plan: Plan, query_id: UUID, dsn: str) -> ReplayReader | None:
    name = replay_feed(query_id)
    return ReplayReader(dsn, Feed(name, DEFAULT.name(), name), plan) if can_replay(plan) else None
