"""The effect of a relation's edit on the queries that read it: each continues with its columns, or the edit is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from app.access.audit.sql import Action, Change, note
from app.access.rules import visible
from app.access.scopes import is_internal
from app.catalog.relations.parts import writers_into, written_by
from app.catalog.stored.catalog import find_plan, load_catalog, planned, read_definition
from app.catalog.stored.queries import add_event, get_query, redefined
from app.db.database import raw
from app.db.tables import query, query_read
from app.errors.app_errors import Conflict, Fault
from engine.definition.queries import QueryDefinition
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan, state_fingerprint, with_columns_named
from engine.plan.catalog import Catalog, CatalogEntry, with_parts


def in_use(name: str, readers: list[str]) -> Conflict:
    shown = [visible(reader) for reader in readers]
    faults = [Fault("", "read_by", f"query '{reader}' reads '{name}'") for reader in shown]
    return Conflict("relation_in_use", f"'{name}' is read by {', '.join(shown)}; delete the query first", faults)


def pinned_readers(connection: sa.Connection, relation_id: UUID, entry: CatalogEntry) -> list[QueryDefinition]:
    """Return the readers that select all columns, each with a ``select`` of the present ones, with which it continues.

    Raises:
        Conflict: ``relation_in_use``: the relation, as ``entry``, would break a reader's plan or not fit its state; or a query appends
            records to it that would not fit.
    """
    before, changed = load_catalog(raw(connection)), entry.relation.name
    after = with_parts({**before, changed: entry})
    reading = sa.select(query_read.c.query_id).where(query_read.c.relation_id == relation_id)
    writers = writers_into(connection, changed)
    rows = connection.execute(
        sa.select(query.c.name, query.c.definition)
        .where(sa.or_(query.c.id.in_(reading), query.c.name.in_(writers)))
        .order_by(query.c.name)
    )
    pinned, unfit = [], []
    for name, definition in rows:
        if is_internal(name) or _fits(definition, before, after):
            continue
        named = None if name in writers else _named(definition, before, after)
        if named is None:
            unfit.append(name)
        else:
            pinned.append(named)
    readers = [name for name in unfit if name not in writers]
    if readers:
        raise in_use(changed, readers)
    if unfit:
        raise written_by(changed, unfit)
    return pinned


def _named(stored: Mapping[str, Any], before: Catalog, after: Catalog) -> QueryDefinition | None:
    """Return a reader's definition with its present columns spelled out; None if it does not fit then either."""
    try:
        named = with_columns_named(read_definition(QueryDefinition, stored), before)
        is_fit = state_fingerprint(planned(stored, before)) == state_fingerprint(build_plan(named, after))
    except DefinitionInvalid:
        return None
    return named if is_fit else None


def pin(connection: sa.Connection, relation_name: str, pinned: list[QueryDefinition]) -> None:
    """Store readers' definitions with the spelled-out ``select``."""
    for definition in pinned:
        before = get_query(connection, definition.name, is_locking=True)
        definition_columns = redefined(definition.model_dump(mode="json", by_alias=True))
        values = {**definition_columns, "generation": query.c.generation + 1, "version": query.c.version + 1}
        connection.execute(sa.update(query).where(query.c.id == before.id).values(values | {"updated_at": sa.func.now()}))
        reason = f"'{relation_name}' has other columns; the query continues with those it had"
        add_event(connection, before.id, "query_replaced", {"edit": "in_place", "changed": ["/select"], "reason": reason})
        note(connection, Change(Action.REPLACE, "query", before.name, before.body, get_query(connection, before.name).body))


def _fits(definition: Mapping[str, Any], before: Catalog, after: Catalog) -> bool:
    plans = find_plan(definition, before), find_plan(definition, after)
    return plans[0] is not None and plans[1] is not None and state_fingerprint(plans[0]) == state_fingerprint(plans[1])
