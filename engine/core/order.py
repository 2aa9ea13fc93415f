"""T2: the total order in which a task handles the records of one batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from engine.core.clocks import I64
from engine.core.frames import OFFSET, POS, SERVICE_COLUMNS, TS
from engine.plan.model import Input


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive records of one input partition, as one packet brings them.

    Attributes:
        input_index: ``Input.index``; for a later stage 0.
        feed_name: ``Feed.name``; for a later stage anything constant.
        partition: partition of the feed; for a later stage the upstream task's ordinal.
        frame: canonical records (``_key_hash``, ``_ts``, ``_offset``, ``_op``, payload) in offset order.
    """

    input_index: int
    feed_name: str
    partition: int
    frame: pl.DataFrame


def order_batch(slices: Sequence[Slice], inputs: Sequence[Input], first_pos: int) -> dict[int, pl.DataFrame]:
    """Put a batch's records into the task's total order.

    A k-way merge by head event time, which equals a stable sort by the running maximum of event time within each feed
    partition; ties by the declared index of the feed (the smallest index of the inputs that read it), partition, offset. Of a
    record that two inputs of a feed read, the one with the smaller index (the table) comes first. Maxima start afresh in each
    batch.

    Args:
        slices: at most one batch's records of one task, in any order of slices.
        inputs: the plan's inputs, whose aliases qualify the payload columns; empty for a later stage, whose columns keep their
            names.
        first_pos: position of the first record.

    Returns:
        Input index → its records with ``_pos``, in order. Inputs without records are absent.
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
    return {index: _in_order(frames, aliases.get(index)) for index, frames in found.items()}


class _FeedPartition:
    """The records of one partition of one feed in its own order: by offset, of one record's readers by index.

    Args:
        readers: (input index, its records by offset).
    """

    def __init__(self, readers: list[tuple[int, pl.DataFrame]]) -> None:
        self._readers = sorted(readers, key=lambda reader: reader[0])
        self.times: I64 = np.concatenate([frame.get_column(TS).to_numpy() for _, frame in self._readers])
        self._rows: I64 | None = None
        if len(readers) > 1:
            offsets = np.concatenate([frame.get_column(OFFSET).to_numpy() for _, frame in self._readers])
            self._rows = np.argsort(offsets, kind="stable")
            self.times = self.times[self._rows]

    def placed(self, places: I64) -> Iterator[tuple[int, pl.DataFrame]]:
        """Give each reader's records their places."""
        own = places
        if self._rows is not None:
            own = np.empty_like(places)
            own[self._rows] = places
        start = 0
        for input_index, frame in self._readers:
            yield input_index, frame.with_columns(pl.Series(POS, own[start : start + frame.height]))
            start += frame.height


def _feed_partitions(slices: Sequence[Slice], inputs: Sequence[Input]) -> list[_FeedPartition]:
    """Return what the batch holds, by (declared index of the feed, partition)."""
    declared: dict[str, int] = {}
    for item in inputs:
        declared[item.feed.name] = min(item.index, declared.get(item.feed.name, item.index))
    readers: dict[tuple[int, int], list[tuple[int, pl.DataFrame]]] = {}
    for (feed_name, partition, input_index), frame in _parts(slices).items():
        readers.setdefault((declared.get(feed_name, 0), partition), []).append((input_index, frame))
    return [_FeedPartition(readers[key]) for key in sorted(readers)]


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
    payload = [name for name in frame.columns if name not in SERVICE_COLUMNS]
    frame = frame[[*SERVICE_COLUMNS, *payload]]
    return frame if alias is None else frame.rename({name: f"{alias}.{name}" for name in payload})
