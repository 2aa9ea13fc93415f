"""Poll all followed logs of a process: one task, and one statement for all logs that are due.

A log is due after a notification, and from time to time without one. One statement reads the ends of all logs, and their new entries if these
are few; so a log without new entries costs almost nothing. If a log has many, one range is read in a transaction of its own. If there is more,
the log is due again, so that the other logs do not wait for a long one.
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

from app.catalog.stored.feeds_read import Connection
from app.db.database import AWAY
from app.db.notifications import Notifications
from app.errors.app_errors import Unavailable
from app.following.change_log import Heads
from app.following.tails.new_entries import NewEntries
from app.following.tails.tail import Tail

LOOK_AGAIN_SECONDS: Final = 2.0
"""For a log whose commits notify: a notification can be lost."""

POLL_SECONDS: Final = 0.25
"""For a log that is appended to without a notification: sources, where one per append would cost more than it is worth."""

PAUSE_SECONDS: Final = 0.025
"""Between two polls, unless a log has more entries than one poll reads. Commits of many queries follow each other within milliseconds, and
the cost of a poll hardly depends on the number of logs with new entries."""

RETRY_SECONDS: Final = 1.0
Pool = psycopg_pool.AsyncConnectionPool[Connection]
log = structlog.stdlib.get_logger(__name__)


class _TransactionLostError(Exception):
    """A statement failed by its own fault: the other logs need another transaction."""


class _Watched:
    """A tail, and when it is due. Notifications of its query call ``set``."""

    def __init__(self, tail: Tail, woken: asyncio.Event) -> None:
        self.tail = tail
        self.every_s = POLL_SECONDS if tail.source.notifying_query is None else LOOK_AGAIN_SECONDS
        self.due_at = time.monotonic()
        self.listening = ExitStack()
        self._woken = woken

    def set(self) -> None:
        self.due_at = 0.0
        self._woken.set()


class LogPoller:
    """Polls for all tails.

    Args:
        looks: connections in autocommit mode, one for each poll.
        pool: connections whose transactions see one snapshot, for logs with many new entries.
        bell: notifications of commits.
        pause_s: between two polls; entries after a longer silence are read at once.
    """

    def __init__(self, looks: Pool, pool: Pool, bell: Notifications, pause_s: float = PAUSE_SECONDS) -> None:
        self._looks = looks
        self._pool = pool
        self._notifications = bell
        self._pause_s = pause_s
        self._looks_again_at = 0.0
        self._watched: dict[Tail, _Watched] = {}
        self._woken = asyncio.Event()

    def add(self, tail: Tail) -> None:
        """Poll for a tail until its log is gone, the tail fails, or it is removed."""
        watched = self._watched[tail] = _Watched(tail, self._woken)
        if (query_id := tail.source.notifying_query) is not None:
            watched.listening.enter_context(self._notifications.listening(query_id, watched))
        watched.set()

    def remove(self, tail: Tail) -> None:
        if (watched := self._watched.pop(tail, None)) is not None:
            watched.listening.close()

    async def run(self) -> None:
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
        """Return the tails that are due, longest first. If one is due by its time, add those that are due soon: one poll serves all."""
        due = [each for each in self._watched.values() if each.due_at <= now]
        if any(each.due_at > 0 for each in due):
            due = [each for each in self._watched.values() if each.due_at <= now + each.every_s / 2]
        return sorted(due, key=lambda each: each.due_at)

    async def _rest(self) -> None:
        first = min((each.due_at for each in self._watched.values()), default=None)
        try:
            async with asyncio.timeout(None if first is None else max(0.0, first - time.monotonic())):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _look(self, due: Sequence[_Watched]) -> None:
        for kind in {type(each.tail.source) for each in due}:
            same_kind = [each for each in due if type(each.tail.source) is kind]
            for each in same_kind:  # before the poll: a notification during it counts
                each.due_at = time.monotonic() + each.every_s
            try:
                async with self._looks.connection() as connection:
                    news = await kind.new_entries_of(
                        connection, [each.tail.source for each in same_kind], [each.tail.ends for each in same_kind]
                    )
            except AWAY:
                for each in same_kind:
                    each.set()
                raise
            except Exception as error:  # noqa: BLE001 - the followers of these tails raise it
                self._give_up(same_kind, error)
                continue
            long = [each for place, each in enumerate(same_kind) if self._has_more(each, news[place])]
            if long:
                await self._read(long)

    def _has_more(self, watched: _Watched, news: NewEntries | Unavailable) -> bool:
        """Add the new entries to one tail, and return whether there are more to read. A failure ends this tail alone."""
        if isinstance(news, Unavailable):  # followers come again, to another tail
            self._give_up([watched], news)
            return False
        try:
            is_more = watched.tail.take_entries(news)
        except Exception as error:  # noqa: BLE001 - the followers of the tail raise it
            self._give_up([watched], error)
            return False
        if watched.tail.is_gone:
            self.remove(watched.tail)
        return is_more

    async def _read(self, long: Sequence[_Watched]) -> None:
        """Read one range for each tail. If a log has more, its tail is due again."""
        kind = type(long[0].tail.source)
        try:
            async with self._pool.connection() as connection:
                heads = await kind.heads_of(connection, [each.tail.source for each in long])
                for each, heads_of_tail in zip(long, heads, strict=True):
                    await self._take_in(connection, each, heads_of_tail)
        except AWAY:
            for each in long:
                each.set()
            raise
        except _TransactionLostError:
            for each in long:
                each.set()

    async def _take_in(self, connection: Connection, watched: _Watched, heads: Heads | Unavailable) -> None:
        """Read one range for one tail. A failure ends this tail alone."""
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
        """Poll this tail after the others: it may have caused the failure, for example with a slow statement."""
        if (watched := self._watched.pop(tail, None)) is not None:
            self._watched[tail] = watched

    def _give_up(self, watched: Iterable[_Watched], error: Exception) -> None:
        for each in watched:
            self.remove(each.tail)
            each.tail.fail(error)
