"""Rewinds a query to one of its retained commits, also with an edited definition, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from app.access.audit.sql import Action, Change, note
from app.catalog.deliveries.edits import is_unchanged_by, lock_delivery, sync_delivery
from app.catalog.functions import with_functions
from app.catalog.history.forks import in_body
from app.catalog.history.retained import look_around, place_of, refusal_of_result, with_obstacles
from app.catalog.history.rewind_rules import (
    AT_REST,
    Place,
    Retained,
    not_at_rest,
    not_possible,
    not_retained,
    place_in_body,
    refusal,
    too_large,
)
from app.catalog.queries.edits import edit_of, lock_query, stored_form
from app.catalog.relations.materialisations import refuse_internal
from app.catalog.relations.results import output_of_query, refuse_if_read, update_result
from app.catalog.stored.catalog import load_catalog, read_definition
from app.catalog.stored.edit_rules import Edit, EditKind
from app.catalog.stored.queries import QueryRow, add_event, get_query, redefined
from app.catalog.stored.state_files import StateFiles
from app.db.database import raw
from app.db.tables import commit, query, query_status
from app.errors.app_errors import Conflict
from app.http.requests.conditions import Preconditions
from engine.commit.history.restored_rows import RowsUnknown
from engine.commit.history.retained_commits import RetainedCommit, hold_retained, retained_commits
from engine.commit.history.rewinding import change_log_bytes, rewind
from engine.definition.queries import QueryDefinition
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan, normalise
from engine.plan.catalog import Catalog
from engine.plan.model import Output


@dataclass(frozen=True, slots=True)
class Rewinding:
    """A requested rewind.

    Attributes:
        definition: edited; None: the query's own.
        desired_state: None: unchanged.
        most_bytes: longest change log to read.
    """

    batch_id: int
    definition: QueryDefinition | None
    desired_state: str | None
    files: StateFiles
    most_bytes: int
    conditions: Preconditions = field(default_factory=Preconditions)


@dataclass(frozen=True, slots=True)
class Rewound:
    """A query after a rewind.

    Attributes:
        edit: changes of its definition; None: there are none.
        before: its newest commit before the rewind.
        after: its newest commit after it.
        removed_rows: of the result's log.
    """

    row: QueryRow
    edit: Edit | None
    before: Place
    after: Place
    removed_rows: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The retained commits of a query, newest first.

    Attributes:
        newest: the newest commit; None if there is none yet.
        obstacle: the obstacle to any rewind; None if there is none.
    """

    newest: Place | None
    commits: list[Retained]
    obstacle: str | None


def list_commits(connection: sa.Connection, name: str, files: StateFiles) -> Listing:
    """Return the retained commits of a query, each with its obstacle to a rewind, if any.

    Raises:
        NotFound: ``query_not_found``.
    """
    stored = get_query(connection, name)
    retained = retained_commits(raw(connection), stored.id)
    newest = _newest(connection, stored)
    if newest is None or not retained:
        return Listing(newest, [], None)
    try:
        around = look_around(connection, stored, load_catalog(raw(connection)))
    except DefinitionInvalid as error:
        obstacle = f"its inputs have changed since its definition was accepted: {error}"
        return Listing(newest, [Retained(place_of(each), each.is_of_launch, obstacle) for each in retained], obstacle)
    commits = with_obstacles(connection, stored, retained, around, files)
    return Listing(newest, commits, _general_obstacle(connection, stored))


def _general_obstacle(connection: sa.Connection, stored: QueryRow) -> str | None:
    try:
        refuse_internal(stored.name)
        refuse_if_read(connection, stored)
        if stored.state not in AT_REST:
            raise not_at_rest(stored.name, stored.state)
    except Conflict as error:
        return error.detail
    return refusal_of_result(output_of_query(connection, stored.id))


def rewind_query(connection: sa.Connection, name: str, asked: Rewinding) -> Rewound:
    """Return a query to a retained commit; it continues from there with its next launch.

    Raises:
        NotFound: ``query_not_found``.
        PreconditionFailed: ``version_mismatch``.
        Conflict: ``query_not_at_rest``, ``relation_in_use``, ``commit_not_retained``, ``rewind_not_possible``, ``rewind_too_large``,
            ``state_incompatible``, ``query_is_internal``.
        DefinitionInvalid: with every problem; pointers lead into the definition of the body.
    """
    stored = lock_query(connection, name, asked.conditions)
    epoch = _epoch_at_rest(connection, stored)
    refuse_if_read(connection, stored)
    lock_delivery(connection, stored.id)
    catalog = load_catalog(raw(connection))
    edit, output, form = _edited(connection, stored, asked, catalog)
    connector = asked.definition.into.connector if asked.definition is not None else None
    ends_delivery = asked.definition is not None and not is_unchanged_by(connection, stored.id, connector)
    chosen, before = _chosen(connection, stored, asked, catalog, ends_delivery=ends_delivery), _newest(connection, stored)
    if before is None:
        raise not_possible(f"query '{name}' has no commit")
    size = change_log_bytes(raw(connection), output)
    if size > asked.most_bytes:
        raise too_large(size, asked.most_bytes)
    try:
        removed = rewind(raw(connection), stored.id, output, chosen)
    except RowsUnknown as error:
        raise not_possible(f"the rows of '{output.name}' as of batch {chosen.batch_id} are no longer known: {error}") from error
    if asked.definition is not None:
        sync_delivery(connection, stored.id, connector, output)
    _fence(connection, stored, epoch)
    row = _store(connection, stored, asked.desired_state, form)
    after = place_of(chosen)
    _note(connection, stored, row, (before, after), edit)
    return Rewound(row, edit, before, after, removed)


