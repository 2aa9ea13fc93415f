"""Aggregation of a stream without a window: a result per group, a change per record (A3, T6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from engine.expressions.types.types import Schema
from engine.frames.frames import OFFSET, POS, RANK, Counters, empty_frame, frame_of, only, values_taken, with_series
from engine.operators.aggregation.aggregate import Aggregates
from engine.operators.aggregation.group_results import Grouping, GroupResults
from engine.operators.aggregation.last_changes import MESSAGE
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.plan.operators.aggregation import RunningAggregation
from engine.state.segments.ports import SegmentStore


class RunningAggregator(Operator):
    """Aggregates one stream by group.

    Args:
        spec: what to do.
        schema: the columns of the frames to come.
        state: what ``snapshot`` returned, or None for a new operator.
        store: where partial results live.
        is_hashed: see ``Grouping``.
    """

    def __init__(
        self,
        spec: RunningAggregation,
        schema: Schema,
        state: dict[str, Any] | None,
        store: SegmentStore,
        *,
        is_hashed: bool = False,
    ) -> None:
        state = state or {}
        self.name = spec.name
        self._operator = spec.name
        self._grouping = Grouping.of(spec.group, schema, store.hashing, is_hashed=is_hashed)
        self._aggregates = Aggregates(spec.aggregates, schema)
        self._results = GroupResults(spec, self._grouping, self._aggregates, state.get("groups"), store)
        self.schema = self._results.schema
        self._nothing = empty_frame(self.schema)
        self._next: int = state.get("next", 0)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"next": self._next, "groups": self._results.snapshot()}

    def process(self, frame: pl.DataFrame, _inputs: Mapping[int, pl.DataFrame], _moment: BatchTime) -> OperatorOutput:
        """Handle the next records in processing order.

        Returns:
            One row per record, with ``_ts`` the greatest event time merged; or only the last one of each group where they are folded.
            Counters ``null_key``, ``null_value``, ``sum_overflow`` (a change whose sum does not fit its type and is null).
        """
        counters: Counters = {}
        if frame.is_empty():
            return OperatorOutput(self._nothing)
        records, hashes = self._grouping.admit(frame, self._operator, counters)
        if records.is_empty():
            return OperatorOutput(self._nothing, counters=counters)
        self._aggregates.count_gaps(records, self._operator, counters)
        numbers = np.arange(records.height)
        lifted = frame_of([pl.Series(MESSAGE, numbers), *self._results.lift(records, hashes, numbers + self._next)])
        self._next += records.height
        shown = self._results.fold(lifted, counters)
        causes = [records.get_column(name) for name in (POS, RANK, OFFSET)]
        if shown.height < records.height:
            rows = shown.get_column(MESSAGE).to_numpy()
            causes = [values_taken(column, rows) for column in causes]
        return OperatorOutput(only(with_series(shown, *causes), *self._nothing.columns), counters=counters)
