"""Reads a backlog as a query does, batch after batch, without Spark: through the source that plans batches and the readers of its feeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.frames.arrow_frames import decode_frame
from engine.frames.frames import POS
from engine.operators.tasks.order import BatchOrder
from engine.operators.tasks.slices import Slice, placed
from engine.plan.model import Input
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.batch_planner import BatchPlanner
from engine.runtime.planning.cursors import new_cursor, open_feeds, start_positions
from engine.runtime.planning.source_spec import SourceSpec
from engine.runtime.source import PacketReader
from engine.sources.lane_times import decode_reading
from engine.sources.packets import Packet
from tests.batch_times import plan_reading

Record = tuple[int, int, int]
"""Input, partition, offset."""


@dataclass
class Backlog:
    """What a query reads of what is there.

    Attributes:
        batches: how many it took.
        splits: how many splits were read.
        next_position: behind the records read.
        heads: of each record, as all tasks know it.
        times: of each record, likewise.
    """

    dsn: str
    inputs: tuple[Input, ...]
    max_rows: int
    max_bytes: int = 1 << 40
    batches: int = 0
    splits: int = 0
    next_position: int = 0
    heads: dict[Record, int] = field(default_factory=dict)
    times: dict[Record, int] = field(default_factory=dict)

    def read(self) -> list[Record]:
        """Return all records in the order in which a query with one task handles them."""
        limit = BatchLimit(self.max_rows, self.max_bytes)
        spec = SourceSpec(self.dsn, self.inputs, 1, new_cursor(start_positions(self.dsn, self.inputs), 0, 0), limit, 2)
        feeds = open_feeds(self.dsn, self.inputs)
        planner, reader = BatchPlanner(spec, feeds), PacketReader(spec, feeds)
        offset = planner.start
        order: list[Record] = []
        while (end := planner.next_cursor(offset)) is not offset:
            groups = planner.groups(offset, end)
            self.batches, self.splits = self.batches + 1, self.splits + sum(len(group.splits) for group in groups)
            order += self._ordered([packet for group in groups for packet in reader.read(group)])
            offset = end
        return order

    def _ordered(self, packets: Sequence[Packet]) -> list[Record]:
        """Return the records of a batch in order; note their heads and times."""
        feeds = [each.feed.name for each in self.inputs]
        readings = [decode_reading(feeds[each.input], each.partition, each.blob) for each in packets if each.kind == "times"]
        batch = BatchOrder.of(plan_reading(self.inputs), readings, self.next_position, {}, 0)
        self.next_position = batch.end
        found = []
        for index, partition, frame in self._parts(packets):
            (own,) = placed([Slice(index, feeds[index], partition, frame)], self.inputs, batch).values()
            heads = batch.heads(own.get_column(POS).to_numpy()).tolist()
            for (position, offset, time), head in zip(own.select(POS, "_offset", "_ts").iter_rows(), heads, strict=True):
                record = (index, partition, offset)
                assert record not in self.heads, "no record comes twice"
                self.heads[record], self.times[record] = head, time
                found.append((position, record))
        return [record for _, record in sorted(found)]

    def _parts(self, packets: Sequence[Packet]) -> list[tuple[int, int, pl.DataFrame]]:
        return [(each.input, each.partition, decode_frame(each.blob)) for each in packets if each.kind == "data"]


def merged(lanes: Sequence[tuple[Sequence[int], npt.NDArray[np.int64]]]) -> list[tuple[int, int]]:
    """Return (lane, record) in the order of the k-way merge of whole lanes.

    Args:
        lanes: of each the records' numbers, and the event times that move its head, None being ``-1``.
    """
    heads = np.concatenate([np.maximum.accumulate(times) for _, times in lanes])
    numbers = [(lane, number) for lane, (own, _) in enumerate(lanes) for number in own]
    return [numbers[place] for place in np.argsort(heads, kind="stable").tolist()]
