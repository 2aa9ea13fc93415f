"""A batch in the sink: its packets grouped by use. Pure."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import polars as pl

from engine.commit.staging import is_inline
from engine.commit.task_states import Place, TaskState
from engine.errors import BufferFull
from engine.frames.arrow_frames import decode_frame
from engine.frames.places import place_order
from engine.operators.tasks.order import LaneReading
from engine.operators.tasks.progress import PartitionProgress
from engine.operators.tasks.slowest import Lane
from engine.plan.model import Plan
from engine.sources.lane_times import decode_reading
from engine.sources.packets import BATCH_ID, Packet, stage_of

Json = dict[str, Any]


@dataclass(slots=True)
class GroupedPackets:
    """A batch's packets grouped by use.

    Attributes:
        changes: by the task's ordinal, with the columns of their causes.
        replayed: by the task's ordinal; they come after the changes.
        late: by the stage that judged them.
        earlier_ms: phases of the batch before that became known after its commit.
        states: of the tasks that had work.
        times: what the readers say of each split's lane, with its input and partition.
        awake_ms: see ``QueryTimes.at``.
        is_release: what an edit has made due goes behind the records (J11).
        held: how far the partitions are read that some operator waits for (J9).
        idle: the partitions that do not make time (T12).
        cursor: where the batch ends.
        planned_as: its number in the plan; None if it is unknown.
        emitted_bytes: size of what the tasks emitted.
        part_ms: time of reading and work in the one worker of a shared slot that did both; None: its slot is not shared.
        is_in_one_worker: one worker did all of it, its tasks one after another.
        read_ms: time of the slowest reader: they read at once.
        read_function_ms: how long readers waited for each Python function, each time that of the slowest one.
    """

    now_ms: int
    changes: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    replayed: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    opened: list[pl.DataFrame] = field(default_factory=list)
    late: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    rejects: list[tuple[Packet, pl.DataFrame]] = field(default_factory=list)
    progress: list[Json] = field(default_factory=list)
    stats: list[Json] = field(default_factory=list)
    earlier_ms: Mapping[str, int] = field(default_factory=dict)
    states: dict[Place, TaskState] = field(default_factory=dict)
    times: list[Packet] = field(default_factory=list)
    awake_ms: int | None = None
    is_release: bool = False
    held: list[PartitionProgress] = field(default_factory=list)
    idle: list[Lane] = field(default_factory=list)
    cursor: Json | None = None
    planned_as: int | None = None
    emitted_bytes: int = 0
    part_ms: int | None = None
    is_in_one_worker: bool = False
    read_ms: int = 0
    read_function_ms: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, packets: Sequence[Packet]) -> GroupedPackets:
        batch = cls(max((packet.now_ms for packet in packets), default=0))
        for packet in sorted(packets, key=lambda packet: (packet.task, packet.first_offset)):
            if packet.kind in ("data", "replayed", "opened", "late"):
                batch.emitted_bytes += len(packet.blob)
            match packet.kind:
                case "data":
                    batch.changes.setdefault(packet.partition, []).append(decode_frame(packet.blob))
                case "replayed":
                    batch.replayed.setdefault(packet.partition, []).append(decode_frame(packet.blob))
                case "opened":
                    batch.opened.append(decode_frame(packet.blob))
                case "late":
                    batch.late.setdefault(stage_of(packet.input), []).append(decode_frame(packet.blob))
                case "reject":
                    batch.rejects.append((packet, decode_frame(packet.blob)))
                case "progress":
                    batch.progress.append(json.loads(packet.blob))
                case "stats":
                    batch.stats.append(json.loads(packet.blob))
                case "state":
                    batch.states[stage_of(packet.input), packet.partition] = TaskState.decoded(packet.blob)
                case "cursor":
                    batch.cursor = json.loads(packet.blob)
                    batch.planned_as = batch.cursor.pop(BATCH_ID, None)
                case "effort":
                    batch.add_effort(json.loads(packet.blob))
                case "times" if packet.task == 0:
                    batch.times.append(packet)
                case "tick":
                    tick = json.loads(packet.blob)
                    batch.awake_ms = tick["awake_ms"]
                    batch.is_release |= tick.get("is_release", False)
                    batch.idle = [(feed, partition) for feed, partition in tick["idle"]]
                    batch.held += [PartitionProgress(*item) for item in tick["readings"] if packet.task == 0]
                case "times" | "replay" | "failed":
                    pass
        return batch

    def add_effort(self, effort: Json) -> None:
        """Take over the times of an ``effort`` packet."""
        self.part_ms = effort.get("part_ms", self.part_ms)
        self.is_in_one_worker |= effort.get("is_whole", self.part_ms is not None)
        self.read_ms = max(self.read_ms, effort.get("read_ms", 0))
        for name, ms in effort.get("function_ms", {}).items():
            self.read_function_ms[name] = max(self.read_function_ms.get(name, 0), ms)

    @property
    def rows(self) -> int:
        """Its input records."""
        return sum(int(part["rows"]) for part in self.progress)

    @property
    def cpu_ms(self) -> int:
        """CPU time of its tasks: on a busy machine their wall time is long."""
        return sum(int(stats.get("cpu_ms", 0)) for stats in self.stats)

    @property
    def is_small(self) -> bool:
        """Whether all of it can be sent without waiting for answers: COPY, used for larger batches, has to wait."""
        frames = [*chain.from_iterable((*self.changes.values(), *self.replayed.values())), *self.opened]
        return not self.late and is_inline(
            sum(frame.height for frame in frames), sum(int(frame.estimated_size()) for frame in frames)
        )

    def late_rows(self) -> pl.DataFrame:
        """Return the late rows in the order of their places, at one place by stage; at least one stage has some."""
        late = pl.concat([frame for stage in sorted(self.late) for frame in self.late[stage]])
        return late[place_order(late)]

    def process_ms(self) -> int:
        """Return the sum of the stages' times: each that of its slowest task, or in one worker that of its tasks together."""
        return self._wall_ms((stats["stage"], stats.get("work_ms", 0)) for stats in self.stats)

    def function_ms(self) -> dict[str, int]:
        """Return how long readers and then the stages waited for each Python function, counted as ``process_ms``."""
        names = sorted({name for stats in self.stats for name in stats.get("function_ms", ())} | set(self.read_function_ms))
        return {
            name: self.read_function_ms.get(name, 0)
            + self._wall_ms((stats["stage"], stats.get("function_ms", {}).get(name, 0)) for stats in self.stats)
            for name in names
        }

    def _wall_ms(self, tasks: Iterable[tuple[int, int]]) -> int:
        """Return the time that tasks took together, from pairs of stage and milliseconds: in one worker they run one after another."""
        if self.is_in_one_worker:
            return sum(ms for _, ms in tasks)
        slowest: dict[int, int] = {}
        for stage, ms in tasks:
            slowest[stage] = max(slowest.get(stage, 0), ms)
        return sum(slowest.values())

    def busiest(self) -> float | None:
        """Return the share of the busiest task in the work of all; None if fewer than two had work."""
        work: dict[int, int] = {}
        for stats in self.stats:
            work[stats["task"]] = work.get(stats["task"], 0) + stats.get("work_ms", 0)
        found = [ms for ms in work.values() if ms]
        return max(found) / sum(found) if len(found) > 1 else None

    def failure(self) -> BufferFull | None:
        """Return why the query must stop after this batch, or None."""
        found = next((stats["failure"] for stats in self.stats if stats.get("failure")), None)
        return None if found is None else BufferFull(found["detail"], found["position"])


