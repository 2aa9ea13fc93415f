"""One stage of a query: gives its tasks their packets, runs them, and passes their state to the sink.

Only the sink commits state, with the results of the batch (``engine.commit.task_states``). A worker keeps the tasks that it built,
because it often gets the same ones again. Once per batch it asks the database whether they are at the committed state. It drops the state
of a failed batch, and state that another worker or a restart has replaced. A part that Spark repeats writes segments that nothing names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from uuid import UUID

import polars as pl
import pyarrow as pa

from engine.commit.task_states import TaskState, await_batch, load_changed
from engine.errors import EngineError
from engine.frames.arrow_frames import encode_frame
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.frames.slicing import slices
from engine.log.fetched import Fetched
from engine.operators.emission import Emitted, emitting_at_most
from engine.operators.operators import Emission
from engine.operators.tasks.order import BatchOrder, LaneReading
from engine.operators.tasks.progress import PartitionProgress
from engine.operators.tasks.query_times import QueryTimes
from engine.operators.tasks.slices import UPSTREAM, Slice
from engine.operators.tasks.slowest import Lane
from engine.operators.tasks.task import Replays, build_task
from engine.plan.model import Plan
from engine.postgres.postgres import shared_connection
from engine.processes.function_times import taken_function_ms
from engine.runtime.blob_files import BlobFolder
from engine.runtime.failures import marked
from engine.runtime.limits.watchdog import USUAL, WorkBounds, each_at_work
from engine.runtime.task_cache import BuiltTask, CachedTask, TaskId, task_cache
from engine.runtime.worker_requirements import WorkerRequirements
from engine.sources.lane_times import decode_reading
from engine.sources.packets import (
    PACKET_BYTES,
    Packet,
    PacketKind,
    Route,
    blob_of,
    data_packets,
    emitted_by,
    encode_json,
    frame_in,
    packet_batches,
    packets_in,
)
from engine.state.segments.in_manifest import ManifestSegmentStore
from engine.state.segments.ports import StateStore, task_folder

PACKET_ROWS = 262_144
"""Rows of a result per packet."""


@dataclass(frozen=True, slots=True)
class StatePlace:
    """Where a query's state is.

    Attributes:
        dsn: database of the manifests.
        query_id: the query.
        epoch: the launch.
        segments: of its checkpoint.
        folder: of the layout.
        is_overlapped: the commit of the batch before may still be running.
    """

    dsn: str
    query_id: UUID
    epoch: int
    segments: StateStore
    folder: str
    is_overlapped: bool = False


@dataclass(frozen=True, slots=True)
class WorkPlace:
    """Where a query's work is done, and its bounds.

    Attributes:
        surroundings: what a worker on a cluster compares itself with before it works.
        aside: folder for large blobs; None: they pass through Spark.
        run: the launch's scratch directory; None: nothing is recorded there.
        bounds: of its work in shared processes.
    """

    surroundings: WorkerRequirements | None = None
    aside: BlobFolder | None = None
    run: Path | None = None
    bounds: WorkBounds = USUAL


@dataclass(slots=True)
class _Batch:
    """A task's part of one batch.

    Attributes:
        times: what the readers say of the lanes, the same for each task.
    """

    slices: list[Slice] = field(default_factory=list)
    readings: list[PartitionProgress] = field(default_factory=list)
    times: list[Packet] = field(default_factory=list)
    now_ms: int | None = None
    awake_ms: int | None = None
    is_release: bool = False
    idle: list[Lane] = field(default_factory=list)
    replayed_records: list[pl.DataFrame] = field(default_factory=list)
    replayed_slices: list[Slice] = field(default_factory=list)

    @property
    def brings_only_time(self) -> bool:
        """Whether nothing came for the task itself."""
        return not (self.slices or self.is_release or self.replays)

    @property
    def replays(self) -> Replays | None:
        is_none = not self.replayed_records and not self.replayed_slices
        return None if is_none else Replays(self.replayed_records, self.replayed_slices)


class StageWork:
    """The work of Spark's workers for one stage of a plan; for one batch (``of_batch``) it is a function for ``mapInArrow``.

    Args:
        plan: the query's plan.
        stage_index: which stage.
        place: where its state is.
        at: where it is done.
    """

    def __init__(
        self,
        plan: Plan,
        stage_index: int,
        place: StatePlace,
        at: WorkPlace | None = None,
    ) -> None:
        self._plan = plan
        self._stage = plan.stages[stage_index]
        self._place = place
        self._at = at or WorkPlace()
        self._batch_id = 0
        self._fetched: Fetched | None = None
        self._emitted = Emitted()

    @property
    def _is_last(self) -> bool:
        return self._stage.index + 1 == len(self._plan.stages)

    @property
    def query_id(self) -> UUID:
        """The query of the stage."""
        return self._place.query_id

    @property
    def has_own_hashes(self) -> bool:
        """Whether one task does all the work, with its own hashes."""
        return self._plan.tasks == 1 and KeyHash(self._plan.hash_seed) != UNSEEDED

    def of_batch(self, batch_id: int, fetched: Fetched | None = None) -> StageWork:
        """Return the work for one batch.

        Args:
            batch_id: counted per checkpoint, over all launches.
            fetched: prefetched from the database after the batch before; None: nothing.
        """
        work = copy(self)
        work._batch_id, work._fetched = batch_id, fetched  # noqa: SLF001 - its own
        return work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle a partition's packets of one batch; packets for other stages and for the sink pass unchanged."""
        with marked():
            found = self.done(packet for batch in batches for packet in packets_in(batch))
            yield from packet_batches(each_at_work(found, self._at.bounds, self._at.run, self._batch_id))

    def done(self, packets: Iterator[Packet]) -> Iterator[Packet]:
        """Do the stage's work for the tasks that have packets; yield the results, and the packets of other stages."""
        taken_function_ms()  # drops the time of a failed batch; a batch's readers report theirs themselves
        tasks: dict[int, _Batch] = {}
        for packet in packets:
            if not self._is_own(packet):
                yield packet
                continue
            self._take(tasks.setdefault(packet.task, _Batch()), packet)
            if packet.kind == "tick" or (packet.kind == "times" and (packet.task == 0 or not self._is_last)):
                yield packet
        due = {ordinal: batch for ordinal, batch in sorted(tasks.items()) if batch.now_ms is not None}
        if not due:
            return
        if self._at.surroundings is not None:
            self._at.surroundings.require()
        with emitting_at_most(self._at.bounds.emitted_bytes):
            self._emitted = Emitted()
        first = next(iter(due.values()))
        built_tasks, times = self._at_state(list(due))
        assert first.now_ms is not None  # noqa: S101 - only such batches are due
        times = times.at(first.now_ms, first.awake_ms, first.readings, first.idle)
        order = times.order(self._plan, [self._reading(packet) for packet in first.times], is_release=first.is_release)
        for ordinal, (built, token) in built_tasks.items():
            # One that was just built says what waits in it: the definition may have been edited, or its keys shared out again.
            if token is not None and due[ordinal].brings_only_time and not built.task.is_due(order, times.now_ms):
                self._keep(ordinal, built, token)
                continue
            with emitting_at_most(self._at.bounds.emitted_bytes):
                made = self._work(ordinal, built, due[ordinal], order, times.now_ms)
            for packet in made:
                yield packet if self._at.aside is None else self._at.aside.lay_aside(packet)

    def _is_own(self, packet: Packet) -> bool:
        match packet.kind:
            case "tick" | "times":
                return True
            case "data" | "replayed":
                return self._reads(packet.input)
            case "replay":
                return packet.input == self._stage.index
            case _:
                return False

    def _take(self, batch: _Batch, packet: Packet) -> None:
        match packet.kind:
            case "times":
                batch.times.append(packet)
            case "tick":
                tick = json.loads(blob_of(packet))
                batch.awake_ms = tick["awake_ms"]
                batch.is_release = batch.is_release or tick.get("is_release", False)
                batch.idle = [(feed, partition) for feed, partition in tick["idle"]]
                batch.readings += [PartitionProgress(*item) for item in tick["readings"]]
            case "data":
                batch.slices.append(self._slice(packet))
            case "replay":
                batch.replayed_records.append(frame_in(packet))
            case _:
                batch.replayed_slices.append(self._slice(packet))
        batch.now_ms = max(batch.now_ms or 0, packet.now_ms)

    def _reads(self, source: int) -> bool:
        """Whether this stage reads the packets of this input."""
        if source < 0:
            return source == emitted_by(self._stage.index - 1)
        return self._plan.inputs[source].stage == self._stage.index

    def _slice(self, packet: Packet) -> Slice:
        if packet.input < 0:
            return Slice(UPSTREAM, "", packet.partition, frame_in(packet))
        return Slice(packet.input, self._plan.inputs[packet.input].feed.name, packet.partition, frame_in(packet))

    def _reading(self, packet: Packet) -> LaneReading:
        return decode_reading(self._plan.inputs[packet.input].feed.name, packet.partition, blob_of(packet))

    def _work(self, ordinal: int, built: BuiltTask, batch: _Batch, order: BatchOrder, now_ms: int) -> list[Packet]:
        begun, cpu_begun = perf_counter(), process_time()
        emission = built.task.process(
            batch.slices,
            order,
            now_ms,
            is_release=batch.is_release,
            replays=batch.replays,
        )
        state = TaskState.of(built.store.completed(built.task.snapshot()))
        self._keep(ordinal, built, state.token)
        work_ms, cpu_ms = round((perf_counter() - begun) * 1000), round((process_time() - cpu_begun) * 1000)
        packets = self._packets(ordinal, emission, now_ms, work_ms, cpu_ms)
        packets.append(self._packet("state", ordinal, now_ms, state.encoded()))
        return packets

    def _at_state(self, ordinals: Sequence[int]) -> tuple[dict[int, tuple[BuiltTask, str | None]], QueryTimes]:
        """Return tasks at their committed state, cached ones with its token and new ones with None; and the times of the query."""
        kept = {ordinal: task_cache.take(self._key(ordinal)) for ordinal in ordinals}
        changed, times = self._changed({ordinal: None if found is None else found.token for ordinal, found in kept.items()})
        tasks: dict[int, tuple[BuiltTask, str | None]] = {}
        for ordinal, found in kept.items():
            if found is None or ordinal in changed:
                tasks[ordinal] = self._built(ordinal, changed.get(ordinal)), None
            else:
                tasks[ordinal] = found.built, found.token
        return tasks, times

    def _changed(self, known: Mapping[int, str | None]) -> tuple[Mapping[int, TaskState | None], QueryTimes]:
        """Return the committed state of the tasks for which this process does not have it, by token, and the times of the query."""
        fetched = self._fetched
        # A prefetch before the batch was read may be older than the commit that this batch begins with.
        if fetched is not None and self.query_id in fetched.queries and not self._place.is_overlapped:
            committed = {ordinal: fetched.tokens.get((self.query_id, self._stage.index, ordinal)) for ordinal in known}
            known = {ordinal: token for ordinal, token in known.items() if token is None or token != committed[ordinal]}
            if not known:
                return {}, QueryTimes.of_snapshot(fetched.times.get(self.query_id))
        with shared_connection(self._place.dsn) as connection:
            if self._place.is_overlapped:
                await_batch(connection, self.query_id, self._place.epoch, self._batch_id - 1)
            states, times = load_changed(connection, self.query_id, self._stage.index, known)
            return states, QueryTimes.of_snapshot(times)

    def _keep(self, ordinal: int, built: BuiltTask, token: str) -> None:
        """Keep a task for the next batch."""
        memory_bytes = built.store.memory_bytes + built.behind.memory_bytes
        task_cache.put(self._key(ordinal), CachedTask(token, self._place.dsn, built, memory_bytes))

    def _key(self, ordinal: int) -> TaskId:
        return TaskId(self._place.query_id, self._place.epoch, self._stage.index, ordinal)

    def _built(self, ordinal: int, kept: TaskState | None) -> BuiltTask:
        task_cache.forget_older(self._place.query_id, self._place.epoch)
        state = None if kept is None else json.loads(kept.manifest)
        folder = task_folder(self._place.folder, self._stage.index, ordinal)
        behind = self._place.segments.task(folder, KeyHash(self._plan.hash_seed))
        store = ManifestSegmentStore(behind, state)
        return BuiltTask(build_task(self._stage, self._plan, state, store), store, behind)

    def _packets(self, ordinal: int, emission: Emission, now_ms: int, work_ms: int, cpu_ms: int) -> list[Packet]:
        packets = self._changes(ordinal, emission.changes.hstack(emission.causes) if self._is_last else emission.changes, now_ms)
        aside: list[tuple[PacketKind, pl.DataFrame]] = [("replayed", emission.replayed), ("opened", emission.opened)]
        for kind, frame in aside:
            if frame.height:
                packets += [replace(packet, kind=kind) for packet in self._changes(ordinal, frame, now_ms)]
        if emission.late.height:
            packets += self._numbered("late", list(slices(emission.late, PACKET_ROWS, PACKET_BYTES)), ordinal, now_ms)
        counters = [[name, reason, count] for (name, reason), count in sorted(emission.counters.items())]
        stats = {
            "stage": self._stage.index,
            "task": ordinal,
            "buffered": emission.buffered,
            "buffered_bytes": emission.buffered_bytes,
            "oldest_ms": emission.oldest_ms,
            "counters": counters,
            "wakes_at_ms": emission.wakes_at_ms,
            "dues": emission.dues,
            "work_ms": work_ms,
            "cpu_ms": cpu_ms,
            "function_ms": taken_function_ms(),
            "lateness": emission.lateness,
            "waiting": emission.waiting,
            "failure": _failure(emission.failure),
        }
        packets.append(self._packet("stats", ordinal, now_ms, encode_json(stats)))
        return packets

    def _changes(self, ordinal: int, changes: pl.DataFrame, now_ms: int) -> list[Packet]:
        """Pack what the task emitted: split by the next key's task for the next stage, unchanged for the sink."""
        parts = [part for part in slices(changes, PACKET_ROWS, PACKET_BYTES) if part.height]
        if not self._is_last:
            route = Route(emitted_by(self._stage.index), ordinal, now_ms)
            return [self._counted(packet) for part in parts for packet in data_packets(part, self._plan.tasks, route)]
        return self._numbered("data", parts, ordinal, now_ms)

    def _numbered(self, kind: PacketKind, parts: Sequence[pl.DataFrame], ordinal: int, now_ms: int) -> list[Packet]:
        """Pack parts of a frame for the sink, which joins them by the numbers of their first rows."""
        firsts = accumulate((part.height for part in parts), initial=0)
        return [
            self._counted(self._packet(kind, ordinal, now_ms, encode_frame(part), part.height, first))
            for first, part in zip(firsts, parts, strict=False)
        ]

    def _counted(self, packet: Packet) -> Packet:
        """Count emitted packets one after the other, so that packets beyond the bound are not made."""
        self._emitted.add(len(packet.blob))
        return packet

    def _packet(self, kind: PacketKind, ordinal: int, now_ms: int, blob: bytes, rows: int = 0, first: int = 0) -> Packet:
        return Packet(ordinal, kind, emitted_by(self._stage.index), ordinal, first, rows, None, None, now_ms, blob)


def _failure(failure: EngineError | None) -> dict[str, Any] | None:
    """Describe why a query must fail once the batch is committed."""
    if failure is None:
        return None
    return {"detail": str(failure), "position": getattr(failure, "position", 0)}
