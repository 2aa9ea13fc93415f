"""What the processes of a driver await of the database: a schema that their version knows, and notifications.

On an unknown schema a driver waits and logs a warning. If it exited instead, its supervisor would start it again and again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from app.db.database import CONNECT_TIMEOUT_SECONDS
from app.db.schema_version import look_at_schema
from engine.postgres.links import LinkedConnection
from engine.postgres.postgres import DATABASE_AWAY

LOOK_EVERY_S = 2.0
SAY_EVERY_S = 300.0
log = structlog.stdlib.get_logger(__name__)


def schema_problem(dsn: str) -> str | None:
    """Return why this version cannot use the database's schema; None if it can, or if the database is unreachable."""
    try:
        with LinkedConnection.connect(dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS) as connection:
            return look_at_schema(connection).problem
    except DATABASE_AWAY:
        return None


def await_schema(dsn: str, is_wanted: Callable[[], bool]) -> bool:
    """Return True once this version can use the schema, False once ``is_wanted`` returns False."""
    logged, logged_at = None, float("-inf")
    while is_wanted():
        problem = schema_problem(dsn)
        if problem is None:
            return True
        if problem != logged or time.monotonic() - logged_at > SAY_EVERY_S:
            log.warning("driver_waits_for_schema", detail=problem)
            logged, logged_at = problem, time.monotonic()
        time.sleep(LOOK_EVERY_S)
    return False


def has_parent(pid: int | None) -> bool:
    """Whether the supervisor that started this process is still its parent; True if there is none."""
    return pid is None or os.getppid() == pid


DESIRED_STATES: Final = "slackwater_desired_state"
"""Channel: the desired state of a query was written."""


def listen_forever(dsn: str, channels: Sequence[str], ring: Callable[[str | None], None], pause_s: float) -> None:
    """Call ``ring`` for each notification on a channel. It only shortens the wait: a lost connection for a while is no fault.

    Args:
        dsn: of the database.
        channels: to listen to.
        ring: called for each notification with its payload, and with None after each connect, because earlier notifications are lost.
        pause_s: between a lost connection and the next attempt.
    """
    while True:
        with (
            suppress(*DATABASE_AWAY),
            # No limit for silence: this connection waits for notifications. It ends when other connections are found dead.
            LinkedConnection.connect(dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS) as connection,
        ):
            for channel in channels:
                connection.execute(f"LISTEN {channel}")
            ring(None)
            for notification in connection.notifies():
                ring(notification.payload)
        time.sleep(pause_s)
