"""The messages between a launch, its source and the tasks that read its batches. All of them pickle."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
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
    """For plans that wait on the wall clock: every batch brings every task a tick, and a due task causes a batch.

    Attributes:
        query_id: the query whose commits say when a task is due.
        held_feeds: the feeds whose progress is in the ticks (J9).
        slowest_after_ms: see ``Plan``: the ticks name the partitions that have been at their end for so long (T12); None: of none it is asked.
    """

    query_id: UUID
    held_feeds: frozenset[str]
    slowest_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """The settings of a query's source, in a file of the slot's folder (``engine.spark.streams.scheduling``).

    Attributes:
        dsn: database of the log.
        start: where the first batch of this launch begins.
        limit: bound of one batch.
        cores: how many splits are read at once; 0: the batch is read as a whole, because the query shares its slot.
        release: the newest request to release at once what is due (J11). If the cursor has another number, the next batch brings
            the request to every task.
        replays: reads late records that a user replays; None if the plan takes none.
        surroundings: what a worker on a cluster compares itself with before it reads.
        generation: of the tasks (``Layout.generation``). If the cursor has another one, the next batch brings every task a tick, and each
            reports the state that it got.
        aside: folder for large blobs; None: they pass through Spark.
        stages: the work on the packets of a batch that is read as a whole, in the process that reads it.
        next_batch: number of the first batch of this launch, counted per checkpoint.
        run: the launch's scratch directory (``engine.runtime.checkpoint``); None: nothing is recorded there.
        bounds: of its work in shared processes.
        is_postponed: a cycle has postponed its first batch, so this batch is among the first of the next cycle.
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
    is_postponed: bool = False

    def encoded(self) -> bytes:
        return pickle.dumps(self)

    @classmethod
    def decoded(cls, written: bytes) -> SourceSpec:
        spec = pickle.loads(written)  # noqa: S301 - written by our own driver
        assert isinstance(spec, cls)  # noqa: S101
        return spec


@dataclass(frozen=True, slots=True)
class HoldProgress:
    """How far a batch reads a partition for which an operator holds (J9).

    Attributes:
        is_at_end: the batch reads it to its end, and no records are on their way to it.
        read_to_ms: for a derived feed, how far its producer's sources have been read (P5); None: as far as the batch's records show.
    """

    is_at_end: bool
    read_to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SplitGroup:
    """The part of a query's batch that one Spark task reads, at the batch's wall clock.

    Attributes:
        splits: with the index of their feed.
        held: (index of a held feed, partition) → its progress, for the tasks.
        has_tick: it also makes the batch's ticks.
        is_release: the ticks release what is due.
        awake_ms: see ``Task.process``.
        cuts: inputs whose partition ends inside one event time, for the counter.
        end: where the batch ends, in one of its groups; None in the others.
        is_whole: it is all of the batch.
        lost: removed records that the batch leaves out, with an input that would have read them.
        idle: partitions that do not make time, for the tasks (T12).
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
    idle: tuple[tuple[str, int], ...] = ()


GROUP_WEIGHT = 4 << 20
"""One Spark task reads at least about this many bytes: its fixed cost is 15 ms, reading 4 MB takes 40 ms. A large batch gets as many tasks
as can work at once, which read split after split; further tasks would only add their fixed costs."""

Weighed = tuple[int, int, Split]
"""A split with its weight in bytes and the index of its feed."""


def grouped(weighed: Sequence[Weighed], cores: int) -> list[list[tuple[int, Split]]]:
    """Put splits into groups: few for a small batch, one for each core for a large one, heaviest splits first."""
    if not weighed:
        return []
    wanted = ceil(sum(weight for weight, _, _ in weighed) / GROUP_WEIGHT)
    number = min(len(weighed), wanted, cores)
    groups: list[list[tuple[int, Split]]] = [[] for _ in range(number)]
    loads = [0] * number
    for weight, index, split in sorted(weighed, key=lambda item: -item[0]):
        lightest = loads.index(min(loads))
        loads[lightest] += weight
        groups[lightest].append((index, split))
    return groups
