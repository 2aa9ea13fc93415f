"""Which puts of an unversioned table win where event time decides: ``"conflict": "latest_event_time"`` (V7).

Of tables that a database's changes fill the places in its log decide: ``engine.operators.rows.change_positions``.

A put or delete that is older than what was put for its key before is dropped as it enters its stage. So all operators behind see, of each
key, changes in the order of event time: the last of them by arrival is the latest by event time, and what they keep needs no rule of its own.
Equal times: the later arrival wins.

Per key the greatest event time is kept for ever, deletes alike: an older put never brings a deleted row back, however late it comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from engine.frames.frames import KEY_HASH, OUT_OF_ORDER_IGNORED, TS, Counters, add_counter, without_rows
from engine.operators.rows.change_positions import LatestPositions
from engine.plan.model import Input, Plan, Stage
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.latest_by_key import KEPT, ROW, LatestByKey


def conflict_key(source: Input) -> tuple[str, ...]:
    """Return the qualified key columns of a table."""
    return tuple(f"{source.alias}.{name}" for name in source.relation.key)


class LatestTimes:
    """The greatest event time of each key of one table in one task.

    Args:
        source: the table.
        state: what ``snapshot`` returned, or None.
        store: where segments live.
    """

    def __init__(self, source: Input, state: dict[str, Any] | None, store: SegmentStore) -> None:
        self._alias = source.alias
        self._key = conflict_key(source)
        self._latest = LatestByKey([KEY_HASH, TS, *self._key], self._key, (), state, store)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return self._latest.snapshot()

    def winning(self, frame: pl.DataFrame, counters: Counters) -> pl.DataFrame:
        """Return the changes that win, those without a key among them: their reader counts them (T6).

        Args:
            frame: the table's changes in processing order, their columns qualified.
            counters: gets ``out_of_order_ignored``.
        """
        rows = pl.int_range(frame.height, dtype=pl.Int64).alias(ROW)
        found, groups = self._latest.beside(frame.select(TS, *self._key, rows))
        if found.is_empty():
            return frame
        times, places = (found.get_column(name).to_numpy() for name in (TS, ROW))
        is_winning = groups.latest(times) == times
        self._latest.keep(found[np.flatnonzero(is_winning)])
        lost = places[~is_winning & (places != KEPT)]
        add_counter(counters, self._alias, OUT_OF_ORDER_IGNORED, len(lost))
        return without_rows(frame, lost)


@dataclass(frozen=True, slots=True)
class Conflicts:
    """What a task keeps of its tables whose conflicts arrival does not decide.

    Attributes:
        tables: input index → its keys' times, or positions.
        aliases: input index → the name under which they are kept.
    """

    tables: Mapping[int, LatestTimes | LatestPositions]
    aliases: Mapping[int, str]

    @staticmethod
    def of(stage: Stage, plan: Plan, states: Mapping[str, Any], store: SegmentStore) -> Conflicts:
        """Build them from the states that ``snapshot`` returned."""
        checked = inputs_by_conflict(stage, plan)
        tables = {item.index: _JUDGES[item.relation.conflict](item, states.get(item.alias), store) for item in checked}
        return Conflicts(tables, {item.index: item.alias for item in checked})

    def winning(self, frames: Mapping[int, pl.DataFrame], counters: Counters) -> Mapping[int, pl.DataFrame]:
        """Return the inputs' records without changes that lose; see ``LatestTimes.winning``."""
        if not self.tables:
            return frames
        return {
            index: self.tables[index].winning(frame, counters) if index in self.tables else frame
            for index, frame in frames.items()
        }

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values, by alias."""
        return {self.aliases[index]: table.snapshot() for index, table in self.tables.items()}


_JUDGES: Final[Mapping[str, type[LatestTimes | LatestPositions]]] = {
    "latest_event_time": LatestTimes,
    "latest_position": LatestPositions,
}


def inputs_by_conflict(stage: Stage, plan: Plan) -> Sequence[Input]:
    """Return the stage's tables whose conflicts arrival does not decide."""
    return [item for item in plan.inputs if item.stage == stage.index and item.relation.conflict in _JUDGES]
