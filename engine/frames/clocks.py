"""Stream time (T1): running maxima over numpy arrays of event times in milliseconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

LAST_EVENT_TIME_MS = 253_402_300_799_999
"""The end of the year 9999: no record is later, and no window that ends later takes one (T8)."""

BEFORE_ALL_TIME = -(1 << 61)
"""Stands for "no record yet" inside array arithmetic: below every event time (T8) even after a grace is subtracted."""

AFTER_ALL_TIME = 1 << 61
"""Above every event time, also after a grace is added."""


def clock_value(clock: int | None) -> int:
    """Return a clock as a number for arrays."""
    return BEFORE_ALL_TIME if clock is None else clock


def running_clock(clock: int | None, times: I64) -> tuple[I64, I64]:
    """Follow a clock over records that may all move it.

    Returns:
        The clock before each record and after each record.
    """
    steps = np.empty(len(times) + 1, np.int64)
    steps[0] = clock_value(clock)
    steps[1:] = times
    np.maximum.accumulate(steps, out=steps)
    return steps[:-1], steps[1:]
