"""Who was refused what, for the audit log: bounded, for a client that may not do something often tries again at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncEngine

from app.domain.access import Principal
from app.domain.audit import Refusal
from app.store.audit import note_refusal

NOTED_EVERY_SECONDS = 60.0
"""Of equal refusals (the same caller, the same route) one has an entry in so many seconds; the next one says how many were between them."""

REMEMBERED = 1_024


class RefusalLog:
    """Writes refusals to the audit log.

    Args:
        engine: of the database.
        clock: seconds, never going back.
    """

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._noted: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    async def note(self, principal: Principal, refusal: Refusal) -> None:
        """Write an entry, or count the refusal for the next one."""
        which, now = (f"{principal.kind}:{principal.name}", refusal.request), self._clock()
        noted_at, repeats = self._noted.get(which, (None, 0))
        if noted_at is not None and now - noted_at < NOTED_EVERY_SECONDS:
            self._noted[which] = noted_at, repeats + 1
            return
        self._noted[which] = now, 0
        self._noted.move_to_end(which)
        if len(self._noted) > REMEMBERED:
            self._noted.popitem(last=False)
        await note_refusal(self._engine, principal, replace(refusal, repeats=repeats))
