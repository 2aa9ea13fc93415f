"""The stateful step: gives a task its packets, lets it work, keeps its state.

A task's manifest lives in Spark's state store and is the commit point; the segments it names are files that were synced before. A
worker keeps the tasks it built, for it often gets the same ones again; what it keeps counts only while its manifest equals the one in
the state store, so a failed batch, another worker's turn or a restart can never make it use the wrong state.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from time import perf_counter
from typing import Any

import polars as pl
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from engine.connectors.blob_files import BlobFolder
from engine.connectors.packets import (
    PACKET_BYTES,
    PACKET_SCHEMA,
    Packet,
    PacketKind,
    Route,
    blob_of,
    data_packets,
    decode_frame,
    emitted_by,
    encode_frame,
    encode_json,
)
from engine.connectors.slicing import slices
from engine.core.frames import Emission
from engine.core.hashing import KeyHash
from engine.core.order import UPSTREAM, Slice
from engine.core.progress import Reading
from engine.core.task import Replays, Task, build_task
from engine.errors import EngineError
from engine.plan.model import Plan
from engine.spark.checkpoint import MIN_BATCHES_TO_RETAIN
from engine.spark.failures import marked
from engine.spark.repartition import MANIFEST, seed_of
from engine.spark.surroundings import Surroundings
from engine.state.files import FileSegmentStore
from engine.state.ports import named_segments

MANIFEST_DDL = "manifest string"

KEPT_TASKS = 64
"""Built tasks kept per worker process. One holds its newest segments in memory: of a busy join about 10 MB."""

PACKET_ROWS = 262_144
"""Rows of a result per packet."""

_FIELDS = tuple(PACKET_SCHEMA.names)
_PacketRow = Row(*_FIELDS)

_kept: OrderedDict[tuple[str, int, int], tuple[str, Task, FileSegmentStore]] = OrderedDict()


@dataclass(slots=True)
class _Batch:
    """A task's part of one batch."""

    slices: list[Slice]
    readings: list[Reading]
    now_ms: int | None = None
    awake_ms: int | None = None
    is_upstream_active: bool = False
    is_release: bool = False
    replayed_records: list[pl.DataFrame] = field(default_factory=list)
    replayed_slices: list[Slice] = field(default_factory=list)

    @property
    def replays(self) -> Replays | None:
        is_none = not self.replayed_records and not self.replayed_slices
        return None if is_none else Replays(self.replayed_records, self.replayed_slices)


