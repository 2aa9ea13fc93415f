"""How a launched query runs, and what it reports of its batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.commit.history.retained_commits import NOTHING_RETAINED, Retaining
from engine.runtime.limits.watchdog import USUAL, WorkBounds


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch whose results are visible.

    Attributes:
        epoch: the launch.
        batch_id: counted from 0 in each checkpoint, over all launches.
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
        trigger_ms: least time between the starts of two batches; 0: none.
        is_available_now: end when everything that exists at the start has been read.
        max_rows: bound of one batch.
        max_bytes: bound of one batch, as stored in the feeds.
        bounds: of its work in shared processes.
        retaining: which of its commits are kept as restore points.
        on_commit: called for each batch after its commit, in a thread of the executor; it is quick and raises nothing.
        on_first_commit: called once, in the same way.
        on_restoring: called repeatedly while a launch splits state among another number of tasks, as a sign of life.
    """

    trigger_ms: int = 0
    is_available_now: bool = False
    max_rows: int = 1_000_000
    max_bytes: int = 256 * 1024 * 1024
    bounds: WorkBounds = USUAL
    retaining: Retaining = NOTHING_RETAINED
    on_commit: Callable[[CommittedBatch], None] | None = None
    on_first_commit: Callable[[], None] | None = None
    on_restoring: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The newest batch.

    Attributes:
        batch_id: counted from 0 in each checkpoint, over all launches.
        duration_ms: the time of its commit, plus all other phases of the cycle before.
    """

    batch_id: int
    rows: int
    duration_ms: int
