"""P14: the time of a derived relation, told between the rows of its log.

A *mark* stands before the row with its number and says the time with its place: before the first row of a place, if time has risen since
the last mark; behind the last row of a place that raises it; and where time passes a full second. So a reader judges each row by the time
before its place in the producer, and learns within a second that time goes on without rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64, NEVER, Clock
from engine.frames.frames import POS, RANK
from engine.frames.places import is_further, place_order

TOLD_EVERY_MS: Final = 1_000
"""Without rows a mark tells the time that often: what a reader emits in silence may come so much later in event time."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks in the order of the log.

    Attributes:
        numbers: of the row that each one stands before; non-decreasing.
        heads: how far the merge of the producer's inputs had come; non-decreasing.
        times: ascending.
        wait_ms: how far behind the time of the sources this time is at most (L of T1c).
    """

    numbers: I64
    heads: I64
    times: I64
    wait_ms: int = 0


def marks_of(
    causes: pl.DataFrame,
    clock: Clock,
    heads_at: Callable[[I64], I64],
    next_number: int,
    reached_ms: int | None,
    newest_head: int | None,
) -> Marks:
    """Return the marks of a batch.

    Args:
        causes: of all rows of the batch (``engine.log.sequence.CAUSES``), in any order.
        clock: the time behind the last operator.
        heads_at: how far the merge had come with positions (``BatchOrder.heads``).
        next_number: the number of the batch's first row.
        reached_ms: how far the merge had come before the batch; None before the first record.
        newest_head: how far it has come with the batch's records; None where the batch brought none.
    """
    rows = causes[place_order(causes)]
    places = rows.get_column(POS).to_numpy()
    further = is_further(rows.get_column(RANK))
    own = 2 * places + (0 if further is None else further)
    positions = _rises(clock, places)
    times = clock.upto(positions)
    before = np.append(clock.begin, times[:-1])
    is_risen = times > before
    positions, times, before = positions[is_risen], times[is_risen], before[is_risen]
    numbers = np.searchsorted(own, 2 * positions, "right")
    stands_behind = (numbers > 0) & (own[numbers - 1] == 2 * positions) if len(own) else np.zeros(len(numbers), np.bool_)
    is_before_row = (numbers < len(own)) & np.append(numbers[1:] != numbers[:-1], True)[: len(numbers)]
    is_told = stands_behind | is_before_row | (times // TOLD_EVERY_MS > before // TOLD_EVERY_MS)
    floor = BEFORE_ALL_TIME if reached_ms is None else reached_ms
    heads = np.maximum(heads_at(positions[is_told]), floor)
    heads[heads == AFTER_ALL_TIME] = max(floor, BEFORE_ALL_TIME if newest_head is None else newest_head)
    return Marks(
        next_number + numbers[is_told], np.maximum.accumulate(heads), times[is_told], sum(wait.ms for wait in clock.waits)
    )


def _rises(clock: Clock, places: I64) -> I64:
    """Return positions at which time rises: all those of records; of the silence those around rows, and the first of each second."""
    found = [clock.places]
    if clock.silence_ms and clock.start != BEFORE_ALL_TIME:
        last = clock.first + clock.silence_ms - 1
        silent = places[clock.is_silence(places)]
        seconds = np.arange(clock.begin // TOLD_EVERY_MS + 1, clock.end // TOLD_EVERY_MS + 1) * TOLD_EVERY_MS
        reached = clock.reached(seconds)
        found += [silent, silent - 1, reached[(reached < NEVER) & (reached <= last)], np.array([last])]
        found = [part[(part >= clock.first)] for part in found]
    return np.unique(np.concatenate(found))
