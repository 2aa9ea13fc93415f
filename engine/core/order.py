"""T2: the total order in which a task handles the records of one batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from engine.core.clocks import AFTER_ALL_TIME, I64
from engine.core.frames import OFFSET, POS, SERVICE_COLUMNS, TS
from engine.plan.model import Input

UPSTREAM: Final = -1
"""Stands for an input index: what the stage before emits."""

CAUSE_PARTITION, CAUSE_OFFSET = "_cause_partition", "_cause_offset"
"""Which record of the plan's only feed caused an emission that goes through an exchange."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive records of one input partition, as one packet brings them.

    Attributes:
        input_index: ``Input.index``; ``UPSTREAM`` for what the stage before emits.
        feed_name: ``Feed.name``; for upstream slices anything constant.
        partition: partition of the feed; for upstream slices the upstream task's ordinal.
        frame: canonical records (``_key_hash``, ``_ts``, ``_offset``, ``_op``, payload) in offset order; upstream ones may have the
            columns of their cause.
    """

    input_index: int
    feed_name: str
    partition: int
    frame: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Causes:
    """The feed's records behind the positions of one batch.

    Attributes:
        positions: ascending.
        partitions: of the feed.
        offsets: in that partition.
    """

    positions: I64
    partitions: I64
    offsets: I64

    def of(self, positions: I64) -> tuple[I64, I64]:
        """Return partition and offset behind each position.

        What the clock caused comes after the batch's records; where there are none, before those of the next ones.
        """
        if not len(self.positions):
            return np.zeros(len(positions), np.int64), np.full(len(positions), -1)
        places = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
        is_known = self.positions[places] == positions
        return self.partitions[places], np.where(is_known, self.offsets[places], AFTER_ALL_TIME)


@dataclass(frozen=True, slots=True)
class Ordered:
    """A batch in order.

    Attributes:
        frames: input index → its records with ``_pos``, in order. Inputs without records are absent.
        groups: the batch's feed partitions.
        places: position of each of their records, one partition after the other.
    """

    frames: Mapping[int, pl.DataFrame]
    groups: Sequence[_FeedPartition]
    places: I64

    @property
    def causes(self) -> Causes:
        """The feed's records behind the positions; made when asked for."""
        if not self.groups:
            nothing = np.empty(0, np.int64)
            return Causes(nothing, nothing, nothing)
        order = np.argsort(self.places)
        partitions, offsets = (
            np.concatenate(parts)[order] for parts in zip(*(group.causes() for group in self.groups), strict=True)
        )
        return Causes(self.places[order], partitions, offsets)


def order_batch(slices: Sequence[Slice], inputs: Sequence[Input], first_pos: int) -> Ordered:
    """Put a batch's records into the task's total order.

    A k-way merge by head event time, which equals a stable sort by the running maximum of event time within each feed
    partition; ties by the declared index of the feed (the smallest index of the inputs that read it), partition, offset. Of a
    record that two inputs of a feed read, the one with the smaller index (the table) comes first. Maxima start afresh in each
    batch. Upstream tasks are partitions of an input that is declared last; where the plan reads one partition of one feed, they keep its
    order instead: every emission stands where the record stands that caused it.

    Args:
        slices: at most one batch's records of one task, in any order of slices.
        inputs: the stage's inputs, whose aliases qualify the payload columns; upstream columns keep their names.
        first_pos: position of the first record.
    """
    groups = _feed_partitions(slices, inputs)
    places = _places([group.times for group in groups]) + first_pos
    found: dict[int, list[pl.DataFrame]] = {}
    start = 0
    for group in groups:
        stop = start + len(group.times)
        for input_index, frame in group.placed(places[start:stop]):
            found.setdefault(input_index, []).append(frame)
        start = stop
    aliases = {item.index: item.alias for item in inputs}
    frames = {index: _in_order(frames, aliases.get(index)) for index, frames in found.items()}
    return Ordered(frames, groups, places)


