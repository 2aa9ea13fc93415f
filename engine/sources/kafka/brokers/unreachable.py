"""Brokers that gave no answer: for a while nobody else in this process waits for them.

A question to brokers that are away takes ten seconds. Queries that read from them are planned in one process with others that do not, and are
launched one after the other: twenty such queries, each tried once a minute, would leave no time for anything else. After a question
that failed, further ones fail at once for twice as long as it took; so at most a third of a process's time goes to brokers that are away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from engine.errors import SourceUnavailable

FACTOR: Final = 2.0
"""So many times as long as the last question took nobody asks. More would put off the moment in which brokers are found to be back."""


Brokers = tuple[int, str, str, bytes | None]
"""What tells brokers from others: process, database, connection, a digest of how they are reached."""


class BrokersAway(SourceUnavailable):
    """No broker answers at all: not only that one partition has no leader."""


class AwayBrokers:
    """Which brokers have given no answer lately. Safe for threads.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._until: dict[Brokers, tuple[float, str]] = {}

    @contextmanager
    def asking(self, brokers: Brokers) -> Iterator[None]:
        """Ask brokers in the block.

        Raises:
            SourceUnavailable: they have given no answer a moment ago; else whatever the block raises.
        """
        begun = self._clock()
        with self._lock:
            until, reason = self._until.get(brokers, (begun, ""))
        if begun < until:
            raise SourceUnavailable(
                f"the brokers gave no answer a moment ago, and are asked again in {until - begun:.0f} s: {reason}"
            )
        try:
            yield
        except BrokersAway as error:
            now = self._clock()
            with self._lock:
                self._until[brokers] = (now + FACTOR * (now - begun), str(error))
            raise
        with self._lock:
            self._until.pop(brokers, None)
