"""Creates a query from another one's commit: definition, result, log, state and position."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

import psycopg
import sqlalchemy as sa

from app.access.audit.sql import Action, Change, note
from app.access.rules import refuse_beyond_scope
from app.access.scopes import named_in
from app.catalog.deliveries.edits import Target, new_target, sync_delivery
from app.catalog.functions import with_functions
from app.catalog.queries.edits import insert_reads, stored_form
from app.catalog.queries.fork_rules import Fork, as_fork, not_possible, place_in_body, refusal
from app.catalog.relations.materialisations import refuse_internal
from app.catalog.relations.results import make_result, output_of_query
from app.catalog.stored.catalog import find_plan, load_catalog, load_visible_catalog, read_definition
from app.catalog.stored.edit_rules import Edit, classify
from app.catalog.stored.queries import QueryRow, add_event, find_query, get_query, insert_query
from app.catalog.stored.relations import find_relation
from app.catalog.stored.state_files import SegmentsGone, StateFiles
from app.db.database import edit_of_one_moment, raw
from app.db.tables import commit, query, query_status
from app.errors.app_errors import Conflict, Fault
from app.http.requests.conditions import Preconditions
from engine.commit.history.forking import copy_commits, copy_result, result_bytes
from engine.commit.task_states import CommittedState, load_committed_state, load_states
from engine.definition.queries import QueryDefinition
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.python_functions import Functions
from engine.plan.build import build_plan, fits_stored_state, normalise, read_query
from engine.plan.catalog import Catalog
from engine.plan.model import Plan
from engine.state.segments.in_manifest import stored_segments

SNAPSHOTS: Final = 3
"""Attempts while the original runs. After them it waits, as long as one copy takes."""

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Forking:
    """The parameters of a fork.

    Attributes:
        most_bytes: largest result to copy.
        is_held: whether the original commits nothing meanwhile; otherwise the transaction sees one snapshot of it.
    """

    files: StateFiles
    most_bytes: int
    query_id: UUID
    checkpoint_id: UUID
    is_held: bool
    conditions: Preconditions = field(default_factory=Preconditions)


@dataclass(frozen=True, slots=True)
class Forked:
    """A new fork.

    Attributes:
        edit: differences from the original except for the names.
    """

    row: QueryRow
    edit: Edit


def at_one_commit(engine: sa.Engine, files: StateFiles, work: Callable[[sa.Connection, UUID, UUID, bool], Done]) -> Done:
    """Create a fork in one transaction; try again at a newer commit if the original removed segments before they were copied.

    Args:
        engine: of edits.
        files: get the copied segments.
        work: creates the fork with this id and checkpoint; the last argument says whether it must block the original's commits.

    Raises:
        Conflict: ``fork_not_possible``: segments are missing permanently.
    """
    for attempt in range(SNAPSHOTS + 1):
        query_id, checkpoint_id, is_held = uuid.uuid4(), uuid.uuid4(), attempt == SNAPSHOTS
        try:
            with edit_of_one_moment(engine, is_frozen=not is_held) as connection:
                return work(connection, query_id, checkpoint_id, is_held)
        except BaseException as error:
            # If the connection broke, nobody knows whether the fork was committed: its files stay.
            if not (isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated):
                files.discard(query_id, checkpoint_id)
            if is_held and isinstance(error, SegmentsGone):
                raise not_possible(f"the original's state cannot be copied: {error}") from error
            if is_held or not _is_passing(error):
                raise
    raise AssertionError("the last attempt returns or raises")


def _is_passing(error: BaseException) -> bool:
    if isinstance(error, sa.exc.OperationalError):
        return isinstance(error.orig, psycopg.errors.SerializationFailure)
    return isinstance(error, SegmentsGone | psycopg.errors.SerializationFailure)


def fork_query(connection: sa.Connection, name: str, definition: QueryDefinition, forking: Forking) -> Forked:
    """Create a fork of a query, in a transaction of ``edit_of_one_moment``.

    Raises:
        NotFound: ``query_not_found``.
        PreconditionFailed: ``version_mismatch``.
        Conflict: ``name_taken``, ``state_incompatible``, ``fork_not_possible``, ``fork_too_large``, ``query_is_internal``.
        DefinitionInvalid: with every problem; pointers lead into the definition of the body.
        SegmentsGone: the original has newer commits; try again.
    """
    stored = get_query(connection, name)
    forking.conditions.check(f"query '{name}'", stored.version)
    refuse_internal(name)
    _refuse_taken(connection, definition)
    if forking.is_held:
        connection.execute(sa.select(commit.c.query_id).where(commit.c.query_id == stored.id).with_for_update())
    catalog = load_catalog(raw(connection))
    before = read_definition(QueryDefinition, stored.definition)
    definition = normalise(with_functions(connection, definition, before.functions), stored.definition["tasks"])
    plan, form = _planned(definition, catalog), stored_form(definition)
    renamed = as_fork(stored.definition, form)
    original = find_plan(renamed, catalog)
    is_fit = original is not None and fits_stored_state(original, plan)
    edit = classify(renamed, form, is_state_compatible=is_fit)
    if not is_fit or original is None:
        raise refusal(edit, name, definition.name)
    committed = load_committed_state(raw(connection), stored.id, stored.checkpoint_id)
    root = _copy_state(connection, stored, committed, forking)
    fork = _insert(connection, stored, form, committed, forking, root)
    make_result(connection, fork.id, plan)
    insert_reads(connection, fork.id, plan)
    if committed.layout is not None:
        _copy_committed(connection, stored, plan, forking)
    sync_delivery(connection, fork.id, definition.into.connector, plan.output)
    # Without the original's name: a caller who may see the fork may lack the permission to see the original.
    add_event(connection, fork.id, "query_created", {"generation": 1, "is_fork": True, "batch_id": committed.batch_id})
    note(connection, Change(Action.CREATE, "query", fork.name, None, fork.body | {"fork_of": fork.fork_of}))
    return Forked(fork, edit)


def _refuse_taken(connection: sa.Connection, definition: QueryDefinition) -> None:
    faults = []
    if find_query(connection, definition.name) is not None:
        faults.append(Fault("/name", "name_taken", f"there is already a query '{definition.name}'"))
    existing = find_relation(connection, definition.into.relation)
    if existing is not None:
        detail = f"a {existing.kind} has the name '{existing.name}'; a fork writes its own relation"
        faults.append(Fault("/into", "name_taken", detail))
    if faults:
        raise Conflict("name_taken", "; ".join(fault.detail for fault in faults), faults)


def _planned(definition: QueryDefinition, catalog: Catalog) -> Plan:
    try:
        return build_plan(definition, catalog)
    except DefinitionInvalid as error:
        raise in_body(error) from error


Places = Callable[[str], str]
"""Returns the pointer into a body for a pointer into the definition that the body contains."""


def in_body(error: DefinitionInvalid, place: Places = place_in_body) -> DefinitionInvalid:
    """Return the problems of a definition with pointers into the body that contains it."""
    return DefinitionInvalid([Problem(place(each.pointer), each.code, each.detail) for each in error.problems])


def read_in_body(
    connection: sa.Connection, body: Any, functions: Functions, place: Places = place_in_body
) -> tuple[QueryDefinition, Target | None]:
    """Read an edited definition; return it with its delivery target, if that is new. Names outside of the caller's scope are refused."""
    try:
        definition = read_query(body, lambda: load_visible_catalog(raw(connection)))
    except DefinitionInvalid as error:
        raise in_body(error, place) from error
    refuse_beyond_scope((place(pointer), named) for pointer, named in named_in(definition))
    definition = with_functions(connection, definition, functions)
    return definition, new_target(connection, definition)


