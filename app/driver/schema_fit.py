"""A driver uses only a schema that its version knows. On another one it waits and logs a warning.

If it exited instead, its supervisor would start it again and again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

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


def await_schema(dsn: str, is_wanted: Callable[[], bool], pause: Callable[[float], None] = time.sleep) -> bool:
    """Return True once this version can use the schema, False once ``is_wanted`` returns False."""
    logged, logged_at = None, float("-inf")
    while is_wanted():
        problem = schema_problem(dsn)
        if problem is None:
            return True
        if problem != logged or time.monotonic() - logged_at > SAY_EVERY_S:
            log.warning("driver_waits_for_schema", detail=problem)
            logged, logged_at = problem, time.monotonic()
        pause(LOOK_EVERY_S)
    return False


def has_parent(pid: int | None) -> bool:
    """Whether the supervisor that started this process is still its parent; True if there is none."""
    return pid is None or os.getppid() == pid
