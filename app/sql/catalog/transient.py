"""Queries that run as long as they have readers: for SELECT ... EMIT that does more than filter single rows.

Readers of equal definitions share one query; its result is a stream that each reader follows from its own start. Every reader has a row
with an expiry and renews it. The last reader that leaves deletes the query; a sweep deletes queries of readers whose process died.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

import sqlalchemy as sa
import structlog
from anyio import to_thread

from app.access.rules import refuse_beyond_scope
from app.access.scopes import names_in
from app.catalog.queries.edits import create_query, delete_query
from app.catalog.stored.queries import find_query
from app.db.database import Database, lock_edits
from app.db.tables import query, query_status, transient_reader
from app.errors.app_errors import AppError, TooManyRequests
from app.http.requests.conditions import Preconditions
from engine.definition.queries import QueryDefinition

PREFIX: Final = "transient_"
"""Prefix of the names of these queries and of their results."""

log = structlog.stdlib.get_logger(__name__)

LEASE: Final = timedelta(seconds=30)
RENEWED_EVERY_S: Final = 10.0


def named(definition: QueryDefinition) -> QueryDefinition:
    """Return a definition with the name that all readers of equal definitions share; its result has the same name."""
    text = json.dumps(definition.model_dump(mode="json", by_alias=True), sort_keys=True)
    name = PREFIX + hashlib.sha256(text.encode()).hexdigest()[:16]
    return definition.model_copy(update={"name": name, "into": definition.into.model_copy(update={"stream": name})})


def join(connection: sa.Connection, definition: QueryDefinition, text: str, most: int, cores: int) -> UUID:
    """Become a reader of a query; create the query for its first reader.

    Args:
        connection: to the database, in a transaction.
        definition: of the query.
        text: the statement.
        most: how many of these queries may be there.
        cores: how many a query can use.

    Raises:
        TooManyRequests: ``too_many_transient_queries``.
        DefinitionInvalid: with every problem.
    """
    refuse_beyond_scope(name for name in names_in(definition) if not name[1].startswith(PREFIX))
    lock_edits(connection)
    if find_query(connection, definition.name) is None:
        _refuse_too_many(connection, most)
        create_query(connection, definition, cores)
        connection.execute(
            sa.update(query).where(query.c.name == definition.name, query.c.deleted_at.is_(None)).values(statement=text)
        )
    reader = uuid4()
    connection.execute(sa.insert(transient_reader).values(id=reader, query=definition.name, expires_at=_expiry()))
    return reader


def renew(connection: sa.Connection, reader: UUID, name: str) -> str | None:
    """Renew a reader; return why the query has failed, None if it has not."""
    connection.execute(sa.update(transient_reader).where(transient_reader.c.id == reader).values(expires_at=_expiry()))
    statement = (
        sa.select(query_status.c.state, query_status.c.error)
        .join_from(query, query_status)
        .where(query.c.name == name, query.c.deleted_at.is_(None))
    )
    status = connection.execute(statement).one_or_none()
    if status is None:
        return "the query was deleted"
    return str((status.error or {}).get("detail", "the query has failed")) if status.state == "failed" else None


def leave(connection: sa.Connection, reader: UUID) -> None:
    """End a reader; the last one deletes the query."""
    lock_edits(connection)
    connection.execute(sa.delete(transient_reader).where(transient_reader.c.id == reader))
    sweep(connection)


def sweep(connection: sa.Connection) -> None:
    lock_edits(connection)
    connection.execute(sa.delete(transient_reader).where(transient_reader.c.expires_at < sa.func.now()))
    for name in _unread(connection):
        delete_query(connection, name, keeps_result=False, conditions=Preconditions())


async def sweep_periodically(database: Database) -> None:
    """Delete transient queries without readers, until cancelled: those of readers whose process died."""
    while True:
        await asyncio.sleep(LEASE.total_seconds())
        try:
            async with database.control_turns.taken():
                await to_thread.run_sync(_sweep_once, database, abandon_on_cancel=True)
        except (sa.exc.SQLAlchemyError, AppError) as error:
            log.warning("transient_sweep_failed", error=str(error))


def _sweep_once(database: Database) -> None:
    with database.control.begin() as connection:
        expired = sa.select(sa.func.count()).where(transient_reader.c.expires_at < sa.func.now())
        if connection.execute(expired).scalar_one() or _unread(connection):
            sweep(connection)


def _unread(connection: sa.Connection) -> list[str]:
    read = sa.select(transient_reader.c.query)
    names = sa.select(query.c.name).where(
        sa.func.starts_with(query.c.name, PREFIX), query.c.deleted_at.is_(None), query.c.name.not_in(read)
    )
    return list(connection.execute(names).scalars())


def _refuse_too_many(connection: sa.Connection, most: int) -> None:
    counted = sa.select(sa.func.count()).where(sa.func.starts_with(query.c.name, PREFIX), query.c.deleted_at.is_(None))
    if connection.execute(counted).scalar_one() >= most:
        detail = (
            f"{most} queries run for readers of SELECT … EMIT already (SLACKWATER_SQL__MAX_TRANSIENT_QUERIES); end some, or make a result that "
            "all of them read: CREATE TABLE … AS SELECT …"
        )
        raise TooManyRequests("too_many_transient_queries", detail, headers={"Retry-After": "10"})


def _expiry() -> sa.ColumnElement[datetime]:
    return sa.func.now() + sa.literal(LEASE, sa.Interval)
