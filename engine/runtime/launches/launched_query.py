"""A launched query: where its next batch begins, how large it may be, what is committed, why it ended. An executor runs its batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog

from engine.commit.history.retained_commits import retain
from engine.commit.sink import Draft, Sink
from engine.commit.sink_batch import Committed
from engine.commit.task_states import Cursor
from engine.definition.sources.connector_list import DEFAULT
from engine.errors import EmissionTooLarge, EngineError
from engine.plan.catalog import result_feed
from engine.plan.model import Feed, Plan, feeds_held_for, needs_ticks
from engine.postgres.postgres import LAUNCHES, SinkLink, borrowed_connection
from engine.runtime.blob_files import BlobFolder
from engine.runtime.checkpoint import begin_run, forget_planned, planned_batch, time_since_planned
from engine.runtime.failures import decoded
from engine.runtime.launches.launch_state import Launch, LaunchState, open_state
from engine.runtime.launches.run_options import BatchProgress, CommittedBatch, RunOptions
from engine.runtime.limits.batch_size import OWN_EMITTED, SHARED_EMITTED, SHARED_LIMIT, BatchLimit, ExecutionMode
from engine.runtime.limits.measurements import Measured
from engine.runtime.limits.watchdog import Ended, WorkBounds, read_end
from engine.runtime.planning.cursors import start_positions
from engine.runtime.planning.source_spec import Clock, SourceSpec
from engine.runtime.stages import StageWork, StatePlace, WorkPlace
from engine.runtime.worker_requirements import WorkerRequirements
from engine.sources.log.replay_reader import ReplayReader, can_replay, replay_feed
from engine.sources.packets import Packet

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """A launch whose state is open.

    Attributes:
        plan: with the hash seed of the state.
        state: the state that it resumes from.
        run: the launch's scratch directory.
    """

    plan: Plan
    launch: Launch
    state: LaunchState
    dsn: str
    options: RunOptions
    run: Path

    @classmethod
    def open(cls, plan: Plan, launch: Launch, dsn: str, options: RunOptions) -> LaunchContext:
        """Find where a query resumes. Its launch holds the fence (``claim_epoch``), and its output exists.

        Raises:
            SourceUnavailable: a feed cannot be read now.
            StateCorrupt: the state is damaged or lacks files.
            StateNewer: a newer version wrote it.
        """
        with borrowed_connection(dsn, LAUNCHES) as connection:

            def retain_launch() -> None:
                with connection.transaction(), connection.cursor() as cursor:
                    retain(cursor, launch.query_id, result_feed(plan.output), options.retaining, is_of_launch=True)

            start = partial(start_positions, dsn, plan.inputs)
            state = open_state(connection, plan, launch, start, retain_launch, options.on_restoring)
        run = begin_run(launch.directory, launch.epoch, state.first_batch)
        return cls(replace(plan, hash_seed=state.layout.hash_seed), launch, state, dsn, options, run)


class LaunchedQuery:
    """A launched query: its plan, its position, whether it has ended. Methods may be called from any thread.

    Attributes:
        on_load: called after a commit with whether the query is heavy.
        after_commit: called after each commit.
        on_failed: called once with the error that ended it.
        next_batch: number of the next batch to commit.
        is_overlapped: a batch may be read while the one before it is committed.
        is_resized: its next batch has another bound than the bound at ``resume``.
        is_settled: it has committed something since this was set to false.

    Args:
        context: its launch, with the state that it resumes from.
        requirements: of workers on other hosts; None: workers are processes of this host.
    """

    def __init__(self, context: LaunchContext, requirements: WorkerRequirements | None = None) -> None:
        plan, launch = context.plan, context.launch
        self.name = f"{plan.query}@{launch.epoch}"
        self._plan, self._launch, self._dsn, self._options, self._scratch = (
            plan,
            launch,
            context.dsn,
            context.options,
            context.run,
        )
        self._layout, self._requirements = context.state.layout, requirements
        self._cursor: Cursor = context.state.cursor
        self.next_batch = context.state.first_batch
        self._has_committed = False
        self._failure: BaseException | None = None
        self._is_over = False
        self._blobs: BlobFolder | None = None
        self.is_overlapped = False
        self._progress: BatchProgress | None = None
        self._sink = Sink(context.dsn, plan, launch.query_id, launch.checkpoint_id, launch.epoch)
        self._sink.retaining = context.options.retaining
        self._committing = threading.Lock()
        self.on_load: Callable[[bool], None] | None = None
        self.after_commit: Callable[[], None] | None = None
        self.on_failed: Callable[[BaseException], None] | None = None
        self.is_settled = True
        self._measured = Measured()
        self._mode = ExecutionMode.SHARED
        self._moves = -1
        self.is_resized = False
        self._is_postponed, self._times_postponed = False, 0
        # Commits run in other threads, so the context of the launch's thread is copied.
        bound = {"query": plan.query, "epoch": launch.epoch} | structlog.contextvars.get_contextvars()
        self._log = log.bind(**bound)

    def resume(self, link: SinkLink, blobs: BlobFolder | None, mode: ExecutionMode, cores: int) -> SourceSpec:
        """Return what to plan and to do from the last commit on.

        Args:
            link: for the commits of its batches.
            blobs: folder for large blobs; None: they pass through the executor.
            mode: how its batches run.
            cores: see ``SourceSpec``.
        """
        plan, query_id = self._plan, self._launch.query_id
        self._blobs = blobs
        forget_planned(self._scratch)  # planned by the previous slot, which has stopped
        if self._sink.link is not link:
            self._sink.link, self._moves = link, self._moves + 1
        self._mode, self.is_resized = mode, False
        is_postponed, self._is_postponed = self._is_postponed, False
        # With work that waits on the clock, the next plan depends on the last commit (``earliest_wake``), so nothing is read ahead.
        self.is_overlapped = mode is ExecutionMode.DEDICATED and not needs_ticks(plan)
        return SourceSpec(
            self._dsn,
            plan.inputs,
            plan.tasks,
            self._cursor,
            self._measured.size.within(self._limit),
            cores,
            Clock(query_id, feeds_held_for(plan), plan.slowest_after_ms) if needs_ticks(plan) else None,
            plan.release,
            _replays(plan, query_id, self._dsn),
            self._requirements,
            self._layout.generation,
            blobs,
            self._works(),
            self.next_batch,
            self._scratch,
            self._bounds,
            is_postponed,
        )

    @property
    def _limit(self) -> BatchLimit:
        """Bound of a batch that emits little."""
        if self._mode is ExecutionMode.DEDICATED:
            return BatchLimit(self._options.max_rows, self._options.max_bytes)
        return SHARED_LIMIT

    @property
    def _most_emitted(self) -> int:
        """Bytes that one batch may emit in a shared slot, and each task of it in a dedicated one."""
        return OWN_EMITTED if self._mode is ExecutionMode.DEDICATED else SHARED_EMITTED

    @property
    def _bounds(self) -> WorkBounds:
        """The bounds of its work in its current slot."""
        bounds = self._options.bounds.alone if self._mode is ExecutionMode.DEDICATED else self._options.bounds
        return replace(bounds, emitted_bytes=None if self._measured.size.is_least else self._most_emitted)

    def stages(self, batch_id: int) -> tuple[StageWork, ...]:
        """Return the work of its stages in a batch."""
        return tuple(work.of_batch(batch_id) for work in self._works())

    def _works(self) -> tuple[StageWork, ...]:
        launch = self._launch
        place = StatePlace(self._dsn, launch.query_id, launch.epoch, launch.segments, self._layout.segments, self.is_overlapped)
        at = WorkPlace(self._requirements, self._blobs, self._scratch, self._bounds)
        return tuple(StageWork(self._plan, stage.index, place, at) for stage in self._plan.stages)

    def commit(self, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> BaseException | None:
        with self._committing:
            if self._is_over:
                return None
            try:
                draft = self._drafted(packets, phases_ms)
                done = self._sink.commit_draft(draft)
            except BaseException as error:  # noqa: BLE001 - remembered
                self._end(error)
                return error
            self._record(draft, done, phases_ms, 1)
        return None

    @contextmanager
    def drafting(self, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> Iterator[Draft | None]:
        with self._committing:
            yield None if self._is_over else self._drafted(packets, phases_ms)

    def _drafted(self, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> Draft:
        draft = self._sink.drafted(self.next_batch, packets, phases_ms)
        self._sink.execution = self._execution(draft.contents())
        return draft

    def record_committed(self, draft: Draft, phases_ms: Mapping[str, int], together: int) -> BaseException | None:
        try:
            done = draft.committed()
        except EngineError as error:
            self._end(error)
            return error
        self._record(draft, done, phases_ms, together)
        return None

    def _record(self, draft: Draft, done: Committed, phases_ms: Mapping[str, int], together: int) -> None:
        """Record a committed batch; see ``Committing.record_committed``."""
        self.next_batch += 1
        self._cursor = done.cursor or self._cursor
        spent = draft.spent
        is_heavy = self._measured.after(done, spent, together, phases_ms)
        self.is_resized = self._measured.resized(done, self._limit, self._most_emitted)
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
        if self.on_load is not None:
            self.on_load(is_heavy)
        self.is_settled = True
        if (after_commit := self.after_commit) is not None:
            after_commit()

    def _execution(self, batch: Committed) -> dict[str, Any]:
        """Return how the query runs and why, for the batch's commit to record."""
        return {
            "is_shared": self._mode is ExecutionMode.SHARED,
            "is_trial": self._mode is ExecutionMode.ISOLATED,
            "is_waiting": self._mode is ExecutionMode.SHARED and self._measured.is_heavy,
            "moves": self._moves,
            "deferred": self._times_postponed,
            **self._measured.as_status(batch),
        }

    def postponed(self) -> None:
        """Record that its batch did not begin, because its cycle had emitted enough. The query then resumes once more."""
        self._is_postponed = True
        self._times_postponed += 1
        self._log.debug("batch_postponed", batch_id=self.next_batch, times=self._times_postponed)

    def shrink_to_retry(self, error: BaseException) -> bool:
        """Whether to retry a failed batch with less input. The query then resumes once more."""
        return isinstance(error, EmissionTooLarge) and self._shrink(is_for_good=False)

    def shrink_after_kill(self, ended: Ended | None) -> bool:
        """Whether to retry a batch with less input, because its process was ended for too much memory."""
        return ended is not None and ended.reason == "memory" and self._shrink(is_for_good=True)

    def _shrink(self, *, is_for_good: bool) -> bool:
        is_smaller = self._measured.size.refused(self._limit, is_for_good=is_for_good)
        if is_smaller:
            self._log.info("batch_made_smaller", batch_id=self.next_batch, max_rows=self._measured.size.rows)
        return is_smaller

    def fail(self, error: BaseException | None) -> None:
        """Record the end and its cause; the first cause counts."""
        with self._committing:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if not self._is_over:
            self._failure, self._is_over = error, True
            if error is not None and self.on_failed is not None:
                self.on_failed(error)

    def end_orderly(self, timeout_s: float) -> bool:
        """End without an error; a commit that has begun succeeds or fails first. Return False if it takes longer than the timeout."""
        if not self._committing.acquire(timeout=timeout_s):
            return False
        try:
            self._end(None)
        finally:
            self._committing.release()
        return True

    @property
    def is_under_way(self) -> bool:
        """Whether a batch is planned and not committed."""
        planned = planned_batch(self._scratch)
        return planned is not None and planned >= self.next_batch

    def kill_record(self) -> Ended | None:
        """Return, once, why a process that worked for it was ended; None: none was, or the reason was not recorded."""
        ended = read_end(self._scratch)
        return ended if ended is not None and ended.batch_id in (None, self.next_batch) else None

    def overdue(self) -> Ended | None:
        """Return how long the current batch has run, if that is longer than the stall time.

        The kernel may end a process whose threads are all blocked; then no record exists, so the time decides.
        """
        planned_s = time_since_planned(self._scratch)
        if planned_s is None or not self.is_under_way or planned_s < self._options.bounds.stall_s:
            return None
        return Ended("stalled", self.next_batch, round(planned_s, 1), self._options.bounds.stall_s)

    def is_light(self) -> bool:
        """Whether it has had little work for a while."""
        return self._measured.is_light()

    @property
    def query_id(self) -> UUID:
        """The query of this launch."""
        return self._launch.query_id

    @property
    def is_active(self) -> bool:
        """It has neither failed nor ended."""
        return not self._is_over

    def error(self) -> EngineError | None:
        """Return the error that ended it; None while it runs, and after an orderly end."""
        return None if self._failure is None else decoded(self._failure)

    def progress(self) -> BatchProgress | None:
        """Return the newest committed batch, None before the first."""
        return self._progress


def _replays(plan: Plan, query_id: UUID, dsn: str) -> ReplayReader | None:
    name = replay_feed(query_id)
    return ReplayReader(dsn, Feed(name, DEFAULT.name(), name), plan) if can_replay(plan) else None
