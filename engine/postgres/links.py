"""Connections that detect a database that is gone without a message.

A connection may be dead and never end: a host lost its power, a firewall dropped it, a server hangs. TCP needs a quarter of
an hour to report this, and never reports it if something in between still acknowledges. A limit on every statement would be wrong, because
some run for minutes. So if a statement gets no answer for a while, a thread of the process asks the database itself, on a new connection,
whether it works on the statement. The thread shuts the socket if the database twice cannot be reached, or twice waits for us as we wait for
it: the waiting thread gets ``psycopg.OperationalError``, as for any lost connection.

These connections also know the schemas of their installation, and translate statements for them: ``engine.postgres.schemas``.
"""

from __future__ import annotations

import math
import os
import re
import select
import socket
import threading
import time
import weakref
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from engine.postgres.schemas import Named, Schemas, async_cursor_for, cursor_for

RV = TypeVar("RV")

LOOK_S: Final = 0.5
"""Interval at which the thread looks for long waits."""

_LINK_DEFAULTS: Final = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}
"""With these settings TCP itself notices a dead link within half a minute instead of two hours; a URL may override them."""

_PROBE_SQL: Final = """
    SELECT pg_backend_pid(),
        array(SELECT pid FROM pg_stat_activity WHERE pid = ANY(%s) AND wait_event IS DISTINCT FROM 'ClientRead')
"""

_REFUSED: Final = re.compile(r"failed: \w+ ?: ")
"""A server that refuses a connection states a severity, as in ``failed: FATAL:  too many clients``; psycopg shows it only in the text. If
no server answers, there is no such word."""


class _Link:
    """The state of one connection.

    Attributes:
        patience_s: how long a statement may go unanswered before the thread asks; None: never, for a connection that listens.
        waiting_since: by the monotonic clock; None if no statement is running. Written by the user of the connection.
        suspected: ``waiting_since`` of the wait for which one check found no work.
    """

    def __init__(self, connection: psycopg.BaseConnection[Any], dsn: str, patience_s: float | None) -> None:
        self._connection = weakref.ref(connection)
        self.dsn = dsn
        self.patience_s = patience_s
        self.pid = connection.info.backend_pid
        self.waiting_since: float | None = None
        self.suspected: float | None = None

    @property
    def fileno(self) -> int | None:
        """The socket; None if the connection is closed."""
        connection = self._connection()
        if connection is None or connection.closed:
            return None
        with suppress(psycopg.OperationalError):
            return connection.fileno()
        return None

    @property
    def is_idle(self) -> bool:
        """Whether no statement is running and no transaction is open."""
        connection = self._connection()
        return (
            self.waiting_since is None and connection is not None and connection.info.transaction_status == TransactionStatus.IDLE
        )

    def is_overdue(self, now: float) -> bool:
        """Whether an answer is missing for longer than ``patience_s``, and is not unread in the socket."""
        since = self.waiting_since
        if since is None or self.patience_s is None or now - since < self.patience_s:
            return False
        fileno = self.fileno
        return fileno is not None and not _has_something(fileno)

    def shut(self) -> None:
        """End the connection while a thread waits on it."""
        if (fileno := self.fileno) is not None:
            _shut(fileno)


