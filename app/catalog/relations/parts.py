"""Streams into which several queries write (``into.append_to``): each query's result is its own stream, and a part of the other one.

A reader of the whole stream reads its parts too, and is recorded as their reader, so that a part is not deleted before its readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from app.access.audit.sql import Action, Change, note
from app.access.rules import visible
from app.catalog.stored.catalog import output_of
from app.catalog.stored.queries import relaunch
from app.db.database import raw
from app.db.tables import query, query_read, relation
from app.errors.app_errors import Conflict, Fault
from engine.errors import Problem
from engine.log.dropped_feeds import drop_feed
from engine.plan.build import column_faults
from engine.plan.model import Output, RelationSchema

_WHOLE = relation.c.definition["append_to"].as_string()


def parts_of(connection: sa.Connection, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of the parts of each of these streams that has parts, in order of creation."""
    rows = connection.execute(
        sa.select(_WHOLE.label("whole"), relation.c.name)
        .where(relation.c.origin == "derived", _WHOLE.in_(list(names)))
        .order_by(relation.c.created_at, relation.c.name)
    )
    parts: dict[str, list[str]] = {}
    for whole, name in rows:
        parts.setdefault(whole, []).append(name)
    return parts


def parts_in_order(name: str) -> sa.Select[Any]:
    """Return the statement for the names of a stream's parts, in order of creation."""
    names = sa.select(relation.c.name).where(is_part_of(sa.literal(name)))
    return names.order_by(relation.c.created_at, relation.c.name)


def is_part_of(wholes: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Return the condition under which a relation is a part of one of these streams.

    Args:
        wholes: compared with the stream's name, such as ``ANY(…)``.
    """
    return sa.and_(relation.c.origin == "derived", wholes == _WHOLE)


def writers_into(connection: sa.Connection, name: str) -> list[str]:
    rows = connection.execute(
        sa.select(query.c.name)
        .join_from(relation, query, relation.c.produced_by == query.c.id)
        .where(relation.c.origin == "derived", _WHOLE.is_not_distinct_from(name))
        .order_by(query.c.name)
    )
    return list(rows.scalars())


def refuse_if_written(connection: sa.Connection, name: str) -> None:
    """Refuse to remove a stream to which queries append.

    Raises:
        Conflict: ``relation_in_use``.
    """
    writers = writers_into(connection, name)
    if writers:
        raise written_by(name, writers)


def written_by(name: str, writers: Iterable[str]) -> Conflict:
    shown = [visible(writer) for writer in writers]
    faults = [Fault("", "written_by", f"query '{writer}' appends to '{name}'") for writer in shown]
    return Conflict("relation_in_use", f"{', '.join(shown)} append to '{name}'; delete or change the query first", faults)


def parts_left(connection: sa.Connection, name: str) -> Sequence[Any]:
    """Return the parts of a stream whose queries were deleted: id, name and definition of each."""
    return connection.execute(
        sa.select(relation.c.id, relation.c.name, relation.c.definition)
        .where(relation.c.origin == "derived", relation.c.produced_by.is_(None), _WHOLE.is_not_distinct_from(name))
        .order_by(relation.c.name)
    ).all()


def column_faults_of_left(connection: sa.Connection, name: str, after: RelationSchema) -> list[Problem]:
    """Return why records in parts of deleted queries would no longer fit the stream."""
    columns = (output_of(part.definition).columns for part in parts_left(connection, name))
    return [fault for each in columns for fault in column_faults(each, after.columns, after.key)]


def drop_parts(connection: sa.Connection, name: str) -> None:
    """Delete the parts of a deleted stream whose queries were deleted; they have no readers."""
    for row in parts_left(connection, name):
        drop_feed(raw(connection), row.name)
        connection.execute(sa.delete(relation).where(relation.c.id == row.id))
        note(connection, Change(Action.DELETE, "stream", row.name, {"definition": row.definition}, None))


def tell_readers(connection: sa.Connection, part_id: UUID, output: Output) -> None:
    """Record the readers of a stream as readers of its new part, and restart them."""
    if output.append_to is None:
        return
    readers = (
        sa.select(query_read.c.query_id)
        .join_from(query_read, relation, query_read.c.relation_id == relation.c.id)
        .where(relation.c.name == output.append_to)
    )
    for reader in connection.execute(readers).scalars().all():
        connection.execute(sa.insert(query_read).values(query_id=reader, relation_id=part_id))
        relaunch(connection, reader, f"'{output.name}' appends to '{output.append_to}' from now on")
