"""What the reader of a split says of its lane to every task: where its head and the times of its relations rise (T1, T2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from engine.expressions.expressions import compile_scalar
from engine.expressions.pseudo_columns import EVENT_TIME
from engine.frames.clocks import BEFORE_ALL_TIME, I64, Rises
from engine.frames.compact_json import compact
from engine.frames.frames import OFFSET, OP, TS, with_series
from engine.log.marks import Marks
from engine.operators.tasks.order import LaneReading, rises
from engine.plan.model import Input
from engine.sources.feeds import NO_TS

COMPRESSED_BYTES = 1_024
"""From here on a message is compressed: rises of a fast stream then take a tenth of a byte per record."""


@dataclass(slots=True)
class _Rising:
    """A running maximum over the pieces of a split."""

    last: int | None = None
    offsets: list[I64] = field(default_factory=list)
    times: list[I64] = field(default_factory=list)

    def add(self, offsets: I64, times: I64) -> None:
        if not len(offsets):
            return
        found, risen = rises(offsets, times, self.last)
        if len(found):
            self.last = int(risen[-1])
            self.offsets.append(found)
            self.times.append(risen)

    def all(self) -> Rises:
        nothing = [np.empty(0, np.int64)]
        return np.concatenate(nothing + self.offsets), np.concatenate(nothing + self.times)


class LaneTimes:
    """Collects them over a split.

    Args:
        head: of what was read of the lane before; None: nothing is known.
        start: the offset where the split begins.
    """

    def __init__(self, head: int | None, start: int) -> None:
        self._head = _Rising()
        self._head.add(np.array([start]), np.array([NO_TS if head in (None, BEFORE_ALL_TIME) else head]))
        self._times: dict[int, _Rising] = {}
        self._firsts: dict[int, int] = {}
        self._marks: Marks | None = None

    @property
    def head(self) -> int | None:
        """The head at the end of what was added."""
        return None if self._head.last == NO_TS else self._head.last

    def add_times(self, offsets: I64, times: I64) -> None:
        """Add the event times that move the head, in the order of offsets."""
        self._head.add(offsets, times)

    def add_records(self, source_input: Input, accepted: pl.DataFrame) -> None:
        """Add a relation's records as an input of it reads them, at least one, before its condition leaves any out (T1a)."""
        offsets, times = accepted.get_column(OFFSET).to_numpy(), accepted.get_column(TS).to_numpy()
        self._firsts.setdefault(source_input.index, int(offsets[0]))
        if source_input.feed.is_derived:
            return
        is_out = _moves_nothing(source_input, accepted)
        if is_out is not None:
            offsets, times = offsets[~is_out], times[~is_out]
        self._times.setdefault(source_input.index, _Rising()).add(offsets, times)

    def add_marks(self, marks: Marks, inputs: Sequence[Input]) -> None:
        """Add the marks of a derived relation, which alone move its time for the inputs that read it (P14)."""
        self._marks = marks
        for each in inputs if len(marks.numbers) else ():
            self._times.setdefault(each.index, _Rising()).add(marks.numbers + np.arange(len(marks.numbers)), marks.times)

    def reading(self, feed_name: str, partition: int, end: int) -> LaneReading:
        """Return what the split says, up to the offset where it ends."""
        times = {index: self._of_input(index) for index in sorted(self._times.keys() | self._firsts.keys())}
        if self._marks is None:
            return LaneReading(feed_name, partition, end, self._head.all(), times)
        marks = self._marks
        offsets, heads = self._head.all()
        slots = np.append(
            offsets + np.searchsorted(marks.numbers, offsets, "right"), marks.numbers + np.arange(len(marks.numbers))
        )
        together = np.append(heads, marks.heads)
        order = np.lexsort((together, slots))
        return LaneReading(
            feed_name, partition, end + len(marks.numbers), rises(slots[order], together[order]), times, marks.numbers,
            dict.fromkeys(times, marks.wait_ms) if len(marks.numbers) else {},
        )  # fmt: skip

    def _of_input(self, index: int) -> Rises:
        """Return where the time of an input rises, behind the place of its first record."""
        offsets, times = self._times.get(index, _Rising()).all()
        if (first := self._firsts.get(index)) is None:
            return offsets, times
        earlier = 0 if self._marks is None else int(np.searchsorted(self._marks.numbers, first, "right"))
        return np.append(first + earlier, offsets), np.append(BEFORE_ALL_TIME, times)


def _moves_nothing(source_input: Input, accepted: pl.DataFrame) -> np.ndarray | None:
    """Say which records move no time: those without a value or the key of the first keyed operator; None: all move it."""
    masks = []
    if source_input.relation.kind == "stream":
        ops = accepted.get_column(OP).to_numpy()
        if ops.any():
            masks.append(ops != 0)
    if isinstance(source_input.start, int):
        masks.append(accepted.get_column(TS).to_numpy() < source_input.start)
    for text in source_input.time_key:
        column = _computed(text, source_input, accepted)
        if column.null_count():
            masks.append(column.is_null().to_numpy())
    return np.logical_or.reduce(masks) if masks else None


def _computed(text: str, source_input: Input, accepted: pl.DataFrame) -> pl.Series:
    timed = with_series(accepted, accepted.get_column(TS).alias(EVENT_TIME))
    return timed.select(compile_scalar(text, source_input.relation.readable).expr.alias("_")).to_series()


def encode_reading(reading: LaneReading) -> bytes:
    """Write a reading as bytes: a line of JSON, and the offsets and times as differences."""
    parts = [reading.marks, *reading.heads, *(array for index in sorted(reading.times) for array in reading.times[index])]
    payload = b"".join(np.diff(part, prepend=0).tobytes() for part in parts)
    sizes, inputs, size = [len(part) for part in parts], sorted(reading.times), len(payload)
    is_compressed = size >= COMPRESSED_BYTES
    waits = [reading.waits.get(index) for index in inputs]
    head = {"end": reading.end, "sizes": sizes, "inputs": inputs, "waits": waits, "bytes": size, "is_compressed": is_compressed}
    return compact(head).encode() + b"\n" + (pa.compress(payload, codec="zstd", asbytes=True) if is_compressed else payload)


def decode_reading(feed_name: str, partition: int, blob: bytes) -> LaneReading:
    """Read what ``encode_reading`` wrote."""
    line, _, payload = blob.partition(b"\n")
    head = json.loads(line)
    if head["is_compressed"]:
        payload = pa.decompress(payload, head["bytes"], codec="zstd", asbytes=True)
    numbers = np.frombuffer(payload, np.int64)
    parts = [np.cumsum(part) for part in np.split(numbers, np.cumsum(head["sizes"])[:-1])]
    marks, *others = parts
    pairs: Sequence[Rises] = list(zip(others[::2], others[1::2], strict=True))
    waits = {index: ms for index, ms in zip(head["inputs"], head["waits"], strict=True) if ms is not None}
    times = dict(zip(head["inputs"], pairs[1:], strict=True))
    return LaneReading(feed_name, partition, head["end"], pairs[0], times, marks, waits)
