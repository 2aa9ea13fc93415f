"""What every transaction that changes the set of relations or queries shares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
import sqlalchemy as sa

from engine.postgres.schemas import schemas_of

# Any number, the same in every process. Such edits are rare and touch names, catalogs and readers at once: one at a time is simple and right.
EDIT_LOCK = 0x51AE


def lock_edits(connection: sa.Connection) -> None:
    """Let one transaction at a time change what exists and who reads it; held until it ends."""
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(schemas_of(raw(connection)).lock(EDIT_LOCK))))


@contextmanager
def edit_of_one_moment(engine: sa.Engine, *, is_frozen: bool) -> Iterator[sa.Connection]:
    """Open the transaction of an edit that copies what queries have committed.

    Its lock is taken before the transaction begins: a snapshot that was taken before waiting for it would not show the edit before.

    Args:
        engine: of edits.
        is_frozen: all of it sees the database as of its first statement (REPEATABLE READ). It may fail with ``SerializationFailure``.
    """
    with engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(sa.select(sa.func.pg_advisory_lock(schemas_of(raw(connection)).lock(EDIT_LOCK))))
        connection.commit()
        try:
            connection.execution_options(isolation_level="REPEATABLE READ" if is_frozen else "READ COMMITTED")
            with connection.begin():
                yield connection
        finally:
            if not connection.invalidated:  # else its session has ended, and the lock with it
                connection.execution_options(isolation_level="AUTOCOMMIT")
                connection.execute(sa.select(sa.func.pg_advisory_unlock(schemas_of(raw(connection)).lock(EDIT_LOCK))))
                connection.commit()


def raw(connection: sa.Connection) -> psycopg.Connection[Any]:
    """Return the psycopg connection below, for the connectors' statements in the same transaction."""
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)
