"""Waiting for records inside the planning process, where a look costs two short statements.

If Spark did the waiting it would ask every 50 ms: twenty times a second a turn of the query's thread, a call over a socket and a line in its
log of what it did, together 2 % of a core for a query that has nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 0.5
"""Then Spark has its turn, and a query that is to be stopped is stopped no later."""

RECENT_S = 2.0
"""A feed that had something lately is looked at often: a steady trickle waits for no look."""

SHORT_S, LONG_S = 0.03, 0.2


class Silence:
    """How long nothing has come, and how to wait meanwhile.

    Args:
        clock: monotonic seconds.
        sleep: for so many seconds, or less.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._broken_at = clock()

    def broken(self) -> None:
        """Note that something has come."""
        self._broken_at = self._clock()

    def wait(self, is_over: Callable[[], bool], is_told: Callable[[], bool] = lambda: False) -> None:
        """Look again and again until something has come, or patience ends.

        Args:
            is_over: looks.
            is_told: whether whatever may come ends a sleep; asked before each.
        """
        deadline = self._clock() + PATIENCE_S
        while (now := self._clock()) < deadline:
            self._sleep(deadline - now if is_told() else SHORT_S if now - self._broken_at < RECENT_S else LONG_S)
            if is_over():
                self.broken()
                return
