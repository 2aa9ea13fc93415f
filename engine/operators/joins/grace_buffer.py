"""The grace buffer of a stream-table join: holds records until buffer time has passed them by the grace (J3, J4, J10, J11, T10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from engine.frames.clocks import I64, NEVER, Bools
from engine.frames.frames import POS, RANK, TS, with_series
from engine.frames.places import arrival, is_further, levels, no_levels, place_order, ranked
from engine.operators.operators import BatchTime
from engine.operators.pending.histogram import WaitingRows
from engine.operators.pending.spans import Span
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.segment_list import taken
from engine.state.sorted.sorted_search import time_order

PASSING: Final = 0
RELEASED: Final = 1
"""At one place rows that pass stand before those that are released there."""


@dataclass(frozen=True, slots=True)
class Due:
    """What the grace releases.

    Attributes:
        frame: rows in output order; ``_pos`` is where each is released (J5).
        is_passing: which of them never waited: late ones that are joined at once, and null keys.
        late: rows of the input that were late (J3), ascending.
        late_clocks: B before each of them.
    """

    frame: pl.DataFrame
    is_passing: Bools
    late: I64
    late_clocks: I64


class GraceBuffer:
    """Rows waiting.

    Args:
        grace_ms: G. It may differ from the one the state was made with; what is due under the new one goes at the next place of the
            streams, or at once on request (J11).
        late: policy; ``join`` lets late rows pass at their own place.
        state: what ``snapshot`` returned, or None.
        store: where waiting rows live.
    """

    def __init__(
        self, grace_ms: int, late: Literal["join", "drop", "divert"], state: dict[str, Any] | None, store: SegmentStore
    ) -> None:
        state = state or {}
        self._grace_ms = grace_ms
        self._late = late
        self._queue = WaitingRows(store, state.get("waiting"))

    @property
    def rows(self) -> int:
        """Rows waiting."""
        return self._queue.rows

    @property
    def spans(self) -> list[Span]:
        """Rows waiting, by event time."""
        return self._queue.spans

    @property
    def earliest_ms(self) -> int | None:
        """The smallest event time that waits."""
        return self._queue.earliest_ms

    @property
    def due_ms(self) -> int | None:
        """The time at which the first row is released; None where none waits."""
        earliest = self._queue.earliest_ms
        return None if earliest is None else earliest + self._grace_ms

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"waiting": self._queue.snapshot()}

    def process(self, frame: pl.DataFrame, passing: Bools | None, moment: BatchTime) -> Due:
        """Handle the next records, and then what time releases.

        Args:
            frame: rows in processing order, all with the same columns as ever.
            passing: rows that pass at their own place (J7), or None.
            moment: when.
        """
        waiting = self._due(moment)
        rows = pl.concat([*waiting, frame]) if waiting else frame
        old = rows.height - frame.height
        times, positions = rows.get_column(TS).to_numpy(), rows.get_column(POS).to_numpy()
        before = moment.before(frame)
        is_passing = np.zeros(frame.height, np.bool_) if passing is None else passing
        is_late = ~is_passing & (times[old:] < before - self._grace_ms)
        is_accepted = np.append(np.ones(old, np.bool_), ~(is_late | is_passing))
        accepted = time_order(times)
        accepted = accepted[is_accepted[accepted]]
        # What waited came at a place before all of this batch.
        places = np.maximum(moment.reached(times[accepted] + self._grace_ms), positions[accepted])
        is_due = places < NEVER
        if not is_due.all():
            self._queue.append(taken(rows, accepted[~is_due]))
        through = np.flatnonzero(is_late | is_passing if self._late == "join" else is_passing)
        leaving, is_passing = _in_order(rows, old + through, accepted[is_due], places[is_due])
        late = np.flatnonzero(is_late)
        return Due(leaving, is_passing, late, before[late])

    def _due(self, moment: BatchTime) -> list[pl.DataFrame]:
        """Take what waits from earlier batches and is released in this one."""
        if moment.clock.next_place == NEVER and not moment.is_release:
            return []
        return self._queue.take(moment.clock.end - self._grace_ms)


def _in_order(rows: pl.DataFrame, through: I64, due: I64, places: I64) -> tuple[pl.DataFrame, Bools]:
    """Give what leaves its place and its order there: what passes, as it came; then what is released, by event time and arrival (J3).

    Args:
        rows: of all that could leave.
        through: those that pass at their own places, as they came.
        due: those that are released, by event time and arrival.
        places: where each of these is released: at its own place, which may be a further one of its record, or at that of a record.

    Returns:
        The rows in order, and which of them pass.
    """
    own = rows.get_column(POS).to_numpy()
    positions = np.append(own[through], places)
    by_place = np.argsort(positions, kind="stable")
    order, positions, is_passing = np.append(through, due)[by_place], positions[by_place], by_place < len(through)
    leaving = taken(rows, order)
    within = None
    if is_further(leaving.get_column(RANK)) is not None:
        within = levels(leaving.get_column(RANK)).zip_with(pl.Series(positions == own[order]), no_levels(len(order)))
    times = np.where(is_passing, 0, leaving.get_column(TS).to_numpy())
    leaving = ranked(leaving, ~is_passing, times, *arrival(leaving), within=within, is_released=~is_passing)
    leaving = with_series(leaving, pl.Series(POS, positions))
    if within is None:
        return leaving, is_passing
    by_rank = place_order(leaving)
    return taken(leaving, by_rank), is_passing[by_rank]
