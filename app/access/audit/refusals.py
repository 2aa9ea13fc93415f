"""Records denied requests in the audit log. It is bounded, because a denied client often tries again at once, or tries every name."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

import psycopg
import sqlalchemy as sa
import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from app.access.audit.sql import Refusal, note_refusal
from app.access.rules import Principal

NOTED_EVERY_SECONDS = 60.0
"""Equal denials (caller, route, name and code) get one entry in this time. The next entry says how many came between."""

MOST_OF_CALLER = 30
"""Most entries of one caller in that time. Further denials are counted by route and code, without the name, in one later entry."""

REMEMBERED = 1_024
LAST_SECONDS = 5.0
"""How long a service that stops waits until its last counts are written."""

_Which = tuple[str, str, str | None, str]
log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _Counted:
    """Equal denials.

    Attributes:
        since: when the last entry was written, or the first denial was counted.
        refusal: the last one.
        pending: how many no entry counts yet.
    """

    since: float
    principal: Principal
    refusal: Refusal
    pending: int = 0


class RefusalLog:
    """Writes denied requests to the audit log."""

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._counted: OrderedDict[_Which, _Counted] = OrderedDict()
        self._entries_by_caller: dict[str, int] = {}
        self._minute_started_at = float("-inf")

    async def note(self, principal: Principal, refusal: Refusal) -> None:
        """Write an entry, or count the denial for a later one."""
        now, caller = self._clock(), f"{principal.kind}:{principal.name}"
        if now - self._minute_started_at >= NOTED_EVERY_SECONDS:
            self._minute_started_at, self._entries_by_caller = now, {}
        which = caller, refusal.request, refusal.name, refusal.code
        counted = self._counted.get(which)
        if counted is None or now - counted.since >= NOTED_EVERY_SECONDS:
            if self._entries_by_caller.get(caller, 0) < MOST_OF_CALLER:
                self._entries_by_caller[caller] = self._entries_by_caller.get(caller, 0) + 1
                await self._enter(which, _Counted(now, principal, refusal, 0 if counted is None else counted.pending))
                return
            which, refusal = (caller, refusal.request, None, refusal.code), replace(refusal, name=None)
            counted = self._counted.setdefault(which, _Counted(now, principal, refusal))
        counted.principal, counted.refusal = principal, refusal
        counted.pending += 1
        await self._forget_oldest()

    async def write_counted(self, *, is_last: bool = False) -> None:
        """Write an entry for each count older than a minute, or for all counts; forget callers without new denials."""
        now = self._clock()
        for which, counted in list(self._counted.items()):
            if not is_last and now - counted.since < NOTED_EVERY_SECONDS:
                continue
            del self._counted[which]
            try:
                await self._write(counted)
            except BaseException:
                self._counted.setdefault(which, counted)
                raise

    async def run(self) -> None:
        """Write the counts every minute until cancelled."""
        while True:
            await asyncio.sleep(NOTED_EVERY_SECONDS)
            await self._safely(is_last=False)

    async def close(self) -> None:
        """Write all counts; stop after ``LAST_SECONDS`` if the database does not answer."""
        await self._safely(is_last=True)

    async def _safely(self, *, is_last: bool) -> None:
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self.write_counted(is_last=is_last)
        except (sa.exc.SQLAlchemyError, psycopg.Error, OSError) as error:
            log.warning("refusals_not_recorded", error=str(error) or type(error).__name__)

    async def _enter(self, which: _Which, counted: _Counted) -> None:
        before, counted.pending = counted.pending, 0
        self._counted[which] = counted
        self._counted.move_to_end(which)
        await note_refusal(self._engine, counted.principal, replace(counted.refusal, repeats=before))
        await self._forget_oldest()

    async def _forget_oldest(self) -> None:
        while len(self._counted) > REMEMBERED:
            _, counted = self._counted.popitem(last=False)
            await self._write(counted)

    async def _write(self, counted: _Counted) -> None:
        """Write one entry for all denials that no entry counts yet."""
        if counted.pending:
            refusal = replace(counted.refusal, repeats=counted.pending - 1)
            await note_refusal(self._engine, counted.principal, refusal)
