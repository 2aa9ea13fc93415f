"""T11: what an operator that waits by the wall clock hands on: the time that stood there so long ago.

A *moment* is the time before such an operator as of a batch, with the wall clock from which on it is handed on. Moments belong to the query
and not to its tasks. They are few: of a 256th part of the wait only the first is kept, and the newest, so time may come so much later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.frames.clocks import BEFORE_ALL_TIME, NEVER, Clock
from engine.operators.operators import TableProgress
from engine.plan.operators.answers import ClockWait

MOST_MOMENTS: Final = 256
"""An hour's wait then keeps 6 KB in each commit, and hands time on at most 14 s later than without a bound."""

Moment = tuple[int, int]
"""A wall clock, and a time."""


def with_moment(moments: Sequence[Moment], wait: ClockWait, now_ms: int, time: int) -> list[Moment]:
    """Return the moments of an operator as of a batch.

    Args:
        moments: as of the batch before, in order.
        wait: the operator's.
        now_ms: the wall clock of the batch.
        time: the time before the operator at the end of the batch.
    """
    known = list(moments)
    if time <= (known[-1][1] if known else BEFORE_ALL_TIME):
        return known
    part_ms = max(wait.limit_ms // MOST_MOMENTS, 1)
    clock_ms = max([now_ms + wait.limit_ms if wait.is_fixed_at_start else now_ms, *(ms for ms, _ in known[-1:])])
    if (known and known[-1][0] == clock_ms) or (len(known) > 1 and known[-1][0] // part_ms == known[-2][0] // part_ms):
        known.pop()
    return [*known, (clock_ms, time)]


def handed_on_at(moment: Moment, wait: ClockWait) -> int:
    """Return the wall clock from which on the time of a moment is handed on."""
    return moment[0] if wait.is_fixed_at_start else moment[0] + wait.limit_ms


def handed_on(
    moments: Sequence[Moment], wait: ClockWait, now_ms: int, begin: int, clock: Clock, progress: TableProgress | None
) -> int:
    """Return the time behind an operator with a batch.

    Args:
        moments: of the operator, that of this batch included.
        wait: its wait.
        now_ms: the wall clock of the batch.
        begin: the time behind it before the batch: it never falls.
        clock: the time before it.
        progress: of the table that it awaits.
    """
    if wait.needs_records and clock.entered == NEVER:
        return begin
    end = max([begin, *(moment[1] for moment in moments if handed_on_at(moment, wait) <= now_ms)])
    if progress is None:
        return end
    read_to_ms = progress.caught_up_to_ms if wait.until_caught_up else progress.read_to_ms
    return max(end, min(clock.end, read_to_ms - wait.slack_ms))
