"""Batches appends from many writers: they continue together, a moment later.

A single append costs twice as much as one among four, here and in Postgres: other processes use the caches in between, and each append has its
own transaction. So where appends to many feeds arrive, each one waits for others. It does not wait if no other can come. Writers that wait for
their answers before they send more continue as soon as all of them wait. A single writer that writes to many feeds in turn soon does not wait.
"""

from __future__ import annotations

import asyncio
from typing import Final

GATHER_S: Final = 0.02
"""Longest wait of an append for others. A commit takes a few milliseconds, an event of a row some hundred."""

MANY_FEEDS: Final = 8
"""If at least so many feeds had recent appends, others are likely to come within ``GATHER_S``."""

LATELY_S: Final = 0.25
VAIN_TURNS: Final = 3
"""After so many waits in a row without another append, no append waits for ``REST_S``."""

REST_S: Final = 1.0


class Gathering:
    """Lets appends to different feeds continue together.

    Args:
        gather_s: longest wait of an append.
    """

    def __init__(self, gather_s: float = GATHER_S) -> None:
        self._gather_s = gather_s
        self._recent: dict[int, float] = {}
        self._pending: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._lone_waits = 0
        self._rests_until = 0.0

    async def turn(self, feed_id: int) -> None:
        """Wait until it is time to append to a feed; do not wait if few feeds have appends."""
        loop = asyncio.get_running_loop()
        self._note(feed_id, now := loop.time())
        if len(self._recent) < MANY_FEEDS or now < self._rests_until:
            return
        released: asyncio.Future[None] = loop.create_future()
        self._pending.append(released)
        if len(self._pending) >= len(self._recent):  # all recent writers wait
            self._let_go()
        elif self._timer is None:
            self._timer = loop.call_later(self._gather_s, self._let_go)
        await released

    def _note(self, feed_id: int, now: float) -> None:
        """Record an append. The oldest are first, so they can be removed without a look at the others."""
        self._recent.pop(feed_id, None)
        self._recent[feed_id] = now
        while self._recent[oldest := next(iter(self._recent))] < now - LATELY_S:
            del self._recent[oldest]

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        self._lone_waits = self._lone_waits + 1 if len(pending) == 1 else 0
        if self._lone_waits == VAIN_TURNS:
            self._lone_waits, self._rests_until = 0, asyncio.get_running_loop().time() + REST_S
        for released in pending:
            if not released.done():
                released.set_result(None)
