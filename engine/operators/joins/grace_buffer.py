"""The grace buffer of a stream-table join: holds records until buffer time has passed them by the grace (J3, J4, J10, J11, T10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from engine.frames.clocks import AFTER_ALL_TIME, I64, Bools, running_clock
from engine.frames.frames import POS, TS, with_series
from engine.operators.pending.histogram import WaitingRows
from engine.operators.pending.spans import Span
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.segment_list import taken
from engine.state.sorted.sorted_search import stable_order


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
    """Rows waiting, and the buffer time B.

    Args:
        grace_ms: G. It may differ from the one the state was made with; what is due under the new one goes at the next accepted
            record, or at a step on request (J11).
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
        self._queue = WaitingRows(store, state.get("waiting"))

    @property
    def clock(self) -> int | None:
        """B: the greatest event time accepted."""
        return self._clock

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
    def due_in_ms(self) -> int | None:
        """By how much B must rise until a row is released; None where no row waits."""
        earliest = self._queue.earliest_ms
        return None if earliest is None or self._clock is None else max(earliest + self._grace_ms - self._clock, 1)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"clock": self._clock, "waiting": self._queue.snapshot()}

    def process(self, frame: pl.DataFrame, passing: Bools | None, position: int, step_ms: int | None) -> Due:
        """Handle the next records, and then the advance of an idle task (T10) or a release on request (J11).

        Args:
            frame: rows in processing order, all with the same columns as ever.
            passing: rows that pass at their own place and move no clock (J7), or None.
            position: where the step releases rows.
            step_ms: by how much B rises behind the records, and releases what is due then; None: nothing happens there. A B that is
                absent stays so.
        """
        times = frame.get_column(TS).to_numpy()
        checked = np.arange(len(times)) if passing is None else np.flatnonzero(~passing)
        before, after = running_clock(self._clock, times[checked])
        is_late = times[checked] < before - self._grace_ms  # a late record is older than B: it did not move the maxima
        accepted = checked[~is_late]
        late, late_clocks = checked[is_late], before[is_late]
        if len(accepted):
            self._clock = int(after[-1])
        releases = _Releases(accepted, after[~is_late] - self._grace_ms, np.append(frame.get_column(POS).to_numpy(), position))
        if step_ms is not None and self._clock is not None:
            self._clock += step_ms
            releases = releases.followed_by(len(times), self._clock - self._grace_ms)
        through = [late] if self._late == "join" else []
        if passing is not None:
            through.append(np.flatnonzero(passing))
        old = self._queue.take(int(releases.due_times[-1])) if len(releases.places) else []
        by_time = _by_time(times[accepted])
        released = np.maximum(np.searchsorted(releases.due_times, times[accepted[by_time]]), by_time)
        is_due = released < len(releases.places)
        rows = np.concatenate([*through, accepted[by_time[is_due]]])
        places = np.concatenate([*through, releases.places[released[is_due]]])
        ordered, is_passing = _in_output_order(frame, rows, places, sum(map(len, through)), old, releases)
        if not is_due.all():
            self._queue.append(taken(frame, accepted[by_time[~is_due]]))
        return Due(ordered, is_passing, late, late_clocks)


@dataclass(frozen=True, slots=True)
class _Releases:
    """What releases rows in a batch, in order.

    Attributes:
        places: the rows of the batch that are accepted, each of which releases what is due; one behind the last for the advance.
        due_times: B - G with each.
        positions: position of each place.
    """

    places: I64
    due_times: I64
    positions: I64

    def followed_by(self, place: int, due_time: int) -> _Releases:
        return _Releases(np.append(self.places, place), np.append(self.due_times, due_time), self.positions)


def _by_time(times: I64) -> I64:
    return stable_order(times - times.min(initial=AFTER_ALL_TIME))


def _in_output_order(
    frame: pl.DataFrame, rows: I64, places: I64, through: int, old: list[pl.DataFrame], releases: _Releases
) -> tuple[pl.DataFrame, Bools]:
    """Put due rows into the order (place of release, event time, arrival) and give them the position of that place.

    Args:
        frame: the records of the batch.
        rows: those of them that are due; at equal times in order of arrival.
        places: the place that releases each.
        through: so many of the first rows pass without waiting.
        old: rows released from the queue.
        releases: see there.

    Returns:
        The rows in order, and which of them pass.
    """
    if not old and not through and np.array_equal(rows, places) and np.array_equal(rows, np.arange(frame.height)):
        return frame, np.zeros(len(rows), np.bool_)
    times = [part.get_column(TS).to_numpy() for part in old]
    old_places = [releases.places[np.searchsorted(releases.due_times, part)] for part in times]
    all_times = np.concatenate([*times, frame.get_column(TS).to_numpy()[rows]])
    all_places = np.concatenate([*old_places, places])
    if not len(all_times):
        return frame.clear(), np.zeros(0, np.bool_)
    order = _by_time(all_times)
    order = order[stable_order(all_places[order])]
    count = sum(map(len, times))
    is_passing = (order >= count) & (order < count + through)
    if old:
        source = pl.concat([*old, frame], rechunk=True)
        chosen = np.concatenate([np.arange(count), rows + count])[order]
    else:
        source, chosen = frame, rows[order]
    return with_series(taken(source, chosen), pl.Series(POS, releases.positions[all_places[order]])), is_passing
