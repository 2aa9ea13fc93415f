"""An operator's rows shared out to tasks, and what the tasks emit brought into one order again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from engine.frames.hashing import key_hash
from engine.frames.places import place_order


def shares(frame: pl.DataFrame, key: Sequence[str], tasks: int) -> list[pl.DataFrame]:
    """Return the rows of each task, by the hash of the key; those without one are task 0's."""
    owners = key_hash(frame, list(key)).fill_null(0) % tasks
    return [frame.filter(owners == task) for task in range(tasks)]


def merged(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return what tasks emitted in the order in which the next stage reads it."""
    frame = pl.concat(frames)
    return frame[place_order(frame)]


def in_place_order(frame: pl.DataFrame) -> bool:
    """Say whether a task emitted rows in the order of their places."""
    return frame.equals(merged([frame]))


def rows_of(frames: Sequence[pl.DataFrame]) -> list[dict[str, Any]]:
    """Return rows of several batches, with everything but the hashes that are made for the next exchange."""
    return [row for frame in frames for row in frame.drop("_key_hash").to_dicts()]
