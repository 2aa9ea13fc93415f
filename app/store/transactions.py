"""What every transaction that changes the set of relations or queries shares."""

from __future__ import annotations

from typing import Any, cast

import psycopg
import sqlalchemy as sa

from engine.connectors.schemas import schemas_of

# Any number, the same in every process. Such edits are rare and touch names, catalogs and readers at once: one at a time is simple and right.
EDIT_LOCK = 0x51AE


def lock_edits(connection: sa.Connection) -> None:
    """Let one transaction at a time change what exists and who reads it; held until it ends."""
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(schemas_of(raw(connection)).lock(EDIT_LOCK))))


def raw(connection: sa.Connection) -> psycopg.Connection[Any]:
    """Return the psycopg connection below, for the connectors' statements in the same transaction."""
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)
