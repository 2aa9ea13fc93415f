"""What a query's source is told with a launch, and what it tells the tasks that read its batches. All of it pickles."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from engine.commit.removed_records import Gap
from engine.commit.task_states import Cursor
from engine.plan.model import Input
from engine.runtime.blob_files import BlobFolder
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.limits.watchdog import USUAL, WorkBounds
from engine.runtime.stages import StageWork
from engine.runtime.worker_requirements import WorkerRequirements
from engine.sources.feeds import Split
from engine.sources.log.replay_reader import ReplayReader


@dataclass(frozen=True, slots=True)
class Clock:
    """For plans that wait on the wall clock: every batch brings every task a tick, and one is made when a task is due.

    Attributes:
        query_id: whose commits say when a task is due.
        held_feeds: the feeds whose progress the ticks tell (J9).
    """

    query_id: UUID
    held_feeds: frozenset[str]


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What the source must know; stands in a file of the slot's folder (``engine.spark.streams.scheduling``).

    Attributes:
        dsn: database of the log.
        inputs: the plan's inputs.
        tasks: number of the query's tasks.
        start: where the first batch of this launch begins.
        limit: bound of one batch.
        cores: how many splits are read at once; 0: it is read as a whole, beside other queries.
        clock: what the tasks are told beside records.
        release: the newest request to let go at once what is due (J11). Where the cursor has another number, the next batch brings
            it to every task.
        replays: reads late records that are asked for again; None where the plan takes none.
        surroundings: what a worker on a cluster compares itself with before it reads.
        generation: of the tasks (``Layout.generation``). Where the cursor has another one, the next batch brings every task a tick: each
            then tells of what it has taken over.
        aside: where large blobs go; None: through Spark.
        stages: what is done with the packets of a batch that is read as a whole, right where it is read.
        next_batch: number of the first batch of this launch, counted per checkpoint.
        run: the launch's scratch directory (``engine.runtime.checkpoint``); None: nothing is noted there.
        bounds: what it may take of the processes that it shares.
        is_put_off: its first batch is one that a round has put off, so it is among the first of the next one.
    """

    dsn: str
    inputs: tuple[Input, ...]
    tasks: int
    start: Cursor
    limit: BatchLimit
    cores: int
    clock: Clock | None = None
    release: int = 0
    replays: ReplayReader | None = None
    surroundings: WorkerRequirements | None = None
    generation: int = 0
    aside: BlobFolder | None = None
    stages: tuple[StageWork, ...] = ()
    next_batch: int = 0
    run: Path | None = None
    bounds: WorkBounds = USUAL
    is_put_off: bool = False

    def encoded(self) -> bytes:
        return pickle.dumps(self)

    @classmethod
    def decoded(cls, written: bytes) -> SourceSpec:
        spec = pickle.loads(written)  # noqa: S301 - written by our own driver
        assert isinstance(spec, cls)  # noqa: S101
        return spec


@dataclass(frozen=True, slots=True)
class HoldProgress:
    """How far a partition is read that some operator holds for (J9).

    Attributes:
        is_at_end: the batch reads it to its end, and nothing is on its way to it.
        read_to_ms: of a derived feed: how far its producer's sources have been read (P5); None: as far as the batch's records tell.
    """

    is_at_end: bool
    read_to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SplitGroup:
    """What one Spark task reads of a query, at the batch's wall clock.

    Attributes:
        splits: with the index of their feed.
        held: of the feeds that are held for: (index of the feed, partition) → what the tasks are told of it.
        has_tick: it also makes the batch's ticks.
        is_release: which let go what is due.
        awake_ms: see ``Task.process``.
        cuts: inputs of whose partitions one ends inside one event time, to be counted.
        end: where the batch ends, told by one of its groups; None for the others.
        is_whole: it is all of the batch.
        lost: what the batch leaves out, since it is gone, with an input that would have read it.
    """

    splits: tuple[tuple[int, Split], ...]
    now_ms: int
    held: Mapping[tuple[int, int], HoldProgress]
    has_tick: bool
    awake_ms: int
    is_release: bool = False
    cuts: tuple[Input, ...] = ()
    end: Cursor | None = None
    is_whole: bool = False
    lost: tuple[tuple[Input, Gap], ...] = ()
