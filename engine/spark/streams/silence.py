"""Waiting for records inside the planning process, where a look costs two short statements.

If Spark waited, it would ask every 50 ms. Each time the query's thread would run, call over a socket and write a line to its log. That
takes 2 % of a core for a query that has nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 0.5
"""After this time the call returns to Spark, so that Spark can stop a query."""

RECENT_S = 2.0
"""For this time after new data, looks at a feed are frequent, so that a steady trickle of records is not delayed."""

SHORT_S, LONG_S = 0.03, 0.2


class Silence:
    """The time since data last came, and the waits until more comes.

    Args:
        clock: monotonic seconds.
        sleep: sleeps for a number of seconds, or less.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._broken_at = clock()

    def broken(self) -> None:
        """Record that data has come."""
        self._broken_at = self._clock()

    def wait(self, is_over: Callable[[], bool], is_notified: Callable[[], bool] = lambda: False) -> None:
        """Look repeatedly until data has come, or ``PATIENCE_S`` has passed.

        Args:
            is_over: looks for data.
            is_notified: whether a notification ends a sleep; asked before each sleep.
        """
        deadline = self._clock() + PATIENCE_S
        while (now := self._clock()) < deadline:
            self._sleep(deadline - now if is_notified() else SHORT_S if now - self._broken_at < RECENT_S else LONG_S)
            if is_over():
                self.broken()
                return
