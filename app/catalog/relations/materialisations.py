"""Materialised sources: an internal query from the table into its own name stores its rows, and is created and deleted with it.

For drivers, status, events and lateness it is a query like any other; only its definition comes from its table. It writes the view (and the
history) of the table's name and its change feed, but no relation of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from app.access.scopes import PREFIX, is_internal
from app.catalog.stored.catalog import load_catalog, source_of
from app.catalog.stored.queries import add_event, forget_results, get_query, insert_query, mark_deleted
from app.catalog.stored.relations import RelationRow
from app.db.database import raw
from app.db.tables import query_read, relation
from app.errors.app_errors import Conflict, Fault
from engine.commit.views import add_columns, create_view, drop_view
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, TableDefinition
from engine.log.dropped_feeds import drop_feed
from engine.log.sequences import make_result_feed
from engine.plan.build import build_plan, fits_stored_state, normalise
from engine.plan.catalog import Catalog, change_feed, source_entry
from engine.plan.model import Output, Plan


def materialisation_of(table: str) -> str:
    """Return the name of the internal query that stores a source's rows."""
    return PREFIX + table


def refuse_internal(query_name: str) -> None:
    """Refuse to change or delete a query that belongs to its table.

    Raises:
        Conflict: ``query_is_internal``.
    """
    if is_internal(query_name):
        table = query_name.removeprefix(PREFIX)
        raise Conflict(
            "query_is_internal",
            f"'{query_name}' stores the rows of the source '{table}' and belongs to it: PUT /v1/tables/{table} changes both, and "
            '"materialize": false deletes it',
        )


def materialised_output(stored: RelationRow) -> Output | None:
    """Return the form of a source's stored rows; None if they are not stored."""
    if stored.origin != "source" or stored.kind != "table" or not stored.definition.get("materialize"):
        return None
    return output_of_source(stored.name, stored.definition)


def output_of_source(name: str, definition: Mapping[str, Any]) -> Output:
    """Return the form of a source table's stored rows, by its stored definition."""
    return _plan(name, source_of("table", definition), {}).output


def follow(
    connection: sa.Connection,
    name: str,
    before: Mapping[str, Any] | None,
    after: SourceDefinition | None,
    *,
    is_empty: bool,
    cores: int = 1,
) -> None:
    """Create, change or delete the internal query to match a source's definition. The relation's row is already written.

    Args:
        connection: in a transaction that holds the edit lock.
        name: of the source.
        before: its stored definition, None for a new one.
        after: its new definition, None if it is deleted.
        is_empty: whether it has no records, so that a restart from scratch loses nothing.
        cores: how many a query can use: the tasks of a new one.

    Raises:
        Conflict: ``materialize_needs_rebuild``.
    """
    was_materialised = before is not None and bool(before.get("materialize"))
    is_wanted = isinstance(after, TableDefinition) and after.materialize
    if was_materialised and is_wanted and isinstance(after, TableDefinition) and before is not None:
        _change(connection, name, source_of("table", before), after, is_empty=is_empty, cores=cores)
    elif is_wanted and isinstance(after, TableDefinition):
        _create(connection, name, after, cores)
    elif was_materialised:
        _delete(connection, name)


def _create(connection: sa.Connection, name: str, source: TableDefinition, cores: int) -> None:
    definition = _definition(name, source, cores)
    plan = replace(_plan(name, source, load_catalog(raw(connection))), tasks=cores)
    query_id = uuid.uuid4()
    insert_query(connection, query_id, materialisation_of(name), definition.model_dump(mode="json", by_alias=True))
    create_view(raw(connection), plan.output)
    make_result_feed(raw(connection), change_feed(name), plan.tasks, query_id)
    chosen = sa.select(sa.literal(query_id, sa.Uuid), relation.c.id).where(relation.c.name == name)
    connection.execute(sa.insert(query_read).from_select(["query_id", "relation_id"], chosen))
    add_event(connection, query_id, "query_created", {"generation": 1})


def _change(
    connection: sa.Connection, name: str, before: SourceDefinition, after: TableDefinition, *, is_empty: bool, cores: int
) -> None:
    catalog = load_catalog(raw(connection))
    plan = _plan(name, after, catalog)
    former = _plan(name, before, {**catalog, name: source_entry(name, before)})
    if fits_stored_state(former, plan):
        if former.output.columns != plan.output.columns:
            add_columns(raw(connection), plan.output)
        return  # its launch reads the source's new definition from the catalog
    if not is_empty:
        detail = (
            f"the rows of '{name}' are stored in a form that does not fit this edit; PUT it with \"materialize\": false first, and then "
            "with true: the rows are rebuilt from the records that the log still has"
        )
        raise Conflict("materialize_needs_rebuild", detail, [Fault("/materialize", "materialize_needs_rebuild", detail)])
    _delete(connection, name)
    _create(connection, name, after, cores)


def _delete(connection: sa.Connection, name: str) -> None:
    stored = get_query(connection, materialisation_of(name), is_locking=True)
    # The fence first: a running launch must not write into a view or feed that is dropped.
    forget_results(connection, stored.id, is_deleted=True)
    drop_view(raw(connection), name)
    drop_feed(raw(connection), change_feed(name))
    connection.execute(sa.delete(query_read).where(query_read.c.query_id == stored.id))
    mark_deleted(connection, stored, "discarded")


def _definition(name: str, source: SourceDefinition, tasks: int = 1) -> QueryDefinition:
    into: dict[str, Any] = {"table": name}
    versioned = source.versioned if isinstance(source, TableDefinition) else None
    if versioned is not None:
        into["versioned"] = versioned.model_dump(mode="json")
    return normalise(QueryDefinition.model_validate({"name": name, "from": {"table": name}, "into": into}), tasks)


def _plan(name: str, source: SourceDefinition, catalog: Catalog) -> Plan:
    """Plan the query, also for a definition without ``materialize``, to compare the plans."""
    entry = replace(source_entry(name, source), is_materialised=True)
    return build_plan(_definition(name, source), {**catalog, name: entry})
