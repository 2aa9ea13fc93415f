"""Creates, replaces and deletes queries: each in one transaction over the query, its inputs, and the relation that it writes."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from app.access.audit.sql import Action, Change, note
from app.catalog.deliveries.edits import end_delivery, sync_delivery
from app.catalog.functions import with_functions
from app.catalog.relations.change_retention import refuse_forgotten_changes
from app.catalog.relations.materialisations import refuse_internal
from app.catalog.relations.results import detach_result, drop_result, make_result, refuse_if_read, update_result
from app.catalog.stored.catalog import find_plan, load_catalog, load_catalog_for, read_definition
from app.catalog.stored.edit_rules import Edit, EditKind, classify
from app.catalog.stored.queries import (
    QueryRow,
    add_event,
    find_query,
    forget_results,
    get_query,
    insert_query,
    mark_deleted,
    redefined,
    relaunch,
)
from app.db.database import lock_edits, raw
from app.db.tables import query, query_read, query_status, relation
from app.errors.app_errors import Conflict
from app.http.requests.conditions import Preconditions
from engine.definition.queries import QueryDefinition
from engine.definition.start import Start
from engine.errors import CURED_BY_NEW_STATE
from engine.plan.build import build_plan, fits_stored_state, normalise
from engine.plan.catalog import Catalog
from engine.plan.model import Plan, changes_with_readers

# States in which nothing of the query runs, so that it is deleted at once.
_AT_REST = ("stopped", "failed", "backoff")


@dataclass(frozen=True, slots=True)
class Planned:
    """A definition with every default, its plan, and the catalog of the plan."""

    definition: QueryDefinition
    plan: Plan
    catalog: Catalog


@dataclass(frozen=True, slots=True)
class Replaced:
    """Result of a PUT or a POST.

    Attributes:
        edit: the classified change; None if the query is new.
        is_anew: whether its state was discarded.
    """

    row: QueryRow
    edit: Edit | None
    planned: Planned
    is_anew: bool = False

    @property
    def is_created(self) -> bool:
        return self.edit is None


@dataclass(frozen=True, slots=True)
class Replacement:
    """The options of a PUT besides the definition.

    Attributes:
        is_desired_state_given: whether the body has a desired state; otherwise an existing query keeps its own.
        may_discard_state: start from scratch if the stored state does not fit, or has made the query fail.
        start: start from scratch in any case, and read from here; None: not requested.
        is_release: release at once the records that are due under the new definition (J11).
    """

    is_desired_state_given: bool = False
    may_discard_state: bool = False
    start: Start | None = None
    is_release: bool = False
    conditions: Preconditions = field(default_factory=Preconditions)


def create_query(connection: sa.Connection, definition: QueryDefinition, cores: int) -> Replaced:
    """Store a new query and create the relation that it writes.

    Args:
        connection: to the database, in a transaction.
        definition: of the request.
        cores: how many a query can use: its tasks, if the definition does not say.

    Raises:
        Conflict: ``name_taken``: another query has the name, or a relation has the result's name.
        DefinitionInvalid: with every problem.
    """
    lock_edits(connection)
    definition = with_functions(connection, definition)
    if find_query(connection, definition.name) is not None:
        raise Conflict(
            "name_taken", f"there is already a query '{definition.name}'; PUT /v1/queries/{definition.name} replaces it"
        )
    planned = _planned(connection, definition, cores)
    definition, plan = planned.definition, planned.plan
    query_id = uuid.uuid4()
    insert_query(connection, query_id, definition.name, stored_form(definition))
    make_result(connection, query_id, plan)
    _note_reads(connection, query_id, plan)
    sync_delivery(connection, query_id, definition.into.connector, plan.output)
    add_event(connection, query_id, "query_created", {"generation": 1})
    created = get_query(connection, definition.name)
    note(connection, Change(Action.CREATE, "query", created.name, None, created.body))
    return Replaced(created, None, planned)


def _planned(connection: sa.Connection, definition: QueryDefinition, tasks: int) -> Planned:
    definition = normalise(definition, tasks)
    catalog = load_catalog_for(raw(connection), definition)
    return Planned(definition, build_plan(definition, catalog), catalog)


def _is_state_unusable(connection: sa.Connection, stored: QueryRow) -> bool:
    """Whether the query has failed, and would fail at each launch from its state."""
    code = query_status.c.error["code"].as_string()
    unusable = sa.select(code.in_(CURED_BY_NEW_STATE)).where(
        query_status.c.query_id == stored.id, query_status.c.state == "failed"
    )
    return bool(connection.execute(unusable).scalar_one_or_none())


def replace_query(connection: sa.Connection, definition: QueryDefinition, asked: Replacement, cores: int) -> Replaced:
    """Create the query, or replace its definition, as far as its state allows. It keeps its tasks unless the definition says others.

    Args:
        connection: to the database, in a transaction.
        definition: of the request.
        asked: the options of the request.
        cores: see ``create_query``.

    Raises:
        Conflict: ``state_incompatible``, ``name_taken``, or ``relation_in_use``: a reset would remove a relation that others read.
        DefinitionInvalid: with every problem.
        PreconditionFailed: ``version_mismatch``.
    """
    lock_edits(connection)
    if asked.start is not None:
        definition = definition.model_copy(update={"start": asked.start})
    stored = find_query(connection, definition.name, is_locking=True)
    asked.conditions.check(f"query '{definition.name}'", None if stored is None else stored.version)
    if stored is None:
        return create_query(connection, definition, cores)
    definition = with_functions(connection, definition, read_definition(QueryDefinition, stored.definition).functions)
    planned = _planned(connection, definition, stored.definition["tasks"])
    definition, plan = planned.definition, planned.plan
    edit = edit_of(connection, stored, definition, plan)
    is_anew = edit.kind is EditKind.NEEDS_NEW_STATE or asked.start is not None
    is_anew |= asked.may_discard_state and _is_state_unusable(connection, stored)
    if is_anew and not asked.may_discard_state:
        raise edit.refusal(stored.name)
    desired = definition.desired_state if asked.is_desired_state_given else stored.desired_state
    values: dict[str, Any] = {}
    if desired != stored.desired_state:
        values["desired_state"] = desired
    if edit.kind is not EditKind.NO_OP or is_anew:
        values["generation"] = query.c.generation + 1
    if edit.kind is not EditKind.NO_OP:
        values |= redefined(stored_form(definition))
    if is_anew:
        values["checkpoint_id"] = uuid.uuid4()
        _reset(connection, stored, plan)
    elif edit.kind in (EditKind.IN_PLACE, EditKind.REPARTITION):
        update_result(connection, stored, plan.output)
    if is_anew or edit.kind is not EditKind.NO_OP:
        sync_delivery(connection, stored.id, definition.into.connector, plan.output, is_anew=is_anew)
    if asked.is_release and not is_anew:
        # A launch passes the request to the tasks. If the definition does not change, nothing else would cause one.
        values |= {"release_nonce": query.c.release_nonce + 1, "restart_nonce": query.c.restart_nonce + 1}
    if not values:
        return Replaced(stored, edit, planned)
    values |= {"version": query.c.version + 1, "updated_at": sa.func.now()}
    connection.execute(sa.update(query).where(query.c.id == stored.id, query.c.version == stored.version).values(values))
    _note_edit(connection, stored, edit, desired, is_anew=is_anew, is_release=asked.is_release)
    replaced = get_query(connection, definition.name)
    options = {"state_discarded": is_anew, "released": asked.is_release and not is_anew}
    note(connection, Change(Action.REPLACE, "query", replaced.name, stored.body, replaced.body | options))
    return Replaced(replaced, edit, planned, is_anew)


def edit_of(connection: sa.Connection, stored: QueryRow, definition: QueryDefinition, plan: Plan) -> Edit:
    """Classify the change from the stored definition to the normalised one of ``plan``."""
    before = find_plan(stored.definition, load_catalog(raw(connection)))
    return classify(
        stored.definition,
        stored_form(definition),
        is_state_compatible=before is not None and fits_stored_state(before, plan),
        is_plan_the_same=before == plan,
    )


def _note_edit(connection: sa.Connection, stored: QueryRow, edit: Edit, desired: str, *, is_anew: bool, is_release: bool) -> None:
    if edit.kind is not EditKind.NO_OP or is_anew:
        kind = EditKind.NEEDS_NEW_STATE if is_anew else edit.kind
        add_event(connection, stored.id, "query_replaced", {"edit": kind.value, "changed": list(edit.pointers)})
    if is_release and not is_anew:
        add_event(connection, stored.id, "release_requested", {})
    if desired != stored.desired_state:
        add_event(connection, stored.id, "desired_state_changed", {"from": stored.desired_state, "to": desired})


def lock_query(connection: sa.Connection, name: str, conditions: Preconditions) -> QueryRow:
    """Return a user's query, locked against other edits.

    Raises:
        NotFound: ``query_not_found``.
        Conflict: ``query_is_internal``.
        PreconditionFailed: ``version_mismatch``.
    """
    lock_edits(connection)
    stored = get_query(connection, name, is_locking=True)
    conditions.check(f"query '{name}'", stored.version)
    refuse_internal(name)
    return stored


def delete_query(connection: sa.Connection, name: str, *, keeps_result: bool, conditions: Preconditions) -> bool:
    """Delete a query. Its driver stops it, then removes its state and its row.

    If it keeps the result, the relation stays for reading until it is deleted itself; otherwise it is deleted too.

    Returns:
        Whether nothing of the query runs any more.

    Raises:
        NotFound: ``query_not_found``.
        Conflict: ``relation_in_use``: the relation would be deleted, and others read it; ``query_is_internal``.
        PreconditionFailed: ``version_mismatch``.
    """
    stored = lock_query(connection, name, conditions)
    if keeps_result:
        detach_result(connection, stored)
    else:
        refuse_if_read(connection, stored)
    # The fence first: a running launch commits nothing after it, so the stored position and the result agree.
    forget_results(connection, stored.id, is_deleted=True)
    end_delivery(connection, stored.id)
    if not keeps_result:
        drop_result(connection, stored.id)
    connection.execute(sa.delete(query_read).where(query_read.c.query_id == stored.id))
    result = "kept" if keeps_result else "discarded"
    mark_deleted(connection, stored, result)
    note(connection, Change(Action.DELETE, "query", name, stored.body, {"result": result}))
    return stored.state in _AT_REST


def stored_form(definition: QueryDefinition) -> dict[str, Any]:
    return definition.model_dump(mode="json", by_alias=True)


def _note_reads(connection: sa.Connection, query_id: UUID, plan: Plan, before: Collection[str] = ()) -> None:
    """Record the inputs of a query; ``before`` are its earlier ones."""
    refuse_forgotten_changes(connection, plan)
    _tell_producers(connection, insert_reads(connection, query_id, plan).difference(before))


def insert_reads(connection: sa.Connection, query_id: UUID, plan: Plan) -> set[str]:
    """Record the inputs of a plan as the query's; return their names."""
    names = {source.source_name for source in plan.inputs}
    chosen = sa.select(sa.literal(query_id, sa.Uuid), relation.c.id).where(relation.c.name.in_(names))
    connection.execute(sa.insert(query_read).from_select(["query_id", "relation_id"], chosen))
    return names


