"""Queries in one process over records of one shared feed, with a wall clock that the test sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from engine.log.sequence import numbered
from engine.operators.tasks.pipeline import Step
from engine.operators.tasks.slices import Slice
from engine.plan.model import Plan
from engine.sources.shaping import for_input

FEED = {"type": "log", "feed": "all", "partitions": 1}
"""The connector of all sources."""

Record = tuple[str, str, int]
"""Relation, key, event time."""


def feed(plan: Plan, given: Sequence[Record], first: int) -> list[Slice]:
    """Records of the one feed, as its inputs read them."""
    slices = []
    for item in plan.inputs:
        rows = [(key, key, ts, ts, 0, first + i) for i, (name, key, ts) in enumerate(given) if name == item.relation.name]
        schema = {"k": pl.String, "j": pl.String, "v": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8, "_offset": pl.Int64}
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        if rows:
            slices.append(Slice(item.index, item.feed.name, 0, for_input(frame, item)))
    return slices


def in_order(step: Step) -> list[tuple[Any, ...]]:
    """What a batch made, in the order of the log (P6)."""
    numbers = np.concatenate([np.empty(0, np.int64), *numbered(step.causes, None, step.newest_head).sequences])
    rows = [row for frame in step.changes for row in frame.rows()]
    return [rows[place] for place in np.argsort(numbers)]
