"""Who looks for what is new in all followed logs of a process: one task, and one statement for all logs that are due.

A log is due when the bell has rung for it, and now and then by itself. One statement asks for the ends of all and brings what is new where
that is little, so a log without news costs next to nothing. From one with much a stretch is read in a transaction of its own, and where there
is more it is due again. So nobody waits for a long one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Final

import psycopg
import psycopg_pool
import structlog

from app.catalog.stored.log_pages import Connection
from app.db.database import AWAY
from app.db.notifications import Notifications
from app.errors.app_errors import Unavailable
from app.following.change_log import Heads
from app.following.tails.new_entries import NewEntries
from app.following.tails.tail import Tail

LOOK_AGAIN_SECONDS: Final = 2.0
"""Of a log whose commits ring the bell: a notification can be lost."""

POLL_SECONDS: Final = 0.25
"""Of a log that is appended to without ringing: sources, to which a notification per append would cost more than it is worth."""

PAUSE_SECONDS: Final = 0.025
"""From one look to the next, unless a log has more than one look brings: commits of many queries follow each other within milliseconds, and what
a look costs hardly depends on how many logs it finds something new in."""

RETRY_SECONDS: Final = 1.0
Pool = psycopg_pool.AsyncConnectionPool[Connection]
log = structlog.stdlib.get_logger(__name__)


class _TransactionLostError(Exception):
    """A statement has failed by its own fault: the others need another transaction."""


class _Watched:
    """A tail, and when it is due. Stands at the bell as a waiter."""

    def __init__(self, tail: Tail, woken: asyncio.Event) -> None:
        self.tail = tail
        self.every_s = POLL_SECONDS if tail.source.notifying_query is None else LOOK_AGAIN_SECONDS
        self.due_at = time.monotonic()
        self.listening = ExitStack()
        self._woken = woken

    def set(self) -> None:
        """Be due now."""
        self.due_at = 0.0
        self._woken.set()


class LogPoller:
    """Looks for all tails.

    Args:
        looks: lends a connection in autocommit mode for each look.
        pool: lends one whose transactions see one moment, for what is much.
        bell: tells of commits.
        pause_s: from one look to the next; what has come after a longer silence is looked for at once.
    """

    def __init__(self, looks: Pool, pool: Pool, bell: Notifications, pause_s: float = PAUSE_SECONDS) -> None:
        self._looks = looks
        self._pool = pool
        self._bell = bell
        self._pause_s = pause_s
        self._looks_again_at = 0.0
        self._watched: dict[Tail, _Watched] = {}
        self._woken = asyncio.Event()

    def add(self, tail: Tail) -> None:
        """Look for a tail, until it is gone, has failed or is removed."""
        watched = self._watched[tail] = _Watched(tail, self._woken)
        if (query_id := tail.source.notifying_query) is not None:
            watched.listening.enter_context(self._bell.listening(query_id, watched))
        watched.set()

    def remove(self, tail: Tail) -> None:
        """Look for a tail no longer."""
        if (watched := self._watched.pop(tail, None)) is not None:
            watched.listening.close()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._woken.clear()
            due = self._due(time.monotonic())
            if not due:
                await self._rest()
                continue
            if (pause_s := self._looks_again_at - time.monotonic()) > 0:
                await asyncio.sleep(pause_s)
                continue
            self._looks_again_at = time.monotonic() + self._pause_s
            try:
                await self._look(due)
            except AWAY as error:
                log.warning("tails_interrupted", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    def _due(self, now: float) -> list[_Watched]:
        """Return who is due, longest first; where one is due by itself, also who would soon be: then they go on together."""
        due = [each for each in self._watched.values() if each.due_at <= now]
        if any(each.due_at > 0 for each in due):
            due = [each for each in self._watched.values() if each.due_at <= now + each.every_s / 2]
        return sorted(due, key=lambda each: each.due_at)

    async def _rest(self) -> None:
        """Wait until somebody is due."""
        first = min((each.due_at for each in self._watched.values()), default=None)
        try:
            async with asyncio.timeout(None if first is None else max(0.0, first - time.monotonic())):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _look(self, due: Sequence[_Watched]) -> None:
        for kind in {type(each.tail.source) for each in due}:
            alike = [each for each in due if type(each.tail.source) is kind]
            for each in alike:  # before the look: a ring during it counts
                each.due_at = time.monotonic() + each.every_s
            try:
                async with self._looks.connection() as connection:
                    news = await kind.new_entries_of(
                        connection, [each.tail.source for each in alike], [each.tail.ends for each in alike]
                    )
            except AWAY:
                for each in alike:
                    each.set()
                raise
            except Exception as error:  # noqa: BLE001 - their followers get it
                self._give_up(alike, error)
                continue
            long = [each for place, each in enumerate(alike) if self._has_more(each, news[place])]
            if long:
                await self._read(long)

    def _has_more(self, watched: _Watched, news: NewEntries | Unavailable) -> bool:
        """Take in what is new of one tail, and say whether there is more to read; its faults end that one alone."""
        if isinstance(news, Unavailable):  # followers come again, to another tail
            self._give_up([watched], news)
            return False
        try:
            is_more = watched.tail.take_entries(news)
        except Exception as error:  # noqa: BLE001 - its followers get it
            self._give_up([watched], error)
            return False
        if watched.tail.is_gone:
            self.remove(watched.tail)
        return is_more

    async def _read(self, long: Sequence[_Watched]) -> None:
        """Read a stretch of each; where there is more, it is due again."""
        kind = type(long[0].tail.source)
        try:
            async with self._pool.connection() as connection:
                heads = await kind.heads_of(connection, [each.tail.source for each in long])
                for each, found in zip(long, heads, strict=True):
                    await self._take_in(connection, each, found)
        except AWAY:
            for each in long:
                each.set()
            raise
        except _TransactionLostError:
            for each in long:
                each.set()

    async def _take_in(self, connection: Connection, watched: _Watched, heads: Heads | Unavailable) -> None:
        """Take in a stretch of one tail; its faults end that one alone."""
        if isinstance(heads, Unavailable):
            self._give_up([watched], heads)
            return
        try:
            if await watched.tail.take_in(connection, heads):
                watched.set()
                self._looks_again_at = 0.0
        except AWAY:
            self._put_last(watched.tail)
            raise
        except Exception as error:
            self._give_up([watched], error)
            if isinstance(error, psycopg.Error):
                raise _TransactionLostError from error
        if watched.tail.is_gone:
            self.remove(watched.tail)

    def _put_last(self, tail: Tail) -> None:
        """Let the others go first: what failed may be this one's, as a statement that takes too long."""
        if (watched := self._watched.pop(tail, None)) is not None:
            self._watched[tail] = watched

    def _give_up(self, watched: Iterable[_Watched], error: Exception) -> None:
        for each in watched:
            self.remove(each.tail)
            each.tail.fail(error)
