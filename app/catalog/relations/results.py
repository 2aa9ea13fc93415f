"""The relation that a query writes: created, changed, deleted or detached in the transaction of the query's edit."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from app.access.audit.sql import Action, Change, note
from app.access.rules import visible
from app.catalog.relations.parts import drop_parts, parts_left, refuse_if_written, tell_readers
from app.catalog.relations.reader_fit import in_use, pin, pinned_readers
from app.catalog.stored.catalog import entry_of, output_of, output_to_json
from app.catalog.stored.queries import QueryRow
from app.catalog.stored.relations import find_relation, readers_of, retained_result
from app.db.database import raw
from app.db.tables import commit, relation
from app.errors.app_errors import Conflict
from engine.commit.history.promoting import rename_result
from engine.commit.views import add_columns, create_view, drop_view
from engine.log.dropped_feeds import drop_feed
from engine.log.sequences import make_result_feed
from engine.log.storage import find_feed, set_retention
from engine.plan.catalog import named_result_feed, result_feed
from engine.plan.model import Output, Plan


def make_result(connection: sa.Connection, query_id: UUID, plan: Plan) -> None:
    """Create the query's result: a view and its change feed, or a log feed; each with a partition for each task (P1)."""
    output, tasks = plan.output, plan.tasks
    existing = find_relation(connection, output.name)
    if existing is not None and existing.kept is not None:
        raise Conflict(
            "name_taken",
            f"'{output.name}' is a result that stayed when the query '{visible(existing.kept['query'])}' was deleted; "
            f"DELETE /v1/{existing.kind}s/{output.name} removes it, or choose another name in `into`",
        )
    if existing is not None:
        raise Conflict("name_taken", f"a {existing.kind} has the name '{output.name}'; choose another name in `into`")
    log_feed = result_feed(output)
    if find_feed(raw(connection), log_feed) is not None:
        raise Conflict("name_taken", f"a feed of sources has the name '{output.name}'; choose another name in `into`")
    if output.kind == "table":
        create_view(raw(connection), output)
    make_result_feed(raw(connection), log_feed, tasks, query_id, output.log_retention_ms)
    relation_id = uuid.uuid4()
    connection.execute(
        sa.insert(relation).values(
            id=relation_id,
            name=output.name,
            kind=output.kind,
            origin="derived",
            produced_by=query_id,
            definition=output_to_json(output),
        )
    )
    tell_readers(connection, relation_id, output)
    note(connection, Change(Action.CREATE, output.kind, output.name, None, {"definition": output_to_json(output)}))


def detach_result(connection: sa.Connection, stored: QueryRow) -> None:
    """Detach the relation from its query, with the position of its content."""
    committed = connection.execute(
        sa.select(commit.c.position, commit.c.stream_time_ms, commit.c.committed_at)
        .where(commit.c.query_id == stored.id, commit.c.checkpoint_id == stored.checkpoint_id)
        .with_for_update()
    ).one_or_none()
    connection.execute(
        sa.update(relation)
        .where(relation.c.produced_by == stored.id)
        .values(
            produced_by=None,
            kept=retained_result(stored.name, committed),
            version=relation.c.version + 1,
            updated_at=sa.func.now(),
        )
    )


def refuse_if_read(connection: sa.Connection, stored: QueryRow) -> None:
    for row in _written(connection, stored.id):
        readers = [name for name in readers_of(connection, [row.id]).get(row.id, []) if name != stored.name]
        if readers:
            raise in_use(row.name, readers)
        for part in parts_left(connection, row.name):
            if others := readers_of(connection, [part.id]).get(part.id):
                raise in_use(part.name, others)
        refuse_if_written(connection, row.name)


def _written(connection: sa.Connection, query_id: UUID) -> Iterable[Any]:
    return connection.execute(
        sa.select(relation.c.id, relation.c.name, relation.c.kind, relation.c.definition).where(
            relation.c.produced_by == query_id
        )
    ).all()


def output_of_query(connection: sa.Connection, query_id: UUID) -> Output:
    (row,) = _written(connection, query_id)
    return output_of(row.definition)


def move_result(connection: sa.Connection, producer: UUID, query_id: UUID, output: Output) -> None:
    """Give a query the result of another one, with the name and the definition of ``output``. The other query then has none."""
    (row,) = _written(connection, producer)
    before = output_of(row.definition)
    connection.execute(
        sa.update(relation)
        .where(relation.c.id == row.id)
        .values(
            name=output.name,
            definition=output_to_json(output),
            produced_by=query_id,
            version=relation.c.version + 1,
            updated_at=sa.func.now(),
        )
    )
    rename_result(raw(connection), before, output, query_id)
    note(connection, Change(Action.DELETE, row.kind, row.name, {"definition": row.definition}, None))
    note(connection, Change(Action.CREATE, row.kind, output.name, None, {"definition": output_to_json(output)}))


def drop_result(connection: sa.Connection, query_id: UUID) -> None:
    for row in _written(connection, query_id):
        if row.kind == "table":
            drop_view(raw(connection), row.name)
        drop_feed(raw(connection), named_result_feed(row.kind, row.name))
        drop_parts(connection, row.name)
        connection.execute(sa.delete(relation).where(relation.c.id == row.id))
        note(connection, Change(Action.DELETE, row.kind, row.name, {"definition": row.definition}, None))


def update_result(connection: sa.Connection, stored: QueryRow, output: Output) -> None:
    """Store the changes of the output that an edit in place may make: its retentions, and new columns.

    Raises:
        Conflict: ``relation_in_use``: another query needs the history that would be removed, or does not fit the new columns.
    """
    for row in _written(connection, stored.id):
        before = output_of(row.definition)
        if before == output:
            continue
        if before.history_retention_ms != output.history_retention_ms:
            refuse_if_read(connection, stored)
        if before.columns != output.columns:
            _add_columns(connection, row, output)
        if before.log_retention_ms != output.log_retention_ms:
            set_retention(raw(connection), output.name, output.log_retention_ms)
        connection.execute(
            sa.update(relation)
            .where(relation.c.id == row.id)
            .values(definition=output_to_json(output), version=relation.c.version + 1, updated_at=sa.func.now())
        )
        changed = {"definition": output_to_json(output)}
        note(connection, Change(Action.REPLACE, row.kind, row.name, {"definition": row.definition}, changed))


def _add_columns(connection: sa.Connection, row: Any, output: Output) -> None:
    """Add columns to a result. Queries that select all columns continue with their present ones."""
    entry = entry_of(row.name, row.kind, "derived", output_to_json(output), None, [])
    pin(connection, row.name, pinned_readers(connection, row.id, entry))
    if output.kind == "table":
        add_columns(raw(connection), output)
