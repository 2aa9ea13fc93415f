"""A launched query and the slot that runs its batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Literal

from pyspark.sql import SparkSession

from engine.plan.model import Plan
from engine.runtime.launches.launch_state import Launch
from engine.runtime.launches.launched_query import LaunchContext, LaunchedQuery
from engine.runtime.launches.run_options import RunOptions
from engine.runtime.worker_requirements import WorkerRequirements
from engine.spark.cluster import worker_requirements_of
from engine.spark.streams.slot import Slot

REST_STALLS: Final = 3
"""A query that stalls in a cycle is ended after one stall time, and the cycle with it. After this many stall times the wait ends: a cycle
that still runs makes progress for others, and nothing bounds its time."""


class RunningQuery(LaunchedQuery):
    """A launched query in a slot. Methods may be called from any thread.

    Attributes:
        slot: its current slot; None while it moves.
        moving: lock held while it moves from one slot to another.

    Args:
        parallel: how many Spark tasks do a stage of a large batch.
    """

    def __init__(self, context: LaunchContext, requirements: WorkerRequirements | None = None, parallel: int = 1) -> None:
        super().__init__(context, requirements)
        self.parallel = parallel
        self.slot: Slot | None = None
        self.moving = threading.Lock()
        self._left: tuple[Slot, int] | None = None
        """The shared slot that it left during a cycle, and how many cycles that slot had done."""

    @classmethod
    def prepare(
        cls, spark: SparkSession, plan: Plan, launch: Launch, dsn: str, options: RunOptions | None = None
    ) -> RunningQuery:
        """Open a launch for a slot to run; see ``LaunchContext.open``.

        Raises:
            ClusterBusy: the cluster gives no executor.
            WorkersUnfit: the cluster's workers differ from the driver.
            EngineError: see there.
        """
        context = LaunchContext.open(plan, launch, dsn, options or RunOptions())
        parallel = min(plan.tasks, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
        requirements = worker_requirements_of(spark.sparkContext, context.run if launch.elsewhere is None else None)
        return cls(context, requirements, parallel)

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

    @property
    def phase(self) -> Literal["preparing", "first_batch"] | None:
        """The phase before its first commit; None after it."""
        if self._has_committed or (self.slot is not None and self.slot.has_looked_at(self)):
            return None
        return "first_batch" if self.is_under_way else "preparing"

    def stop(self, timeout: float) -> bool:
        """Stop, and abandon the current batch unless its commit has begun. Return whether it stopped within ``timeout`` seconds.

        After that nothing of the batch is committed. A shared slot still finishes the cycle that the query was in: see ``await_rest``.
        """
        if not self.end_orderly(timeout):
            return False
        # From here on no slot can take it.
        if not self.moving.acquire(timeout=timeout):
            return False
        try:
            slot = self.slot
            if slot is None or not slot.is_shared:
                return slot is None or slot.stop(timeout)
            done = slot.cycles_done
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
        return slot.await_cycle(done, REST_STALLS * self._options.bounds.stall_s)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until its own slot ended; return whether it did. Does not raise: see ``error``."""
        assert self.slot is not None  # noqa: S101 - it was started
        is_over = self.slot.await_end(timeout)
        if is_over:
            self.fail(self.slot.failure)
        return is_over