def _epoch_at_rest(connection: sa.Connection, stored: QueryRow) -> int:
    """Return the epoch of the newest launch of a query that does not run.

    This does not lock its status row: drivers write the rows of all their queries together, and would wait for this transaction.
    """
    state, epoch = connection.execute(
        sa.select(query_status.c.state, query_status.c.epoch).where(query_status.c.query_id == stored.id)
    ).one()
    if state not in AT_REST:
        raise not_at_rest(stored.name, state)
    return int(epoch)


def _fence(connection: sa.Connection, stored: QueryRow, epoch: int) -> None:
    """Ensure that no launch has begun meanwhile, and that none which a driver has decided on begins."""
    updated = connection.execute(
        sa.update(query_status)
        .where(query_status.c.query_id == stored.id, query_status.c.state.in_(AT_REST), query_status.c.epoch == epoch)
        .values(version=query_status.c.version + 1)
    )
    if updated.rowcount != 1:
        raise not_at_rest(stored.name, "starting")


def _chosen(
    connection: sa.Connection, stored: QueryRow, rewinding: Rewinding, catalog: Catalog, *, ends_delivery: bool
) -> RetainedCommit:
    retained = {each.batch_id: each for each in retained_commits(raw(connection), stored.id)}
    # Locked before its segments are listed: otherwise the collector could remove the commit meanwhile, and its tasks would start empty.
    if rewinding.batch_id not in retained or not hold_retained(raw(connection), stored.id, rewinding.batch_id):
        raise not_retained(stored.name, rewinding.batch_id, list(retained))
    chosen = retained[rewinding.batch_id]
    obstacle = refusal_of_result(output_of_query(connection, stored.id))
    if obstacle is None:
        around = look_around(connection, stored, catalog)
        if ends_delivery:
            around = replace(around, delivered=None)
        (candidate,) = with_obstacles(connection, stored, [chosen], around, rewinding.files)
        obstacle = candidate.obstacle
    if obstacle is not None:
        raise not_possible(f"query '{stored.name}' cannot return to batch {rewinding.batch_id}: {obstacle}")
    return chosen


def _newest(connection: sa.Connection, stored: QueryRow) -> Place | None:
    row = connection.execute(
        sa.select(commit.c.batch_id, commit.c.committed_at, commit.c.position, commit.c.stream_time_ms).where(
            commit.c.query_id == stored.id, commit.c.checkpoint_id == stored.checkpoint_id, commit.c.batch_id.is_not(None)
        )
    ).one_or_none()
    return None if row is None else Place(*row)


def _edited(
    connection: sa.Connection, stored: QueryRow, rewinding: Rewinding, catalog: Catalog
) -> tuple[Edit | None, Output, dict[str, Any] | None]:
    """Validate the edited definition, and add its new columns to the result.

    Returns:
        The edit; the result after it; the definition to store, None: the stored one stays.

    The state of each retained commit fits the present definition: an edit that does not fit starts from scratch, and removes these commits.
    """
    if rewinding.definition is None:
        return None, output_of_query(connection, stored.id), None
    functions = read_definition(QueryDefinition, stored.definition).functions
    definition = normalise(with_functions(connection, rewinding.definition, functions), stored.definition["tasks"])
    try:
        plan = build_plan(definition, catalog)
    except DefinitionInvalid as error:
        raise in_body(error, place_in_body) from error
    edit = edit_of(connection, stored, definition, plan)
    if edit.kind is EditKind.NEEDS_NEW_STATE:
        raise refusal(edit, stored.name)
    update_result(connection, stored, plan.output)
    form = None if edit.kind is EditKind.NO_OP else stored_form(definition)
    return edit, output_of_query(connection, stored.id), form


def _store(connection: sa.Connection, stored: QueryRow, desired_state: str | None, form: dict[str, Any] | None) -> QueryRow:
    values: dict[str, Any] = {"desired_state": desired_state or stored.desired_state}
    if form is not None:
        values |= redefined(form)
    # A new generation makes a driver launch a failed query again if its desired state is running.
    connection.execute(
        sa.update(query)
        .where(query.c.id == stored.id, query.c.version == stored.version)
        .values(generation=query.c.generation + 1, version=query.c.version + 1, updated_at=sa.func.now(), **values)
    )
    return get_query(connection, stored.name)


def _note(connection: sa.Connection, stored: QueryRow, row: QueryRow, moved: tuple[Place, Place], edit: Edit | None) -> None:
    before, after = moved
    changed = [] if edit is None else list(edit.pointers)
    add_event(connection, stored.id, "query_rewound", {"from": before.to_json(), "to": after.to_json(), "changed": changed})
    if row.desired_state != stored.desired_state:
        add_event(connection, stored.id, "desired_state_changed", {"from": stored.desired_state, "to": row.desired_state})
    bodies = stored.body | {"commit": before.to_json()}, row.body | {"commit": after.to_json()}
    note(connection, Change(Action.REWIND, "query", stored.name, *bodies))
