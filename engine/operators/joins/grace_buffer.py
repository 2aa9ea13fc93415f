"""The grace buffer of a stream-table join: holds records until buffer time has passed them by the grace (J3, J4, J10, J11, T10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from engine.frames.clocks import I64, NEVER, Bools
from engine.frames.frames import POS, RANK, TS, with_series
from engine.frames.places import arrivals, levels, place_order, ranked
from engine.operators.operators import BatchTime
from engine.operators.pending.histogram import WaitingRows
from engine.operators.pending.spans import Span
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.segment_list import taken
from engine.state.sorted.sorted_search import stable_order

_PASSING: Final = 0
_RELEASED: Final = 1
"""At one place rows that pass stand before those that are released there."""


@dataclass(frozen=True, slots=True)
class Due:
    """What the grace lets go.

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
        times = frame.get_column(TS).to_numpy()
        checked = np.arange(len(times)) if passing is None else np.flatnonzero(~passing)
        before = moment.before(frame)
        is_late = times[checked] < before[checked] - self._grace_ms
        accepted, late = checked[~is_late], checked[is_late]
        own_positions = frame.get_column(POS).to_numpy()[accepted]
        reached = moment.reached(times[accepted] + self._grace_ms)
        is_due = reached < NEVER
        at_once = accepted[reached <= own_positions]
        later = accepted[is_due & (reached > own_positions)]
        through = [late] if self._late == "join" else []
        if passing is not None:
            through.append(np.flatnonzero(passing))
        parts = [
            *(_released(part, moment.reached(part.get_column(TS).to_numpy() + self._grace_ms)) for part in self._due(moment)),
            _released(taken(frame, later), reached[is_due & (reached > own_positions)]),
            _at_own_places(taken(frame, at_once)),
        ]
        waiting = sum(part.height for part in parts)
        passed = taken(frame, np.sort(np.concatenate(through))) if through else frame.clear()
        together = pl.concat([*parts, _passed(passed)])
        order = place_order(together)
        if not is_due.all():
            self._queue.append(_by_time(taken(frame, accepted[~is_due])))
        return Due(taken(together, order), order >= waiting, late, before[late])

    def _due(self, moment: BatchTime) -> list[pl.DataFrame]:
        """Take what waits from earlier batches and is released in this one."""
        if moment.clock.next_place == NEVER and not moment.is_release:
            return []
        return self._queue.take(moment.clock.end - self._grace_ms)


def _by_time(frame: pl.DataFrame) -> pl.DataFrame:
    return taken(frame, stable_order(frame.get_column(TS).to_numpy()))


def _released(frame: pl.DataFrame, positions: I64) -> pl.DataFrame:
    """Give rows the place that releases them; there they stand by event time and arrival, behind those that pass there (J3)."""
    ranks = ranked(frame, _RELEASED, frame.get_column(TS).to_numpy(), arrivals(frame))
    return with_series(ranks, pl.Series(POS, positions))


def _at_own_places(frame: pl.DataFrame) -> pl.DataFrame:
    """Give rows that are due as they come their order at their own places, which may be further ones of their records."""
    return ranked(frame, _RELEASED, frame.get_column(TS).to_numpy(), arrivals(frame), within=levels(frame.get_column(RANK)))


def _passed(frame: pl.DataFrame) -> pl.DataFrame:
    """Give rows that never wait their order at their own places: as they came."""
    return ranked(frame, _PASSING, frame.get_column(RANK), within=levels(frame.get_column(RANK)))
