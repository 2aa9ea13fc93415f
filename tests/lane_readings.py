"""What readers of whole lanes would say of records, for tests that have all records of a batch in one place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl

from engine.frames.clocks import BEFORE_ALL_TIME, Rises
from engine.frames.frames import KEY_HASH, OFFSET, OP, TS
from engine.operators.tasks import pipeline
from engine.operators.tasks.order import LaneReading, rises
from engine.operators.tasks.pipeline import Step
from engine.operators.tasks.slices import UPSTREAM, Slice
from engine.plan.model import Input


class Pipeline(pipeline.Pipeline):
    """Runs a plan by the records that it is given alone."""

    def process(self, slices: Iterable[Slice], now_ms: int = 0, *arguments: Any, **options: Any) -> Step:
        """Handle one batch: ``lanes`` follow from the records unless they are given."""
        given = list(slices)
        lanes = options.pop("lanes", None)
        lanes = lane_readings(given, self._plan.inputs) if lanes is None else lanes
        return super().process(given, now_ms, *arguments, lanes=lanes, **options)


def lane_readings(slices: Sequence[Slice], inputs: Sequence[Input]) -> list[LaneReading]:
    """Return what a reader of whole lanes would say of these records, for whoever has all records of a batch in one place.

    Args:
        slices: records of the inputs, of all tasks, none left out by a condition.
        inputs: the plan's inputs.
    """
    kinds = {item.index: item.relation.kind for item in inputs}
    parts: dict[tuple[str, int], dict[int, list[pl.DataFrame]]] = {}
    for item in slices:
        if item.input_index != UPSTREAM and item.frame.height:
            parts.setdefault((item.feed_name, item.partition), {}).setdefault(item.input_index, []).append(item.frame)
    readings = []
    for (feed_name, partition), frames in parts.items():
        times = {index: _movers(own, is_table=kinds[index] == "table") for index, own in frames.items()}
        every = [frame for own in frames.values() for frame in own]
        offsets = np.concatenate([frame.get_column(OFFSET).to_numpy() for frame in every])
        heads = np.concatenate([frame.get_column(TS).to_numpy() for frame in every])
        order = np.argsort(offsets, kind="stable")
        readings.append(LaneReading(feed_name, partition, int(offsets.max()) + 1, rises(offsets[order], heads[order]), times))
    return readings


def _movers(frames: Sequence[pl.DataFrame], *, is_table: bool) -> Rises:
    offsets, times = [], []
    for frame in frames:
        first = frame.get_column(OFFSET).to_numpy()[:1]
        offsets.append(first)
        times.append(np.full(len(first), BEFORE_ALL_TIME))
        is_out = frame.get_column(KEY_HASH).is_null().to_numpy()
        if not is_table:
            is_out = is_out | (frame.get_column(OP).to_numpy() != 0)
        offsets.append(frame.get_column(OFFSET).to_numpy()[~is_out])
        times.append(frame.get_column(TS).to_numpy()[~is_out])
    found, of_found = np.concatenate(offsets), np.concatenate(times)
    order = np.argsort(found, kind="stable")
    return rises(found[order], of_found[order])
