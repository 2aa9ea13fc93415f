"""T2: the total order in which a task handles the records of one batch, and the place of everything that it emits.

A *lane* is what has an order of its own: a partition of a source feed, or a whole derived feed, whose records are numbered across its
partitions (``engine.log.sequence``). The *head* of a record is the running maximum of event time in its lane: the merge of a batch's
lanes takes the smallest head first. What a stage emits stands in that merge where the record stands that caused it, in every later stage
and in the result (P6), so neither the number of tasks nor where a batch ends shows in the order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from engine.frames.causes import CAUSE_COLUMNS, PLACE, Causes
from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64
from engine.frames.frames import HEAD, OFFSET, POS, SERVICE_COLUMNS, TS, only, with_series
from engine.plan.model import Input

UPSTREAM: Final = -1
"""Stands for an input index: what the stage before emits."""


NO_LANE: Final = -1
"""The lane of what the clock caused. It stands before all records of its batch, or behind them."""

PARTITION_BITS: Final = 20
"""A lane is the declared index of its feed, and below it the partition."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive records of one input partition, as one packet brings them.

    Attributes:
        input_index: ``Input.index``; ``UPSTREAM`` for what the stage before emits.
        feed_name: ``Feed.name``; for upstream slices anything constant.
        partition: partition of the feed; for upstream slices the upstream task's ordinal.
        frame: canonical records (``_key_hash``, ``_ts``, ``_offset``, ``_op``, payload) in offset order, with their heads where more than
            one lane is read; upstream ones with the columns of their cause.
    """

    input_index: int
    feed_name: str
    partition: int
    frame: pl.DataFrame


@dataclass(frozen=True)
class Ordered:
    """A batch in order.

    Attributes:
        frames: input index → its records with ``_pos``, in order, those of its further parts among them. Inputs without records are absent.
        first_pos: position of the first record.
    """

    frames: Mapping[int, pl.DataFrame]
    first_pos: int
    _groups: Sequence[_Group]
    _order: I64

    def causes(self, positions: I64, clock_ms: int, *, is_before: bool = False) -> Causes:
        """Say where rows stand that were emitted at these positions.

        What the clock caused stands before the batch's records or behind them; of the former, what an earlier moment caused comes first.

        Args:
            positions: non-decreasing.
            clock_ms: the moment at which the clock stands.
            is_before: all that the clock causes here stands before the records.
        """
        index = positions - self.first_pos
        if len(index) and index.min() >= 0 and index.max() < len(self._order):
            return self._in_order.taken(index)
        is_caused = (index >= 0) & (index < len(self._order))
        found = np.where(is_caused, index, 0)
        own = self._in_order
        if len(own.heads) == 0:
            own = Causes(*(np.zeros(1, np.int64) for _ in CAUSE_COLUMNS))
        clock = np.where(is_before | (index < 0), BEFORE_ALL_TIME, AFTER_ALL_TIME)
        return Causes(
            np.where(is_caused, own.heads[found], clock),
            np.where(is_caused, own.lanes[found], NO_LANE),
            np.where(is_caused, own.places[found], clock_ms),
        )

    @cached_property
    def _in_order(self) -> Causes:
        causes = Causes.joined([group.causes for group in self._groups])
        return Causes(*(values[self._order] for values in causes))


def order_batch(slices: Sequence[Slice], inputs: Sequence[Input], first_pos: int) -> Ordered:
    """Put a batch's records into the task's total order.

    A k-way merge of the lanes by head, which equals a stable sort by head; ties by the declared index of the feed (the smallest
    index of the inputs that read it), partition, offset. Of a record that two inputs of a feed read, the one with the smaller index (the
    table) comes first. Emissions of the stage before stand behind the record that caused them; of one record by upstream task, each in the
    order of emission.

    Args:
        slices: at most one batch's records of one task, in any order of slices. Without heads those of the task's own records count.
        inputs: the plan's inputs, whose aliases qualify the payload columns; upstream columns keep their names.
        first_pos: position of the first record.
    """
    groups = _groups(slices, inputs)
    order = _order(groups)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(first_pos, first_pos + len(order))
    found: dict[int, list[pl.DataFrame]] = {}
    read_as = {item.index: item.read_as for item in inputs}
    start = 0
    for group in groups:
        stop = start + len(group.causes.heads)
        for input_index, frame in group.placed(places[start:stop]):
            found.setdefault(read_as.get(input_index, input_index), []).append(frame)
        start = stop
    aliases = {item.index: item.alias for item in inputs}
    frames = {index: _in_order(frames, aliases.get(index)) for index, frames in found.items()}
    return Ordered(frames, first_pos, groups, order)


def with_heads(slices: Sequence[Slice]) -> list[Slice]:
    """Give the records of the inputs their heads: the running maximum over everything that a batch holds of their partition.

    For whoever has a whole batch at hand, before it is shared among tasks; slices that have heads stay as they are.
    """
    lanes: dict[tuple[str, int], list[int]] = {}
    for index, item in enumerate(slices):
        if item.input_index != UPSTREAM and item.frame.height and HEAD not in item.frame.columns:
            lanes.setdefault((item.feed_name, item.partition), []).append(index)
    result = list(slices)
    for indices in lanes.values():
        frames = [slices[index].frame for index in indices]
        offsets = np.concatenate([frame.get_column(OFFSET).to_numpy() for frame in frames])
        order = np.argsort(offsets, kind="stable")
        heads = np.empty(len(offsets), np.int64)
        heads[order] = np.maximum.accumulate(np.concatenate([frame.get_column(TS).to_numpy() for frame in frames])[order])
        start = 0
        for index, frame in zip(indices, frames, strict=True):
            own = pl.Series(HEAD, heads[start : start + frame.height])
            result[index] = replace(slices[index], frame=with_series(frame, own))
            start += frame.height
    return result


def declared_indices(inputs: Sequence[Input]) -> dict[str, int]:
    """Return the declared index of each feed, by name: the smallest of the inputs that read it."""
    declared: dict[str, int] = {}
    for item in inputs:
        declared[item.feed.name] = min(item.index, declared.get(item.feed.name, item.index))
    return declared


def lane_of(declared_index: int, partition: int) -> int:
    """Return the lane of a partition of a feed."""
    return declared_index << PARTITION_BITS | partition


class _Group:
    """The records of one lane in its order (by offset, of one record's readers by index), or what one upstream task emitted.

    Args:
        readers: input index and records by offset.
        lane: the lane; of an upstream task one that stands behind all others, for emissions of no known cause.
    """

    def __init__(self, readers: list[tuple[int, pl.DataFrame]], lane: int) -> None:
        self._readers = readers
        self._rows: I64 | None = None
        if len(readers) > 1:
            offsets = np.concatenate([frame.get_column(OFFSET).to_numpy() for _, frame in readers])
            self._rows = np.argsort(offsets, kind="stable")
        first = readers[0][1]
        self.is_upstream = readers[0][0] == UPSTREAM
        self.causes = Causes.of_frame(first) if PLACE in first.columns else self._own(lane)

    def placed(self, places: I64) -> Iterator[tuple[int, pl.DataFrame]]:
        """Give each reader's records their places."""
        own = places
        if self._rows is not None:
            own = np.empty_like(places)
            own[self._rows] = places
        start = 0
        for input_index, frame in self._readers:
            yield input_index, with_series(frame, pl.Series(POS, own[start : start + frame.height]))
            start += frame.height

    def _own(self, lane: int) -> Causes:
        heads = self._column(HEAD if all(HEAD in frame.columns for _, frame in self._readers) else TS)
        return Causes(np.maximum.accumulate(heads), np.full(len(heads), lane, np.int64), self._column(OFFSET))

    def _column(self, name: str) -> I64:
        values: I64 = np.concatenate([frame.get_column(name).to_numpy() for _, frame in self._readers])
        return values if self._rows is None else values[self._rows]


def _groups(slices: Sequence[Slice], inputs: Sequence[Input]) -> list[_Group]:
    """Return what the batch holds: the lanes by number, then the upstream tasks by ordinal."""
    declared = declared_indices(inputs)
    lanes: dict[int, list[tuple[int, pl.DataFrame]]] = {}
    upstream: dict[int, list[tuple[int, pl.DataFrame]]] = {}
    for (feed_name, partition, input_index), frame in _parts(slices).items():
        if input_index == UPSTREAM:
            upstream[partition] = [(input_index, frame)]
        else:
            lane = lane_of(declared.get(feed_name, 0), partition)
            lanes.setdefault(lane, []).append((input_index, frame))
    own = [_Group(sorted(lanes[lane], key=lambda reader: reader[0]), lane) for lane in sorted(lanes)]
    return [*own, *(_Group(upstream[ordinal], AFTER_ALL_TIME + ordinal) for ordinal in sorted(upstream))]


def _parts(slices: Sequence[Slice]) -> dict[tuple[str, int, int], pl.DataFrame]:
    """Join the slices of each (feed, partition, input), by offset."""
    frames: dict[tuple[str, int, int], list[pl.DataFrame]] = {}
    for item in slices:
        if item.frame.height:
            frames.setdefault((item.feed_name, item.partition, item.input_index), []).append(item.frame)
    result = {}
    for key, found in frames.items():
        found.sort(key=lambda frame: frame.item(0, OFFSET))
        frame = found[0] if len(found) == 1 else pl.concat(found)
        offsets = frame.get_column(OFFSET)
        result[key] = frame if offsets.is_sorted() else frame.sort(OFFSET, maintain_order=True)
    return result


def _order(groups: Sequence[_Group]) -> I64:
    """Return the records' indices, the groups one after the other, in the total order."""
    if len(groups) < 2:
        return np.arange(sum(len(group.causes.heads) for group in groups))
    joined = Causes.joined([group.causes for group in groups])
    if not any(group.is_upstream for group in groups):
        return np.argsort(joined.heads, kind="stable")  # the groups stand in the order of their lanes, each in its own
    return joined.order()


def _in_order(frames: list[pl.DataFrame], alias: str | None) -> pl.DataFrame:
    """Merge an input's partitions by position and qualify its payload columns."""
    frame = frames[0] if len(frames) == 1 else pl.concat(frames)
    positions = frame.get_column(POS).to_numpy()
    if len(frames) > 1 or not bool(np.all(positions[1:] > positions[:-1])):
        frame = frame[np.argsort(positions, kind="stable")]
    payload = [name for name in frame.columns if name not in SERVICE_COLUMNS and name not in CAUSE_COLUMNS]
    frame = only(frame, *SERVICE_COLUMNS, *payload)
    if alias is not None:
        frame.columns = [*SERVICE_COLUMNS, *(f"{alias}.{name}" for name in payload)]
    return frame
