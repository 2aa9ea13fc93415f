"""T2: the total order in which a task handles the records of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from engine.core.clocks import I64
from engine.core.frames import OFFSET, OP, POS, SERVICE_COLUMNS, TS
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

    A k-way merge by head event time, which equals a stable sort by the running maximum of event time within each feed partition;
    ties by the declared index of the feed (the smallest index of the inputs that read it), partition, offset. Of a record that two
    inputs of a feed read, the one with the smaller index (the table) comes first. Maxima start afresh in each batch.

    Args:
        slices: at most one batch's records of one task, in any order of slices.
        inputs: the plan's inputs, whose aliases qualify the payload columns; empty for a later stage, whose columns keep their names.
        first_pos: position of the first record.

    Returns:
        Input index → its records with ``_pos``, in order. Inputs without records are absent.
    """
    parts = _parts(slices)
    if not parts:
        return {}
    first_index = _feed_indexes(inputs)
    groups: dict[tuple[int, int], list[tuple[int, pl.DataFrame]]] = {}
    for (feed_name, partition, input_index), frame in parts.items():
        groups.setdefault((first_index.get(feed_name, 0), partition), []).append((input_index, frame))
    members = [_group_order(groups[key]) for key in sorted(groups)]
    owners = [member for key in sorted(groups) for member in sorted(groups[key], key=lambda item: item[0])]
    places = _places([times for times, _ in members]) + first_pos
    result: dict[int, list[pl.DataFrame]] = {}
    start = 0
    owner = iter(owners)
    for times, arrangement in members:
        group_places = np.empty(len(times), np.int64)
        group_places[arrangement] = places[start : start + len(times)]
        start += len(times)
        taken = 0
        while taken < len(times):
            input_index, frame = next(owner)
            column = pl.Series(POS, group_places[taken : taken + frame.height])
            result.setdefault(input_index, []).append(frame.with_columns(column))
            taken += frame.height
    aliases = {item.index: item.alias for item in inputs}
    return {index: _in_order(frames, aliases.get(index)) for index, frames in result.items()}


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


def _feed_indexes(inputs: Sequence[Input]) -> dict[str, int]:
    """Return each feed's declared index: the smallest of the inputs that read it."""
    result: dict[str, int] = {}
    for item in inputs:
        result[item.feed.name] = min(item.index, result.get(item.feed.name, item.index))
    return result


def _group_order(group: list[tuple[int, pl.DataFrame]]) -> tuple[I64, I64]:
    """Order one feed partition's records by (offset, input).

    Returns:
        Event times in that order, and for each place which row of the inputs' concatenation (by input index) stands there.
    """
    group = sorted(group, key=lambda item: item[0])
    times = np.concatenate([frame.get_column(TS).to_numpy() for _, frame in group])
    if len(group) == 1:
        return times, np.arange(len(times))
    offsets = np.concatenate([frame.get_column(OFFSET).to_numpy() for _, frame in group])
    arrangement = np.argsort(offsets, kind="stable")
    return times[arrangement], arrangement


def _places(groups: list[I64]) -> I64:
    """Return the place in the merge of every record, the groups one after the other."""
    if len(groups) == 1:
        return np.arange(len(groups[0]))
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
    names = {name: f"{alias}.{name}" if alias is not None else name for name in payload}
    service = [pl.col(name) for name in SERVICE_COLUMNS]
    return frame.select(*service, *(pl.col(name).alias(names[name]) for name in payload)).with_columns(pl.col(OP).cast(pl.Int8))
