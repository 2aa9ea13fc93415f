"""Transactions that change the set of relations or queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
import sqlalchemy as sa

from engine.postgres.schemas import schemas_of

# Any number, the same in every process. Such edits are rare and touch names, catalogs and readers, so one at a time is simple and correct.
EDIT_LOCK = 0x51AE


def lock_edits(connection: sa.Connection) -> None:
    """Lock against other edits of relations, queries and their readers; the lock lasts until the transaction ends."""
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(schemas_of(raw(connection)).lock(EDIT_LOCK))))


@contextmanager
def edit_of_one_moment(engine: sa.Engine, *, is_frozen: bool) -> Iterator[sa.Connection]:
    """Open the transaction of an edit that copies what queries have committed.

    The lock is taken before the transaction begins. A snapshot from before the wait for the lock would not show the previous edit.

    Args:
        engine: of edits.
        is_frozen: every statement sees the database as of the first one (REPEATABLE READ). It may fail with ``SerializationFailure``.
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
            if not connection.invalidated:  # otherwise the session has ended, and its lock too
                connection.execution_options(isolation_level="AUTOCOMMIT")
                connection.execute(sa.select(sa.func.pg_advisory_unlock(schemas_of(raw(connection)).lock(EDIT_LOCK))))
                connection.commit()


def raw(connection: sa.Connection) -> psycopg.Connection[Any]:
    """Return the psycopg connection inside, for the connectors' statements in the same transaction."""
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)
