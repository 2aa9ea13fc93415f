"""Sources whose rows are kept for reading: an internal query from the table into its own name does it, and lives and dies with it.

It is a query like any other to drivers, status, events and lateness; only its definition follows its table's. It writes the view (and the
history) of the table's name and its change feed, and no relation of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from app.access.internal_queries import PREFIX, is_internal
from app.catalog.stored.catalog import load_catalog, source_of
from app.catalog.stored.purging import forget_results
from app.catalog.stored.queries import QueryRow, add_event, find_query
from app.catalog.stored.relations import RelationRow
from app.db.tables import query, query_read, query_status, relation
from app.db.transactions import raw
from app.errors.app_errors import Conflict, Fault
from engine.commit.views import add_columns, create_view, drop_view
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, TableDefinition
from engine.log.dropped_feeds import drop_feed
from engine.log.sequences import make_result_feed
from engine.plan.build import build_plan, fits_stored_state, normalise
from engine.plan.catalog import Catalog, source_entry
from engine.plan.model import Output, Plan
from engine.plan.result_feeds import change_feed


def materialisation_of(table: str) -> str:
    """Return the name of the internal query that keeps a source's rows."""
    return PREFIX + table


def refuse_internal(query_name: str) -> None:
    """Refuse to change or delete a query that follows its table.

    Raises:
        Conflict: ``query_is_internal``.
    """
    if is_internal(query_name):
        table = query_name.removeprefix(PREFIX)
        raise Conflict(
            "query_is_internal",
            f"'{query_name}' keeps the rows of the source '{table}' and follows it: PUT /v1/tables/{table} changes both, with "
            '"materialize": false it goes',
        )


def materialised_output(stored: RelationRow) -> Output | None:
    """Return what the rows of a source are kept as; None where they are not."""
    if stored.origin != "source" or stored.kind != "table" or not stored.definition.get("materialize"):
        return None
    return output_of_source(stored.name, stored.definition)


def output_of_source(name: str, definition: Mapping[str, Any]) -> Output:
    """Return what the rows of a source table are kept as, by its stored definition."""
    return _output(name, source_of("table", definition))


def follow(
    connection: sa.Connection, name: str, before: Mapping[str, Any] | None, after: SourceDefinition | None, *, is_empty: bool
) -> None:
    """Make, change or remove the internal query as a source's definition asks. The relation's row is written already.

    Args:
        connection: in a transaction that holds the edit lock.
        name: the source.
        before: its stored definition, None for a new one.
        after: its new one, None where it is deleted.
        is_empty: it holds no records, so nothing is lost by starting from scratch.

    Raises:
        Conflict: ``materialize_needs_rebuild``.
    """
    was = before is not None and bool(before.get("materialize"))
    is_wanted = isinstance(after, TableDefinition) and after.materialize
    if was and is_wanted and isinstance(after, TableDefinition) and before is not None:
        _change(connection, name, source_of("table", before), after, is_empty=is_empty)
    elif is_wanted and isinstance(after, TableDefinition):
        _create(connection, name, after)
    elif was:
        _delete(connection, name)


def _create(connection: sa.Connection, name: str, source: TableDefinition) -> None:
    definition, plan = _definition(name, source), _plan(name, source, load_catalog(raw(connection)))
    query_id = uuid.uuid4()
    connection.execute(
        sa.insert(query).values(
            id=query_id,
            name=materialisation_of(name),
            definition=definition.model_dump(mode="json", by_alias=True),
            desired_state=definition.desired_state,
            checkpoint_id=uuid.uuid4(),
        )
    )
    connection.execute(sa.insert(query_status).values(query_id=query_id, state="stopped"))
    create_view(raw(connection), plan.output)
    make_result_feed(raw(connection), change_feed(name), plan.tasks, query_id)
    chosen = sa.select(sa.literal(query_id, sa.Uuid), relation.c.id).where(relation.c.name == name)
    connection.execute(sa.insert(query_read).from_select(["query_id", "relation_id"], chosen))
    add_event(connection, query_id, "query_created", {"generation": 1})


def _change(connection: sa.Connection, name: str, before: SourceDefinition, after: TableDefinition, *, is_empty: bool) -> None:
    catalog = load_catalog(raw(connection))
    plan = _plan(name, after, catalog)
    former = _plan(name, before, {**catalog, name: source_entry(name, before)})
    if fits_stored_state(former, plan):
        if former.output.columns != plan.output.columns:
            add_columns(raw(connection), plan.output)
        return  # its launch takes the source's new definition from the catalog
    if not is_empty:
        detail = (
            f"the rows of '{name}' are kept in a form that does not fit this edit; PUT it with \"materialize\": false first, and then "
            "with true: the rows are made again from the records that the log still has"
        )
        raise Conflict("materialize_needs_rebuild", detail, [Fault("/materialize", "materialize_needs_rebuild", detail)])
    _delete(connection, name)
    _create(connection, name, after)


def _delete(connection: sa.Connection, name: str) -> None:
    stored = _stored(connection, name)
    # The fence first: a launch that still runs must not write into what is dropped.
    forget_results(connection, stored.id, is_deleted=True)
    drop_view(raw(connection), name)
    drop_feed(raw(connection), change_feed(name))
    connection.execute(sa.delete(query_read).where(query_read.c.query_id == stored.id))
    connection.execute(
        sa.update(query)
        .where(query.c.id == stored.id)
        .values(deleted_at=sa.func.now(), desired_state="stopped", version=query.c.version + 1, updated_at=sa.func.now())
    )
    add_event(connection, stored.id, "query_deleted", {"result": "discarded"})


def _stored(connection: sa.Connection, name: str) -> QueryRow:
    found = find_query(connection, materialisation_of(name), is_locking=True)
    if found is None:
        raise AssertionError(f"the materialised source {name} has no query")
    return found


def _definition(name: str, source: SourceDefinition) -> QueryDefinition:
    into: dict[str, Any] = {"table": name}
    versioned = source.versioned if isinstance(source, TableDefinition) else None
    if versioned is not None:
        into["versioned"] = versioned.model_dump(mode="json")
    return normalise(QueryDefinition.model_validate({"name": name, "from": {"table": name}, "into": into}))


def _plan(name: str, source: SourceDefinition, catalog: Catalog) -> Plan:
    """Plan the query; also where it is planned for a definition that does not ask for it any more, to compare."""
    entry = replace(source_entry(name, source), is_materialised=True)
    return build_plan(_definition(name, source), {**catalog, name: entry})


def _output(name: str, source: SourceDefinition) -> Output:
    return _plan(name, source, {}).output