class Watch:
    """The links of one process, and the thread that checks them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: weakref.WeakSet[_Link] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def add(self, connection: psycopg.BaseConnection[Any], dsn: str, patience_s: float | None) -> _Link:
        """Watch a connection for as long as it exists."""
        link = _Link(connection, dsn, patience_s)
        with self._lock:
            self._links.add(link)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look_forever, name="link-watch", daemon=True)
                self._thread.start()
        return link

    def _look_forever(self) -> None:
        while True:
            time.sleep(LOOK_S)
            now = time.monotonic()
            with self._lock:
                links = list(self._links)
            overdue = [link for link in links if link.is_overdue(now)]
            for dsn in {link.dsn for link in overdue}:
                self._close_dead([link for link in overdue if link.dsn == dsn], [link for link in links if link.dsn == dsn])

    def _close_dead(self, overdue: list[_Link], all_links: Iterable[_Link]) -> None:
        """Shut the links that two checks found dead, and also idle ones, which most likely are dead as well."""
        waits = {link: link.waiting_since for link in overdue}
        patience_s = min(link.patience_s or math.inf for link in overdue)
        silent = silent_pids(overdue[0].dsn, {link.pid for link in overdue}, patience_s)
        is_any_dead = False
        for link, since in waits.items():
            if link.pid not in silent or since is None or link.waiting_since != since:
                continue
            if link.suspected == since and link.is_overdue(time.monotonic()):
                link.shut()
                is_any_dead = True
            link.suspected = since
        if is_any_dead:
            for link in all_links:
                if link.is_idle or link.patience_s is None:
                    link.shut()


def silent_pids(dsn: str, pids: Collection[int], patience_s: float) -> set[int]:
    """Return which server processes of ``pids`` do nothing for us: all, if the database cannot be reached.

    None are returned if it answers but cannot decide: it refuses new connections, or a pooler in between has other process ids.
    """
    try:
        seconds = max(2, math.ceil(patience_s))  # libpq takes whole seconds, at least two
        with psycopg.connect(dsn, autocommit=True, connect_timeout=seconds, application_name="slackwater-probe") as connection:
            limit = threading.Timer(patience_s, _shut, (connection.fileno(),))
            limit.start()
            try:
                row = connection.execute(_PROBE_SQL, (list(pids),)).fetchone()
            finally:
                limit.cancel()
            if row is None or row[0] != connection.info.backend_pid:
                return set()
            return set(pids) - set(row[1])
    except psycopg.OperationalError as error:
        is_refused = error.sqlstate is not None or _REFUSED.search(str(error)) is not None
        return set() if is_refused else set(pids)
    except psycopg.Error:
        return set()


class LinkedConnection(Named, psycopg.Connection[Any]):
    """A ``psycopg.Connection`` that is watched; ``connect`` also takes ``patience_s``."""

    link: _Link | None = None

    @classmethod
    def connect(cls, conninfo: str = "", *, patience_s: float | None = None, **kwargs: Any) -> Self:  # type: ignore[override]
        completed = _completed(conninfo, kwargs)
        schemas = _schemas(conninfo, completed)
        connection = super().connect(conninfo, **completed)
        connection.schemas = schemas
        if schemas.prefix:
            connection.cursor_factory = cursor_for(schemas)
        connection.link = _watch().add(connection, psycopg.conninfo.make_conninfo(conninfo, **_target(kwargs)), patience_s)
        return connection

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        link = self.link
        if link is None:
            return super().wait(gen, *args, **kwargs)
        link.waiting_since = time.monotonic()
        try:
            return super().wait(gen, *args, **kwargs)
        finally:
            link.waiting_since = None


class LinkedAsyncConnection(Named, psycopg.AsyncConnection[Any]):
    """The asynchronous form of ``LinkedConnection``."""

    link: _Link | None = None

    @classmethod
    async def connect(  # type: ignore[override]
        cls, conninfo: str = "", *, patience_s: float | None = None, **kwargs: Any
    ) -> Self:
        completed = _completed(conninfo, kwargs)
        schemas = _schemas(conninfo, completed)
        connection = await super().connect(conninfo, **completed)
        connection.schemas = schemas
        if schemas.prefix:
            connection.cursor_factory = async_cursor_for(schemas)
        connection.link = _watch().add(connection, psycopg.conninfo.make_conninfo(conninfo, **_target(kwargs)), patience_s)
        return connection

    async def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        link = self.link
        if link is None:
            return await super().wait(gen, *args, **kwargs)
        link.waiting_since = time.monotonic()
        try:
            return await super().wait(gen, *args, **kwargs)
        finally:
            link.waiting_since = None


def is_usable(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether an idle connection is open: if there is something to read, the server has ended it."""
    return not connection.closed and not _has_something(connection.fileno())


def _completed(conninfo: str, options: dict[str, Any]) -> dict[str, Any]:
    """Add the missing options about dead links to a connection's options; those of its DSN and the server's settings take precedence."""
    said = conninfo_to_dict(conninfo)
    completed = {name: value for name, value in _LINK_DEFAULTS.items() if name not in said} | options
    if "options" in said and "options" in options:
        completed["options"] = f"{said['options']} {options['options']}"
    return completed


def _schemas(conninfo: str, completed: Mapping[str, Any]) -> Schemas:
    return Schemas.of_options(completed["options"]) if "options" in completed else Schemas.of(conninfo)


def _target(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a connection that define its target."""
    return {name: options[name] for name in ("host", "hostaddr", "port", "dbname", "user", "password") if name in options}


def _has_something(fileno: int) -> bool:
    """Whether there is something to read, including an end; ``select`` cannot handle numbers above 1,023."""
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))


def _shut(fileno: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(fileno)) as half:
        half.shutdown(socket.SHUT_RDWR)


_watches: dict[int, Watch] = {}
"""Watches by process id: a forked worker has no threads of its parent."""


def _watch() -> Watch:
    return _watches.setdefault(os.getpid(), Watch())
