"""Reads a backlog as a query does, batch after batch, without Spark: through the source that plans batches and the readers of its feeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.frames.arrow_frames import decode_frame
from engine.frames.frames import HEAD, POS
from engine.operators.tasks.order import Slice, order_batch
from engine.plan.model import Input
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.batch_planner import BatchPlanner
from engine.runtime.planning.cursors import new_cursor, open_feeds, start_positions
from engine.runtime.planning.source_spec import SourceSpec, SplitGroup
from engine.runtime.source import PacketReader

Record = tuple[int, int, int]
"""Input, partition, offset."""


@dataclass
class Backlog:
    """What a query reads of what is there.

    Attributes:
        batches: how many it took.
        splits: how many splits were read.
        heads: of each record, as the workers gave it.
        times: of each record, likewise.
    """

    dsn: str
    inputs: tuple[Input, ...]
    max_rows: int
    max_bytes: int = 1 << 40
    batches: int = 0
    splits: int = 0
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
            order += self._ordered([item for group in groups for item in self._slices(reader, group)])
            offset = end
        return order

    def _slices(self, reader: PacketReader, group: SplitGroup) -> Iterator[Slice]:
        for packet in reader.read(group):
            if packet.kind == "data":
                source = self.inputs[packet.input]
                yield Slice(source.index, source.feed.name, packet.partition, decode_frame(packet.blob))

    def _ordered(self, slices: Sequence[Slice]) -> list[Record]:
        for item in slices:
            for offset, time, head in item.frame.select("_offset", "_ts", HEAD).iter_rows():
                record = (item.input_index, item.partition, offset)
                assert record not in self.heads, "no record comes twice"
                self.heads[record], self.times[record] = head, time
        marked = [
            Slice(item.input_index, item.feed_name, item.partition, item.frame.with_columns(at=pl.lit(item.partition)))
            for item in slices
        ]
        placed = order_batch(marked, self.inputs, 0).frames
        rows = [
            (position, (index, at, offset))
            for index, frame in placed.items()
            for position, at, offset in frame.select(POS, f"{self.inputs[index].alias}.at", "_offset").iter_rows()
        ]
        return [record for _, record in sorted(rows)]


def merged(lanes: Sequence[tuple[Sequence[int], npt.NDArray[np.int64]]]) -> list[tuple[int, int]]:
    """Return (lane, record) in the order of the k-way merge of whole lanes.

    Args:
        lanes: of each the records' numbers, and the event times that move its head, None being ``-1``.
    """
    heads = np.concatenate([np.maximum.accumulate(times) for _, times in lanes])
    numbers = [(lane, number) for lane, (own, _) in enumerate(lanes) for number in own]
    return [numbers[place] for place in np.argsort(heads, kind="stable").tolist()]