def _copy_state(connection: sa.Connection, stored: QueryRow, committed: CommittedState, forking: Forking) -> UUID | None:
    """Copy the segments in the manifests of this commit; return the id of their state root."""
    root: UUID | None = connection.execute(
        sa.select(query_status.c.state_root).where(query_status.c.query_id == stored.id)
    ).scalar_one()
    states = load_states(raw(connection), stored.id)
    if committed.layout is None or not any(stored_segments(json.loads(state.manifest)) for state in states.values()):
        return root
    refuse_elsewhere(forking.files, stored.name, root)
    source, target = (stored.id, stored.checkpoint_id), (forking.query_id, forking.checkpoint_id)
    forking.files.copy(source, target, committed.layout.segments, states, partial(keep_alive, connection))
    return root


def keep_alive(connection: sa.Connection) -> None:
    """Execute a statement during a long copy of files: the database ends a transaction that is silent for a minute."""
    connection.execute(sa.select(1))


def refuse_elsewhere(files: StateFiles, name: str, root: UUID | None) -> None:
    """Refuse to copy state that this service cannot read.

    Raises:
        Conflict: ``fork_not_possible``.
    """
    if root is not None and not files.is_root(root):
        raise not_possible(
            f"the state of query '{name}' is in the checkpoint directory {root}, and this service has another one; use a service with the "
            "same SLACKWATER_DATA_DIR or SLACKWATER_CHECKPOINT_URL as the driver"
        )


def _insert(
    connection: sa.Connection,
    stored: QueryRow,
    form: dict[str, object],
    committed: CommittedState,
    forking: Forking,
    root: UUID | None,
) -> QueryRow:
    committed_at = connection.execute(
        sa.select(commit.c.committed_at).where(commit.c.query_id == stored.id, commit.c.checkpoint_id == stored.checkpoint_id)
    ).scalar_one_or_none()
    origin = Fork(stored.id, stored.name, committed.batch_id, None if committed_at is None else committed_at.isoformat())
    release = sa.select(query.c.release_nonce).where(query.c.id == stored.id).scalar_subquery()
    name, others = str(form["name"]), {"release_nonce": release, "fork_of": origin.to_json()}
    insert_query(connection, forking.query_id, name, form, checkpoint_id=forking.checkpoint_id, **others)
    if committed.layout is not None:
        place = {"state_root": root, "state_checkpoint_id": forking.checkpoint_id}
        connection.execute(sa.update(query_status).where(query_status.c.query_id == forking.query_id).values(place))
    return get_query(connection, name)


def _copy_committed(connection: sa.Connection, stored: QueryRow, plan: Plan, forking: Forking) -> None:
    source = output_of_query(connection, stored.id)
    size = result_bytes(raw(connection), source)
    if size > forking.most_bytes:
        detail = (
            f"the result '{source.name}' has {size:,} bytes with its log, and a fork copies at most {forking.most_bytes:,} "
            "(SLACKWATER_LIMITS__FORK_BYTES); give it a shorter retention, or raise the limit"
        )
        raise Conflict("fork_too_large", detail)
    copy_result(raw(connection), source, plan.output)
    copy_commits(raw(connection), stored.id, forking.query_id, forking.checkpoint_id, (source.name, plan.output.name))