class StageProcessor(StatefulProcessor):
    """Runs one stage of a plan for every task id that Spark groups the packets by.

    Args:
        plan: the query's plan.
        stage_index: which stage.
        tasks: task ids by ordinal.
        segments: folder of this launch's segments.
        surroundings: what a worker on a cluster compares itself with before it works.
        aside: where large blobs go; None: through Spark.
    """

    def __init__(
        self,
        plan: Plan,
        stage_index: int,
        tasks: tuple[int, ...],
        segments: Path,
        surroundings: Surroundings | None = None,
        aside: BlobFolder | None = None,
    ) -> None:
        self._plan = plan
        self._stage = plan.stages[stage_index]
        self._tasks = tasks
        self._segments = segments
        self._surroundings = surroundings
        self._aside = aside

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState(MANIFEST, MANIFEST_DDL)

    def handleInputRows(  # type: ignore[override]  # noqa: N802 - Spark's name; of its two row types ours is the plain one
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[Row]:
        """Handle a task's packets of one batch; those of other stages and those for the sink pass untouched."""
        batch = _Batch([], [])
        for row in rows:
            if row.kind == "active" and row.input == emitted_by(self._stage.index - 1):
                batch.is_upstream_active = True
            elif row.kind == "tick":
                tick = json.loads(blob_of(row))
                batch.awake_ms = tick["awake_ms"]
                batch.is_release = batch.is_release or tick.get("is_release", False)
                batch.readings += [Reading(*item) for item in tick["readings"]]
                yield row
            elif row.kind == "data" and self._reads(row.input):
                batch.slices.append(self._slice(row))
            elif row.kind == "replay" and row.input == self._stage.index:
                batch.replayed_records.append(decode_frame(blob_of(row)))
            elif row.kind == "replayed" and self._reads(row.input):
                batch.replayed_slices.append(self._slice(row))
            else:
                yield row
                continue
            batch.now_ms = max(batch.now_ms or 0, row.now_ms)
        if batch.now_ms is not None:
            with marked():
                for made in self._work(self._tasks.index(key[0]), batch, batch.now_ms):
                    packet = made if self._aside is None else self._aside.lay_aside(made)
                    yield _PacketRow(*(getattr(packet, name) for name in _FIELDS))

    def close(self) -> None:
        """Do nothing: what is open is kept for the next batch."""

    def _reads(self, source: int) -> bool:
        """Whether this stage reads what a packet of this input holds."""
        if source < 0:
            return source == emitted_by(self._stage.index - 1)
        return self._plan.inputs[source].stage == self._stage.index

    def _slice(self, row: Row) -> Slice:
        if row.input < 0:
            return Slice(UPSTREAM, "", row.partition, decode_frame(blob_of(row)))
        return Slice(row.input, self._plan.inputs[row.input].feed.name, row.partition, decode_frame(blob_of(row)))

    def _work(self, ordinal: int, batch: _Batch, now_ms: int) -> list[Packet]:
        if self._surroundings is not None:
            self._surroundings.require()
        stored = self._state.get()
        manifest: str | None = None if stored is None else stored[0]
        place = (str(self._segments), self._stage.index, ordinal)
        task, store = self._task(place, manifest, _batch_id())
        begun = perf_counter()
        emission = task.process(
            batch.slices,
            now_ms,
            batch.readings,
            batch.awake_ms,
            is_upstream_active=batch.is_upstream_active,
            is_release=batch.is_release,
            replays=batch.replays,
        )
        after = json.dumps(task.snapshot(), separators=(",", ":"))
        self._state.update((after,))
        _keep(place, after, task, store)
        return self._packets(ordinal, emission, now_ms, round((perf_counter() - begun) * 1000))

    def _task(self, place: tuple[str, int, int], manifest: str | None, batch_id: int) -> tuple[Task, FileSegmentStore]:
        """Take the kept task if it is at ``manifest``, else build one and remove what failed attempts left."""
        kept = _kept.pop(place, None)
        if kept is not None and kept[0] == manifest:
            kept[2].begin(batch_id)
            return kept[1], kept[2]
        state = seed_of(self._segments, place[1], place[2]) if manifest is None else json.loads(manifest)
        root = self._segments / str(self._stage.index) / str(place[2])
        store = FileSegmentStore(root, MIN_BATCHES_TO_RETAIN, hashing=KeyHash(self._plan.hash_seed))
        store.begin(batch_id)
        store.sweep(named_segments(state))
        return build_task(self._stage, self._plan, state, store), store

    def _packets(self, ordinal: int, emission: Emission, now_ms: int, work_ms: int) -> list[Packet]:
        is_last = self._stage.index + 1 == len(self._plan.stages)
        packets = self._changes(ordinal, emission.changes.hstack(emission.causes) if is_last else emission.changes, now_ms)
        packets += [replace(packet, kind="replayed") for packet in self._changes(ordinal, emission.replayed, now_ms)]
        packets += [replace(packet, kind="opened") for packet in self._changes(ordinal, emission.opened, now_ms)]
        if emission.is_active and self._plan.idle_after_ms is not None and not is_last:
            # T10: a task of the next stage is silent only while all tasks of this one are.
            source = emitted_by(self._stage.index)
            packets += [Packet(task, "active", source, ordinal, 0, 0, None, None, now_ms, b"") for task in self._tasks]
        if emission.late.height:
            packets += self._numbered("late", list(slices(emission.late, PACKET_ROWS, PACKET_BYTES)), ordinal, now_ms)
        counters = [[name, reason, count] for (name, reason), count in sorted(emission.counters.items())]
        stats = {
            "stage": self._stage.index,
            "task": ordinal,
            "clocks": emission.clocks,
            "buffered": emission.buffered,
            "buffered_bytes": emission.buffered_bytes,
            "oldest_ms": emission.oldest_ms,
            "counters": counters,
            "wakes_at_ms": emission.wakes_at_ms,
            "work_ms": work_ms,
            "lateness": emission.lateness,
            "waiting": emission.waiting,
            "failure": _failure(emission.failure),
        }
        packets.append(self._packet("stats", ordinal, now_ms, encode_json(stats)))
        return packets

    def _changes(self, ordinal: int, changes: pl.DataFrame, now_ms: int) -> list[Packet]:
        """Pack what the task emitted: for the next stage by the next key's task, for the sink as it is."""
        parts = [part for part in slices(changes, PACKET_ROWS, PACKET_BYTES) if part.height]
        if self._stage.index + 1 < len(self._plan.stages):
            route = Route(emitted_by(self._stage.index), ordinal, now_ms)
            return [packet for part in parts for packet in data_packets(part, self._tasks, route)]
        return self._numbered("data", parts, ordinal, now_ms)

    def _numbered(self, kind: PacketKind, parts: Sequence[pl.DataFrame], ordinal: int, now_ms: int) -> list[Packet]:
        """Pack parts of a frame for the sink, which puts them together by the numbers of their first rows."""
        firsts = accumulate((part.height for part in parts), initial=0)
        return [
            self._packet(kind, ordinal, now_ms, encode_frame(part), part.height, first)
            for first, part in zip(firsts, parts, strict=False)
        ]

    def _packet(self, kind: PacketKind, ordinal: int, now_ms: int, blob: bytes, rows: int = 0, first: int = 0) -> Packet:
        return Packet(self._tasks[ordinal], kind, emitted_by(self._stage.index), ordinal, first, rows, None, None, now_ms, blob)


def _failure(failure: EngineError | None) -> dict[str, Any] | None:
    """Describe why a query must fail once the batch is committed."""
    if failure is None:
        return None
    return {"detail": str(failure), "position": getattr(failure, "position", 0)}


def _batch_id() -> int:
    """Return the batch Spark is working on, counted from 0 in each checkpoint."""
    context = TaskContext.get()
    assert context is not None  # noqa: S101 - we are in a task
    return int(context.getLocalProperty("streaming.sql.batchId") or 0)


def _keep(place: tuple[str, int, int], manifest: str, task: Task, store: FileSegmentStore) -> None:
    """Keep a task; forget the oldest beyond the bound, and those of launches that are over.

    A launch's folder goes with its query or has the next launch's name. What is mapped of it would hold its disk space.
    """
    for folder in {kept for kept, _, _ in _kept if kept != place[0] and not Path(kept).exists()}:
        for gone in [each for each in _kept if each[0] == folder]:
            del _kept[gone]
    _kept[place] = (manifest, task, store)
    while len(_kept) > KEPT_TASKS:
        _kept.popitem(last=False)
