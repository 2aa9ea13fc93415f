"""Wakes tasks that wait for a query's facts or commits, by LISTEN. Notifications only shorten polling: a task also checks by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar
from uuid import UUID

import anyio.to_thread
import psycopg
import structlog

from app.db.database import CONNECT_TIMEOUT_SECONDS
from engine.commit.sink import COMMIT_CHANNEL
from engine.postgres.incarnation import notice
from engine.postgres.links import LinkedAsyncConnection
from engine.postgres.postgres import connect

CHANNELS = ("slackwater_fact", COMMIT_CHANNEL)
"""States that drivers write, and commits of sinks; both contain the query's id."""
RECONNECT_SECONDS = 1.0
# A waiting task checks again after this time: a notification can be lost with its connection.
LOOK_AGAIN_SECONDS = 1.0
log = structlog.stdlib.get_logger(__name__)


class Waiter(Protocol):
    """The thing that a notification sets, such as an ``asyncio.Event``."""

    def set(self) -> None:
        """Record the notification."""


W = TypeVar("W", bound=Waiter)


class Notifications:
    """One LISTEN connection for all waiters of a process."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._waiters: dict[str, set[Waiter]] = {}

    async def run(self) -> None:
        """Listen until cancelled; reconnect when the connection is lost."""
        while True:
            try:
                # No limit for silence: this connection waits for notifications. It ends when other connections are found dead.
                async with await LinkedAsyncConnection.connect(
                    self._dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS
                ) as connection:
                    # The database may have been restored while nobody listened.
                    await anyio.to_thread.run_sync(_notice, self._dsn)
                    connection.add_notify_handler(lambda each: self.notify(each.payload))  # notifications with answers
                    for channel in CHANNELS:
                        await connection.execute(f"LISTEN {channel}")
                    # Notifications from before LISTEN are lost: wake every waiter.
                    for query_id in list(self._waiters):
                        self.notify(query_id)
                    await _heard(connection, self.notify)
            except psycopg.Error as error:
                log.warning("notification_connection_lost", error=str(error))
            await asyncio.sleep(RECONNECT_SECONDS)

    @property
    def waiters(self) -> int:
        return sum(map(len, self._waiters.values()))

    def notify(self, query_id: str) -> None:
        """Wake all waiters of this query."""
        for waiter in self._waiters.get(query_id, ()):
            waiter.set()

    @contextmanager
    def listening(self, query_id: UUID, waiter: W) -> Iterator[W]:
        """Yield the waiter that each notification sets. Enter this before the first check, or a notification in between is missed."""
        waiters = self._waiters.setdefault(str(query_id), set())
        waiters.add(waiter)
        try:
            yield waiter
        finally:
            waiters.discard(waiter)
            if not waiters:
                self._waiters.pop(str(query_id), None)


async def _heard(connection: psycopg.AsyncConnection[Any], notify: Callable[[str], None]) -> None:
    """Call ``notify`` for each notification until the connection is lost.

    ``AsyncConnection.notifies`` wakes up ten times a second for nothing, and costs a tenth of a millisecond for each notification.

    Raises:
        psycopg.OperationalError: the connection is lost.
    """
    loop = asyncio.get_running_loop()
    lost: asyncio.Future[None] = loop.create_future()
    link, encoding, number = connection.pgconn, connection.info.encoding, connection.fileno()

    def listen() -> None:
        try:
            link.consume_input()
            while (notification := link.notifies()) is not None:
                notify(notification.extra.decode(encoding))
        except psycopg.Error as error:
            # Remove the reader at once: libpq has closed the socket, and the next connection may get its number.
            loop.remove_reader(number)
            if not lost.done():
                lost.set_exception(error)

    loop.add_reader(number, listen)
    try:
        listen()  # notifications with the answer to LISTEN
        await lost
    finally:
        if not lost.done() or lost.cancelled():
            loop.remove_reader(number)


def _notice(dsn: str) -> None:
    with connect(dsn, "slackwater-notifications") as connection:
        notice(connection)


async def wait_for_notification(event: asyncio.Event, seconds: float) -> None:
    """Wait for a notification, at most ``seconds`` and at most ``LOOK_AGAIN_SECONDS``, and clear the event."""
    try:
        await asyncio.wait_for(event.wait(), min(seconds, LOOK_AGAIN_SECONDS))
    except TimeoutError:
        return
    event.clear()
