"""A driver works only on a schema that its version knows. On another one it waits and says so.

Ending instead would make whoever keeps the driver alive start it again and again.
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
    """Say why this version cannot work on a database's schema; None where it can, or where the database is away."""
    try:
        with LinkedConnection.connect(dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS) as connection:
            return look_at_schema(connection).problem
    except DATABASE_AWAY:
        return None


def await_schema(dsn: str, is_wanted: Callable[[], bool], pause: Callable[[float], None] = time.sleep) -> bool:
    """Return True once this version can work on the schema, False once nobody wants it to any more."""
    said, said_at = None, float("-inf")
    while is_wanted():
        problem = schema_problem(dsn)
        if problem is None:
            return True
        if problem != said or time.monotonic() - said_at > SAY_EVERY_S:
            log.warning("driver_waits_for_schema", detail=problem)
            said, said_at = problem, time.monotonic()
        pause(LOOK_EVERY_S)
    return False


def has_parent(pid: int | None) -> bool:
    """Whether the supervisor that started this process is there still; True where there is none."""
    return pid is None or os.getppid() == pid
