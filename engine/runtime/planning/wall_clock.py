"""The wall clock as a query sees it (T5): it never goes back, and it never stops.

The clock of a host may be set back, by a millisecond or by an hour. A query that waited for the old time would delay everything that
waits for the clock (idle, hold, ``until_wall_clock_time_limit``) for that hour. So its time continues from the last value at half speed,
until the host's clock has caught up.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class WallClock:
    """For one caller's thread.

    Args:
        wall_ms: the host's clock; jumps.
        monotonic_ms: does not.
    """

    def __init__(
        self,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._last_ms = 0
        self._behind: tuple[int, int] | None = None

    def now_ms(self, at_least: int) -> int:
        """Return the time now.

        Args:
            at_least: the last recorded time, perhaps from another process.
        """
        wall_ms, elapsed_ms = self._wall_ms(), self._monotonic_ms()
        now_ms = max(at_least, self._last_ms)
        if self._behind is not None:
            since_ms, since_elapsed_ms = self._behind
            now_ms = max(now_ms, since_ms + (elapsed_ms - since_elapsed_ms) // 2)
        if wall_ms >= now_ms:
            now_ms, self._behind = wall_ms, None
        elif self._behind is None:
            self._behind = now_ms, elapsed_ms
        self._last_ms = now_ms
        return now_ms
