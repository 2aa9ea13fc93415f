"""A query's input: the packets of a batch's splits, in workers. ``engine.runtime.planning.batch_planner`` decides where batches end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from time import perf_counter
from uuid import UUID

from engine.commit.removed_records import Gap, removed_since_the_look
from engine.log.fetched import Fetched, LogSplit
from engine.plan.model import Input
from engine.processes.function_times import taken_function_ms
from engine.runtime.limits.watchdog import each_at_work, watch
from engine.runtime.planning.cursors import FeedInputs, feeds_of
from engine.runtime.planning.source_spec import SourceSpec, SplitGroup
from engine.sources.feeds import ReadRequest
from engine.sources.packets import BATCH_ID, Packet, encode_json


class PacketReader:
    """Reads splits, and does all stages of a batch that is read in one part."""

    def __init__(self, spec: SourceSpec, feeds: Sequence[FeedInputs]) -> None:
        self._spec = spec
        self._feeds = feeds

    @classmethod
    def of(cls, spec: SourceSpec) -> PacketReader:
        """Return the reader of a query's inputs, its replays included."""
        return cls(spec, feeds_of(spec))

    def at_work(self, batch_id: int) -> AbstractContextManager[None]:
        """Record that the work in a block is for this query (``engine.runtime.limits.watchdog``)."""
        return watch().at_work(self._spec.bounds, self._spec.run, batch_id)

    @property
    def query_id(self) -> UUID | None:
        """The query of its stages; None if it has no stages here."""
        return self._spec.stages[0].query_id if self._spec.stages else None

    @property
    def dsn(self) -> str:
        """Database of the log."""
        return self._spec.dsn

    def fetchable(self, group: SplitGroup) -> list[LogSplit]:
        """Return the part of a batch that can be asked for in advance."""
        readers = ((self._feeds[index][0], split) for index, split in group.splits)
        return [found for reader, split in readers if (found := reader.fetchable(split)) is not None]

    def done(self, group: SplitGroup, batch_id: int, fetched: Fetched | None = None) -> Iterator[Packet]:
        """Yield ``results`` within the bounds of the query's work; runs in a worker."""
        return each_at_work(self.results(group, batch_id, fetched), self._spec.bounds, self._spec.run, batch_id)

    def results(self, group: SplitGroup, batch_id: int, fetched: Fetched | None = None) -> Iterator[Packet]:
        """Yield the packets of a group of splits, or the stages' results if the group is the whole batch.

        Args:
            group: the splits.
            batch_id: counted per checkpoint, over all launches.
            fetched: prefetched from the database after the batch before; None: nothing.
        """
        if self._spec.surroundings is not None:
            self._spec.surroundings.require()
        packets = self._with_effort(self.read(group, fetched, batch_id), group)
        if group.is_whole:
            for stage in self._spec.stages:
                packets = stage.of_batch(batch_id, fetched).done(packets)
        elif self._spec.aside is not None:
            packets = self._spec.aside.laid_aside(packets)
        return packets

    def read(self, group: SplitGroup, fetched: Fetched | None = None, batch_id: int | None = None) -> Iterator[Packet]:
        """Yield the packets of a group of splits. See ``done``."""
        if group.end is not None:
            end = group.end if batch_id is None else {**group.end, BATCH_ID: batch_id}
            yield Packet.message("cursor", group.now_ms, end)
        if group.has_tick:
            readings = [
                (self._feeds[index][0].feed.name, number, held.read_to_ms, held.is_at_end)
                for (index, number), held in group.held.items()
            ]
            yield from self._ticks(readings, group, is_release=group.is_release)
        if group.cuts:
            yield self._counted("cut_inside_time", [(source, 1) for source in group.cuts], group)
        for source, gap in group.lost:
            yield self._counted("records_lost", [(source, gap.stop - gap.first)], group)
            yield self._passed(gap, group)
        for index, split in group.splits:
            reader, inputs = self._feeds[index]
            packets = reader.read(split, self._request(inputs, group, fetched))
            with removed_since_the_look():
                yield from self._with_progress(packets, group, index)

    @staticmethod
    def _with_effort(packets: Iterator[Packet], group: SplitGroup) -> Iterator[Packet]:
        """Pass packets on, and then say how long it took to read them, and to wait for Python functions meanwhile."""
        taken_function_ms()  # drops the time of a failed batch
        begun = perf_counter()
        yield from packets
        read_ms = round((perf_counter() - begun) * 1_000)
        effort = {"read_ms": read_ms, "function_ms": taken_function_ms(), "is_whole": group.is_whole}
        yield Packet.message("effort", group.now_ms, effort)

    def _request(self, inputs: Sequence[Input], group: SplitGroup, fetched: Fetched | None) -> ReadRequest:
        stages = self._spec.stages if group.is_whole else ()
        is_hashed_anew = bool(stages) and all(stage.has_own_hashes for stage in stages)
        return ReadRequest(inputs, group.now_ms, self._spec.tasks, fetched, bool(stages), is_hashed_anew)

    @staticmethod
    def _counted(reason: str, numbers: Sequence[tuple[Input, int]], group: SplitGroup) -> Packet:
        """Return the packet that counts events of a whole batch: its cuts inside one event time (P2), records that it leaves out."""
        counters = [[source.alias, reason, number] for source, number in numbers]
        stats = {"stage": 0, "task": 0, "buffered": {}, "counters": counters}
        return Packet.message("stats", group.now_ms, stats, source=numbers[0][0].index)

    @staticmethod
    def _passed(gap: Gap, group: SplitGroup) -> Packet:
        """Return the packet that moves a query's position past removed records."""
        progress = {
            "feed": gap.feed, "partition": int(gap.partition), "start_offset": gap.first, "end_offset": gap.stop,
            "rows": 0, "accepted": 0, "max_ts": None, "head": None,
        }  # fmt: skip
        return Packet(0, "progress", 0, int(gap.partition), gap.first, 0, None, None, group.now_ms, encode_json(progress))

    def _with_progress(self, packets: Iterator[Packet], group: SplitGroup, index: int) -> Iterator[Packet]:
        """Pass a split's packets on; report the progress of held feeds to every task."""
        for packet in packets:
            yield packet
            held = group.held.get((index, packet.partition)) if packet.kind == "progress" else None
            if held is not None and held.read_to_ms is None:
                feed, progress = self._feeds[index][0].feed, json.loads(packet.blob)
                max_ts = progress["head" if feed.is_derived else "max_ts"]
                yield from self._ticks([(feed.name, packet.partition, max_ts, held.is_at_end)], group)

    def _ticks(
        self, readings: Sequence[tuple[str, int, int | None, bool]], group: SplitGroup, *, is_release: bool = False
    ) -> Iterator[Packet]:
        content = {"awake_ms": group.awake_ms, "readings": readings, "is_release": is_release, "idle": group.idle}
        tick = Packet.message("tick", group.now_ms, content)  # encoded once for all tasks
        for task in range(self._spec.tasks):
            yield replace(tick, task=task)