def counters_of(batch: GroupedPackets, plan: Plan) -> defaultdict[tuple[str, str], int]:
    """Return (input or operator, reason) → number that the batch adds."""
    counters: defaultdict[tuple[str, str], int] = defaultdict(int)
    for stats in batch.stats:
        for name, reason, count in stats["counters"]:
            counters[name, reason] += count
    for packet, rejects in batch.rejects:
        for reason, count in rejects.group_by("reason").len().iter_rows():
            counters[plan.inputs[packet.input].alias, f"rejected_{reason}"] += count
    return counters


def readings_of(batch: GroupedPackets, plan: Plan) -> list[LaneReading]:
    """Return what the readers say of the lanes that the batch read."""
    return [decode_reading(plan.inputs[each.input].feed.name, each.partition, each.blob) for each in batch.times]


@dataclass(frozen=True, slots=True)
class Committed:
    """The description of a committed batch.

    Attributes:
        cpu_ms: CPU time of its tasks.
        emitted_bytes: size of what its tasks emitted.
        part_ms: see ``GroupedPackets``.
        process_ms: time of its tasks' work.
        busiest: share of its busiest task in the work of all; None if fewer than two had work.
        read_ms: time of reading, of the slowest reader.
        function_ms: how long its readers and tasks waited for each Python function.
    """

    rows: int
    cpu_ms: int
    cursor: Json | None
    emitted_bytes: int
    part_ms: int | None
    process_ms: int
    busiest: float | None
    read_ms: int
    function_ms: Mapping[str, int]

    @property
    def wall_ms(self) -> int:
        """Time of reading and of its tasks' work."""
        return self.read_ms + self.process_ms if self.part_ms is None else self.part_ms


class ClockReading(NamedTuple):
    """A moment, or the time between two: by the monotonic clock, and by the CPU time of this thread."""

    wall_ns: int
    cpu_ns: int

    @classmethod
    def now(cls) -> ClockReading:
        return cls(time.perf_counter_ns(), time.thread_time_ns())


def by_task(parts: Mapping[int, Sequence[pl.DataFrame]], tasks: int) -> list[pl.DataFrame]:
    """Return each task's rows, by ordinal; empty frames for tasks without rows."""
    found = {ordinal: pl.concat(frames) for ordinal, frames in parts.items()}
    if not found:
        return []
    empty = next(iter(found.values())).clear()
    return [found.get(ordinal, empty) for ordinal in range(max(tasks, *(each + 1 for each in found)))]
