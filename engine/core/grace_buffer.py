"""The grace buffer of a stream-table join: holds records until buffer time has passed them by the grace (J3, J4, J10, J11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from engine.core.clocks import I64, Bools, running_clock
from engine.core.frames import POS, TS
from engine.core.ports import SegmentStore
from engine.core.segments import TimeQueue


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be joined now.

    Attributes:
        frame: rows in output order; ``_pos`` is where each is joined (J5).
        late: rows of the input that were late (J3), ascending.
        late_clocks: B before each of them.
    """

    frame: pl.DataFrame
    late: I64
    late_clocks: I64


class GraceBuffer:
    """Rows waiting, and the buffer time B.

    Args:
        grace_ms: G. It may differ from the one the state was made with; what is due under the new one goes at the next accepted
            record (J11).
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
        self._clock: int | None = state.get("clock")
        self._queue = TimeQueue(store, state.get("waiting"))

    @property
    def clock(self) -> int | None:
        """B: the greatest event time accepted."""
        return self._clock

    @property
    def rows(self) -> int:
        """Rows waiting."""
        return self._queue.rows

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"clock": self._clock, "waiting": self._queue.snapshot()}

    def process(self, frame: pl.DataFrame, passing: Bools | None = None) -> Due:
        """Handle the next records.

        Args:
            frame: rows in processing order, all with the same columns as ever.
            passing: rows that pass at their own place and move no clock (J7), or None.
        """
        times = frame.get_column(TS).to_numpy()
        judged = np.arange(len(times)) if passing is None else np.flatnonzero(~passing)
        before, after = running_clock(self._clock, times[judged])
        is_late = times[judged] < before - self._grace_ms  # a late record is older than B: it did not move the maxima
        accepted = judged[~is_late]
        late, late_clocks = judged[is_late], before[is_late]
        due_times = after[~is_late] - self._grace_ms
        if len(accepted):
            self._clock = int(after[-1])
        through = [late] if self._late == "join" else []
        if passing is not None:
            through.append(np.flatnonzero(passing))
        old = self._queue.take(int(due_times[-1])) if len(accepted) else []
        by_time = np.argsort(times[accepted], kind="stable")
        released = np.maximum(np.searchsorted(due_times, times[accepted[by_time]]), by_time)
        is_due = released < len(accepted)
        rows = np.concatenate([accepted[by_time[is_due]], *through])
        places = np.concatenate([accepted[released[is_due]], *through])
        due = _in_output_order(frame, rows, places, old, accepted, due_times)
        if not is_due.all():
            self._queue.append(frame[accepted[by_time[~is_due]]])
        return Due(due, late, late_clocks)


def _in_output_order(
    frame: pl.DataFrame, rows: I64, places: I64, old: list[pl.DataFrame], accepted: I64, due_times: I64
) -> pl.DataFrame:
    """Put due rows into the order (place of release, event time, arrival) and give them the position of that place.

    Args:
        frame: the records of the batch.
        rows: those of them that are due; at equal times in order of arrival.
        places: the record of ``frame`` that releases each.
        old: rows released from the queue.
        accepted: the records that moved or kept the buffer time.
        due_times: B - G after each of those.
    """
    positions = frame.get_column(POS).to_numpy()
    if not old and np.array_equal(rows, places) and np.array_equal(rows, np.arange(frame.height)):
        return frame
    times = [part.get_column(TS).to_numpy() for part in old]
    old_places = [accepted[np.searchsorted(due_times, part)] for part in times]
    all_times = np.concatenate([*times, frame.get_column(TS).to_numpy()[rows]])
    all_places = np.concatenate([*old_places, places])
    order = np.argsort(all_times, kind="stable")
    order = order[np.argsort(all_places[order], kind="stable")]
    if old:
        source = pl.concat([*old, frame], rechunk=True)
        count = source.height - frame.height
        taken = np.concatenate([np.arange(count), rows + count])[order]
    else:
        source, taken = frame, rows[order]
    return source[taken].with_columns(pl.Series(POS, positions[all_places[order]]))