class _FeedPartition:
    """The records of one partition of one feed in its own order: by offset, of one record's readers by index.

    Args:
        readers: (input index, partition of the feed, its records by offset).
    """

    def __init__(self, readers: list[tuple[int, int, pl.DataFrame]]) -> None:
        self._readers = readers
        self.times: I64 = np.concatenate([frame.get_column(TS).to_numpy() for _, _, frame in readers])
        self._rows: I64 | None = None
        if len(readers) > 1:
            self._rows = np.argsort(np.concatenate([_cause_offsets(frame) for _, _, frame in readers]), kind="stable")
            self.times = self.times[self._rows]

    def causes(self) -> tuple[I64, I64]:
        """Return partition and offset of the record behind each record."""
        partitions = np.concatenate([_cause_partitions(partition, frame) for _, partition, frame in self._readers])
        offsets = np.concatenate([_cause_offsets(frame) for _, _, frame in self._readers])
        return (partitions, offsets) if self._rows is None else (partitions[self._rows], offsets[self._rows])

    def placed(self, places: I64) -> Iterator[tuple[int, pl.DataFrame]]:
        """Give each reader's records their places."""
        own = places
        if self._rows is not None:
            own = np.empty_like(places)
            own[self._rows] = places
        start = 0
        for input_index, _, frame in self._readers:
            yield input_index, frame.with_columns(pl.Series(POS, own[start : start + frame.height]))
            start += frame.height


def _cause_offsets(frame: pl.DataFrame) -> I64:
    return frame.get_column(CAUSE_OFFSET if CAUSE_OFFSET in frame.columns else OFFSET).to_numpy()


def _cause_partitions(partition: int, frame: pl.DataFrame) -> I64:
    if CAUSE_PARTITION in frame.columns:
        return frame.get_column(CAUSE_PARTITION).to_numpy()
    return np.full(frame.height, partition, np.int64)


def _feed_partitions(slices: Sequence[Slice], inputs: Sequence[Input]) -> list[_FeedPartition]:
    """Return what the batch holds, by (declared index of the feed, partition)."""
    parts = _parts(slices)
    if _is_one_partition(parts):
        readers = [(input_index, partition, frame) for (_, partition, input_index), frame in parts.items()]
        readers.sort(key=lambda reader: (reader[0] == UPSTREAM, reader[0], reader[1]))
        return [_FeedPartition(readers)]
    declared = {"": len(inputs)}
    for item in inputs:
        declared[item.feed.name] = min(item.index, declared.get(item.feed.name, item.index))
    groups: dict[tuple[int, int], list[tuple[int, int, pl.DataFrame]]] = {}
    for (feed_name, partition, input_index), frame in parts.items():
        place = AFTER_ALL_TIME if input_index == UPSTREAM else declared.get(feed_name, 0)
        groups.setdefault((place, partition), []).append((input_index, partition, frame))
    return [_FeedPartition(sorted(groups[key], key=lambda reader: reader[0])) for key in sorted(groups)]


def _is_one_partition(parts: Mapping[tuple[str, int, int], pl.DataFrame]) -> bool:
    """Whether emissions and records all come from one partition of one feed, so that they share its order."""
    if not any(CAUSE_PARTITION in frame.columns for frame in parts.values()):
        return False
    found = {int(value) for (_, partition, _), frame in parts.items() for value in np.unique(_cause_partitions(partition, frame))}
    return len(found) == 1


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


def _places(groups: list[I64]) -> I64:
    """Return the place in the merge of every record, the groups one after the other."""
    if len(groups) < 2:
        return np.arange(sum(map(len, groups)))
    heads = np.concatenate([np.maximum.accumulate(times) for times in groups])
    places = np.empty(len(heads), np.int64)
    places[np.argsort(heads, kind="stable")] = np.arange(len(heads))
    return places


def _in_order(frames: list[pl.DataFrame], alias: str | None) -> pl.DataFrame:
    """Merge an input's partitions by position and qualify its payload columns."""
    frame = frames[0] if len(frames) == 1 else pl.concat(frames)
    positions = frame.get_column(POS).to_numpy()
    if len(frames) > 1 or not bool(np.all(positions[1:] > positions[:-1])):
        frame = frame[np.argsort(positions, kind="stable")]
    payload = [name for name in frame.columns if name not in SERVICE_COLUMNS and name not in (CAUSE_PARTITION, CAUSE_OFFSET)]
    frame = frame[[*SERVICE_COLUMNS, *payload]]
    return frame if alias is None else frame.rename({name: f"{alias}.{name}" for name in payload})
