"""Connections that notice when the database is gone without a word.

A connection may be dead and never end: a host that lost its power, a firewall that forgot it, a server that hangs. TCP needs a quarter of
an hour to say so, and something in between that goes on acknowledging never does. A limit on every statement would be wrong, too: some
work for minutes. So when a statement is not answered for a while, a thread of the process asks the database itself, on a new connection,
whether it works on it. Where the database twice cannot be reached, or twice waits for us as we wait for it, the socket is shut:
whoever waits gets ``psycopg.OperationalError``, as for any lost connection.

They also know the schemas of their installation, and translate statements for them: ``engine.postgres.schemas``.
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
"""How often the thread looks whether somebody waits for long."""

_LINK_DEFAULTS: Final = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}
"""What TCP itself notices within half a minute instead of two hours; a URL that says otherwise is obeyed."""

_PROBE_SQL: Final = """
    SELECT pg_backend_pid(),
        array(SELECT pid FROM pg_stat_activity WHERE pid = ANY(%s) AND wait_event IS DISTINCT FROM 'ClientRead')
"""

_REFUSED: Final = re.compile(r"failed: \w+ ?: ")
"""Who refuses a connection says how severe that is, as in ``failed: FATAL:  too many clients``; psycopg tells it in the text alone. Where
nobody answers there is no such word."""


class _Link:
    """What is known of one connection.

    Attributes:
        patience_s: how long a statement may go unanswered before somebody asks; None: never, as of a connection that listens.
        waiting_since: by the monotonic clock; None while nothing is asked. Written by whoever uses the connection.
        suspected: ``waiting_since`` of the wait that one look has found in vain.
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
        """The socket; None where the connection is closed."""
        connection = self._connection()
        if connection is None or connection.closed:
            return None
        with suppress(psycopg.OperationalError):
            return connection.fileno()
        return None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked and no transaction is open."""
        connection = self._connection()
        return (
            self.waiting_since is None and connection is not None and connection.info.transaction_status == TransactionStatus.IDLE
        )

    def is_overdue(self, now: float) -> bool:
        """Whether an answer is missing for longer than ``patience_s``, and does not lie unread in the socket."""
        since = self.waiting_since
        if since is None or self.patience_s is None or now - since < self.patience_s:
            return False
        fileno = self.fileno
        return fileno is not None and not _has_something(fileno)

    def shut(self) -> None:
        """End the connection under whoever waits on it."""
        if (fileno := self.fileno) is not None:
            _shut(fileno)


class Watch:
    """The links of one process, and the thread that looks after them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: weakref.WeakSet[_Link] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def add(self, connection: psycopg.BaseConnection[Any], dsn: str, patience_s: float | None) -> _Link:
        """Look after a connection for as long as it exists."""
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
        """Shut the links that two looks found dead; with them those that lie idle, which most likely are dead as well."""
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
    """Return those of some server processes that do nothing for us: all, where the database cannot be reached.

    None where it answers and cannot say: it refuses new connections, or a pooler stands in between whose process ids mean nothing.
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
    """A ``psycopg.Connection`` that is watched; ``connect`` takes ``patience_s`` besides."""

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
    """The same, asynchronous."""

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
    """Whether an idle connection is open; one that the server has ended has that to tell, and else there is nothing to read."""
    return not connection.closed and not _has_something(connection.fileno())


def _completed(conninfo: str, options: dict[str, Any]) -> dict[str, Any]:
    """Add to the options of a connection what neither they nor its DSN say about a dead link; the server's settings of both count."""
    said = conninfo_to_dict(conninfo)
    completed = {name: value for name, value in _LINK_DEFAULTS.items() if name not in said} | options
    if "options" in said and "options" in options:
        completed["options"] = f"{said['options']} {options['options']}"
    return completed


def _schemas(conninfo: str, completed: Mapping[str, Any]) -> Schemas:
    return Schemas.of_options(completed["options"]) if "options" in completed else Schemas.of(conninfo)


def _target(options: dict[str, Any]) -> dict[str, Any]:
    """Pick from the options of a connection what says where it goes."""
    return {name: options[name] for name in ("host", "hostaddr", "port", "dbname", "user", "password") if name in options}


def _has_something(fileno: int) -> bool:
    """Whether there is something to read, an end among it; ``select`` knows no numbers above 1,023."""
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))


def _shut(fileno: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(fileno)) as half:
        half.shutdown(socket.SHUT_RDWR)


_watches: dict[int, Watch] = {}
"""By process id: a forked worker has no thread of its parent's."""


def _watch() -> Watch:
    return _watches.setdefault(os.getpid(), Watch())
