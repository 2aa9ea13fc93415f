"""Brokers that gave no answer: for a while no other query in this process waits for them.

A question to brokers that are away takes ten seconds. One process plans and launches queries one after the other, whether they read from
these brokers or not. Twenty such queries, each retried once a minute, would leave no time for the others. After a failed question,
further ones fail at once for twice its duration. So at most a third of a process's time goes to brokers that are away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from engine.errors import SourceUnavailable

FACTOR: Final = 2.0
"""Multiple of the last question's duration without questions. A larger one would delay the discovery that brokers are back."""


Brokers = tuple[int, str, str, bytes | None]
"""The identity of brokers: process, database, connection, a digest of their addresses and credentials."""


class BrokersAway(SourceUnavailable):
    """No broker answers at all: more than one partition without a leader."""


class AwayBrokers:
    """The brokers that gave no answer lately. Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._until: dict[Brokers, tuple[float, str]] = {}

    @contextmanager
    def asking(self, brokers: Brokers) -> Iterator[None]:
        """Ask brokers in the block.

        Raises:
            SourceUnavailable: they gave no answer a moment ago; else the block's own errors.
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
