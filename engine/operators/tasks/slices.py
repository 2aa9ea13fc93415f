"""The records that a task gets, and their places in the order of the batch (T2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from engine.frames.frames import OFFSET, POS, SERVICE_COLUMNS, only, with_series
from engine.frames.places import place_order, unranked
from engine.operators.tasks.order import BatchOrder
from engine.plan.model import Input

UPSTREAM: Final = -1
"""Stands for an input index: what the stage before emits."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive records of one input partition, as one packet brings them.

    Attributes:
        input_index: ``Input.index``; ``UPSTREAM`` for what the stage before emits.
        feed_name: ``Feed.name``; for upstream slices anything constant.
        partition: partition of the feed; for upstream slices the upstream task's ordinal.
        frame: canonical records (``_key_hash``, ``_ts``, ``_offset``, ``_op``, payload) in offset order; upstream ones with the columns of
            their place.
    """

    input_index: int
    feed_name: str
    partition: int
    frame: pl.DataFrame


def placed(slices: Sequence[Slice], inputs: Sequence[Input], order: BatchOrder) -> dict[int, pl.DataFrame]:
    """Give a task's records their positions.

    Args:
        slices: at most one batch's records of one task, in any order of slices.
        inputs: the plan's inputs, whose aliases qualify the payload columns; upstream columns keep their names.
        order: of the batch.

    Returns:
        Input index → its records with ``_pos``, in order, those of its further parts among them. Inputs without records are absent.
        What the stage before emits keeps the columns of its place; of one place and rank the rows of one upstream task stand as it emitted them.
    """
    read_as = {item.index: item.read_as for item in inputs}
    aliases = {item.index: item.alias for item in inputs}
    found: dict[int, list[pl.DataFrame]] = {}
    for item in slices:
        if not item.frame.height:
            continue
        frame = item.frame
        if item.input_index != UPSTREAM:
            offsets = frame.get_column(OFFSET).to_numpy()
            own = order.positions(item.input_index, item.feed_name, item.partition, offsets)
            frame = with_series(frame, pl.Series(POS, own), unranked(frame.height))
        found.setdefault(read_as.get(item.input_index, item.input_index), []).append(frame)
    return {index: _in_order(frames, aliases.get(index)) for index, frames in found.items()}


def _in_order(frames: list[pl.DataFrame], alias: str | None) -> pl.DataFrame:
    """Merge an input's parts by place and qualify its payload columns."""
    if len(frames) > 1:
        frames = sorted(frames, key=lambda frame: int(frame.item(0, OFFSET)))  # an upstream task's packets follow each other
    frame = frames[0] if len(frames) == 1 else pl.concat(frames)
    positions = frame.get_column(POS).to_numpy()
    if not bool(np.all(positions[1:] > positions[:-1])):
        frame = frame[place_order(frame)]
    if alias is None:
        return frame
    payload = [name for name in frame.columns if name not in SERVICE_COLUMNS]
    frame = only(frame, *SERVICE_COLUMNS, *payload)
    frame.columns = [*SERVICE_COLUMNS, *(f"{alias}.{name}" for name in payload)]
    return frame
