"""What a failure of the database means for a request: too expensive, busy, full, or not available."""

from __future__ import annotations

import psycopg
import psycopg_pool
import sqlalchemy as sa
import structlog

from app.db.admission import database_busy
from app.db.database import PoolBusy
from app.errors.app_errors import AppError, Internal, TooExpensive, Unavailable
from engine.postgres.postgres import ENDED_BY_POSTGRES

RETRY_AFTER_SECONDS = 1
FULL_RETRY_AFTER_SECONDS = 30  # a person must free space

log = structlog.stdlib.get_logger(__name__)

DATABASE_ERRORS = (
    sa.exc.OperationalError,
    sa.exc.InternalError,
    sa.exc.InterfaceError,
    sa.exc.TimeoutError,
    psycopg.OperationalError,
    psycopg.InternalError,
    psycopg.InterfaceError,
    psycopg_pool.PoolTimeout,
)
"""Errors of the database, or of the connection to it. Some of ``InternalError`` are permanent: see ``from_database``."""

_LOST_RACES = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)


def read_too_expensive(
    what: str, timeout_ms: int, cure: str = "Ask for less: a narrower time, fewer with `limit`"
) -> TooExpensive:
    return TooExpensive(
        "read_too_expensive",
        f"{what}: the database did not finish within {timeout_ms} ms. {cure}; or raise SLACKWATER_LIMITS__READ_TIMEOUT_MS",
    )


def from_database(error: Exception, what: str, timeout_ms: int) -> AppError:
    """Return what a failure of the database means for a request.

    Args:
        error: one of ``DATABASE_ERRORS``.
        what: the request's path.
        timeout_ms: the limit of reads.
    """
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    match cause:
        case psycopg.errors.QueryCanceled():
            return read_too_expensive(what, timeout_ms)
        case _ if isinstance(cause, _LOST_RACES):
            return _unavailable("database_busy", "an edit that is under way holds what this request needs; try again in a moment")
        case PoolBusy() | sa.exc.TimeoutError():
            return database_busy()
        case psycopg.errors.DiskFull():
            detail = "the database's disk is full: nothing was written; free space there, then try again"
            return _unavailable("database_full", detail, FULL_RETRY_AFTER_SECONDS)
        case psycopg.errors.ReadOnlySqlTransaction():
            detail = "the database takes no writes: it is a replica, or was made read only; SLACKWATER_DATABASE_URL must name the primary"
            return _unavailable("database_read_only", detail)
        case _ if _is_refused(cause):
            return _unavailable(
                "database_busy",
                "the database takes no more connections: raise its max_connections, or lower SLACKWATER_POOL_SIZE",
            )
        case psycopg.InternalError() if not isinstance(cause, ENDED_BY_POSTGRES):
            return Internal("internal_error", "the database reports a fault of its own; please report it with the request id")
        case _:
            detail = "the database did not answer; try again in a moment (`slackwater doctor` looks for the cause)"
            return _unavailable("database_unavailable", detail)


def translate_and_log(error: Exception, what: str, timeout_ms: int) -> AppError:
    """Translate as ``from_database``; log temporary failures as a warning, others as an error."""
    translated = from_database(error, what, timeout_ms)
    if translated.status == Internal.status:
        log.error("request_failed", exc_info=error)
    else:
        log.warning("database_refused", code=translated.code, error=str(error))
    return translated


def _is_refused(cause: BaseException | None) -> bool:
    """Return whether Postgres has no free connection. The error then has no code, and its text may be in any language."""
    if isinstance(cause, psycopg.errors.TooManyConnections):
        return True
    return any(text in str(cause) for text in ("too many clients", "too many connections", "connection slots"))


def _unavailable(code: str, detail: str, retry_after_s: int = RETRY_AFTER_SECONDS) -> Unavailable:
    return Unavailable(code, detail, headers={"Retry-After": str(retry_after_s)})
