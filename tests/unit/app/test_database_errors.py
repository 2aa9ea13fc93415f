"""What a failure of the database means for a request. A fault that passes by itself is never a 500."""

from __future__ import annotations

import psycopg
import psycopg_pool
import pytest
import sqlalchemy as sa
from psycopg import errors

from app.http.answers.database_errors import DATABASE_ERRORS, from_database

CASES = [
    (errors.IdleInTransactionSessionTimeout("ended"), 503, "database_unavailable"),
    (errors.TransactionTimeout("ended"), 503, "database_unavailable"),
    (errors.AdminShutdown("shut down"), 503, "database_unavailable"),
    (errors.CrashShutdown("crashed"), 503, "database_unavailable"),
    (errors.CannotConnectNow("starting up"), 503, "database_unavailable"),
    (errors.IdleSessionTimeout("idle"), 503, "database_unavailable"),
    (errors.OutOfMemory("no memory"), 503, "database_unavailable"),
    (errors.IoError("input/output error"), 503, "database_unavailable"),
    (psycopg.OperationalError("server closed the connection"), 503, "database_unavailable"),
    (psycopg.InterfaceError("the connection is closed"), 503, "database_unavailable"),
    (psycopg_pool.PoolTimeout("no connection"), 503, "database_unavailable"),
    (errors.DeadlockDetected("deadlock"), 503, "database_busy"),
    (errors.SerializationFailure("could not serialize"), 503, "database_busy"),
    (errors.LockNotAvailable("lock timeout"), 503, "database_busy"),
    (errors.TooManyConnections("too many clients"), 503, "database_busy"),
    (errors.DiskFull("no space left"), 503, "database_full"),
    (errors.ReadOnlySqlTransaction("read only"), 503, "database_read_only"),
    (errors.QueryCanceled("statement timeout"), 504, "read_too_expensive"),
    (errors.DataCorrupted("a page is damaged"), 500, "internal_error"),
    (errors.InFailedSqlTransaction("aborted"), 500, "internal_error"),
]


@pytest.mark.parametrize(("error", "status", "code"), CASES)
def test_an_error_of_the_driver_says_what_it_means(error: Exception, status: int, code: str) -> None:
    assert isinstance(error, DATABASE_ERRORS)
    found = from_database(error, "/v1/queries", 10_000)
    assert (found.status, found.code) == (status, code)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [case for case in CASES if isinstance(case[0], psycopg.Error) and "Pool" not in type(case[0]).__name__],
)
def test_the_same_error_through_sqlalchemy_means_the_same(error: psycopg.Error, status: int, code: str) -> None:
    wrapped = sa.exc.DBAPIError.instance(
        "SELECT 1", None, error, psycopg.Error, dialect=sa.create_engine("postgresql+psycopg://").dialect
    )
    assert isinstance(wrapped, DATABASE_ERRORS)
    found = from_database(wrapped, "/v1/queries", 10_000)
    assert (found.status, found.code) == (status, code)