def _tell_producers(connection: sa.Connection, names: Collection[str]) -> None:
    """Restart queries that leave changes out while nobody reads them, if these relations now have their first reader (P11).

    A failed query is not restarted: it looks for readers when it is launched.
    """
    first_read = (
        sa.select(relation.c.produced_by)
        .join_from(relation, query_read)
        .join(query_status, query_status.c.query_id == relation.c.produced_by)
        .where(relation.c.name.in_(names), query_status.c.state != "failed")
        .group_by(relation.c.produced_by)
        .having(sa.func.count() == 1)
    )
    producers = connection.execute(sa.select(query.c.id, query.c.definition).where(query.c.id.in_(first_read))).all()
    catalog = load_catalog(raw(connection)) if producers else {}
    for row in producers:
        plan = find_plan(row.definition, catalog)  # without one no launch of it can succeed; its readers are not the cause
        if plan is not None and changes_with_readers(plan):
            relaunch(connection, row.id, "its changes are read by a query from now on")


def _reset(connection: sa.Connection, stored: QueryRow, plan: Plan) -> None:
    """Discard the query's result and its state; a running launch is fenced from here on."""
    refuse_if_read(connection, stored)
    forget_results(connection, stored.id)
    drop_result(connection, stored.id)
    make_result(connection, stored.id, plan)
    is_own = query_read.c.query_id == stored.id
    before = connection.execute(sa.select(relation.c.name).join_from(relation, query_read).where(is_own)).scalars().all()
    connection.execute(sa.delete(query_read).where(is_own))
    _note_reads(connection, stored.id, plan, before)
