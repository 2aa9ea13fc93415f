"""Appends that come one by one from many writers go on together, a moment later.

An append that is alone costs twice as much as one among four, here and in Postgres: between two, other processes take the caches, and each
has a transaction of its own. So where appends to many feeds come, each waits for others, but not where nobody else can come: writers that
wait for their answers before they send more are let go as soon as all of them wait, and a single one that writes to many feeds in turn soon
waits no longer.
"""

from __future__ import annotations

import asyncio
from typing import Final

GATHER_S: Final = 0.02
"""What an append waits for others at most. A commit takes a few milliseconds, an event of a row some hundred."""

MANY_FEEDS: Final = 8
"""From here on others are likely to come within that time, if so many feeds were appended to lately."""

LATELY_S: Final = 0.25
VAIN_TURNS: Final = 3
"""After so many waits in a row for which nobody else came, nobody waits for a second."""

REST_S: Final = 1.0


class Gathering:
    """Lets those who append to different feeds pass together.

    Args:
        gather_s: what each waits at most.
    """

    def __init__(self, gather_s: float = GATHER_S) -> None:
        self._gather_s = gather_s
        self._lately: dict[int, float] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._vain = 0
        self._rests_until = 0.0

    async def turn(self, feed_id: int) -> None:
        """Wait until it is time to append to a feed; not at all where few feeds are appended to."""
        loop = asyncio.get_running_loop()
        self._note(feed_id, now := loop.time())
        if len(self._lately) < MANY_FEEDS or now < self._rests_until:
            return
        passed: asyncio.Future[None] = loop.create_future()
        self._waiting.append(passed)
        if len(self._waiting) >= len(self._lately):  # all who appended lately are here
            self._let_go()
        elif self._timer is None:
            self._timer = loop.call_later(self._gather_s, self._let_go)
        await passed

    def _note(self, feed_id: int, now: float) -> None:
        """Note an append; the oldest come first, so that they are forgotten without a look at the others."""
        self._lately.pop(feed_id, None)
        self._lately[feed_id] = now
        while self._lately[oldest := next(iter(self._lately))] < now - LATELY_S:
            del self._lately[oldest]

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        self._vain = self._vain + 1 if len(waiting) == 1 else 0
        if self._vain == VAIN_TURNS:
            self._vain, self._rests_until = 0, asyncio.get_running_loop().time() + REST_S
        for passed in waiting:
            if not passed.done():
                passed.set_result(None)
