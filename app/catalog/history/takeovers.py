"""Lets a fork replace its original: the query takes over definition, result, state and position of the fork, which is then deleted.

The result of the fork is renamed and becomes the query's; only segments are copied. So this is fast, however large the result is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from app.access.audit.sql import Action, Change, note
from app.catalog.deliveries.edits import lock_delivery, move_delivery, planned_upto
from app.catalog.history.forks import keep_alive, refuse_elsewhere
from app.catalog.queries.edits import insert_reads, lock_query, stored_form
from app.catalog.queries.fork_rules import Fork, not_possible, taken_over
from app.catalog.relations.results import drop_result, move_result, output_of_query, refuse_if_read
from app.catalog.stored.catalog import load_catalog, read_definition
from app.catalog.stored.queries import QueryRow, add_event, forget_results, get_query, mark_deleted, redefined
from app.catalog.stored.state_files import SegmentsGone, StateFiles
from app.db.database import raw
from app.db.tables import query, query_read, query_status
from app.http.requests.conditions import Preconditions
from engine.commit.history.promoting import hold_commits, move_commits
from engine.commit.task_states import load_committed_state, load_states
from engine.definition.queries import QueryDefinition
from engine.plan.build import build_plan
from engine.plan.model import Plan
from engine.state.segments.in_manifest import stored_segments


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The parameters of a take-over.

    Attributes:
        checkpoint_id: new one of the query.
    """

    fork: str
    checkpoint_id: UUID
    files: StateFiles
    conditions: Preconditions


def take_over(connection: sa.Connection, name: str, asked: TakeOver) -> QueryRow:
    """Let a fork replace its original.

    HTTP reads of the original's relation then give the fork's result under the same name. Cursors of its changes end, because its log is another
    one. A query that reads one of the two results is an obstacle: its position is a number in that result's log.

    Raises:
        NotFound: ``query_not_found``.
        PreconditionFailed: ``version_mismatch``.
        Conflict: ``relation_in_use``, ``fork_not_possible``, ``query_is_internal``.
        DefinitionInvalid: the fork's inputs have changed since it was accepted.
    """
    stored = lock_query(connection, name, asked.conditions)
    fork = get_query(connection, asked.fork, is_locking=True)
    origin = Fork.of(fork.fork_of)
    if origin is None or origin.query_id != stored.id:
        raise not_possible(f"'{fork.name}' is not a fork of '{name}'; POST /v1/queries/{name}/fork makes one", "?from_fork")
    refuse_if_read(connection, stored)
    refuse_if_read(connection, fork)
    lock_delivery(connection, fork.id)
    if planned_upto(connection, stored.id) is not None:
        raise not_possible(
            f"'{name}' delivers its results, and the fork's results would go there too: PUT '{name}' without `into.connector` first; give the "
            "fork its own `into.connector` if its results are to be delivered",
            "?from_fork",
        )
    definition = read_definition(QueryDefinition, taken_over(stored.definition, fork.definition))
    plan = build_plan(definition, load_catalog(raw(connection)))
    # The commits and the segments that they name do not change from here on.
    hold_commits(raw(connection), (fork.id, fork.checkpoint_id), (stored.id, stored.checkpoint_id))
    _copy_state(connection, stored, fork, asked)
    _fence(connection, stored, fork, asked.checkpoint_id)
    _exchange(connection, stored, fork, plan, asked.checkpoint_id)
    row = _store(connection, stored, fork, stored_form(definition), asked.checkpoint_id)
    _end_fork(connection, fork, stored)
    return row


def _fence(connection: sa.Connection, stored: QueryRow, fork: QueryRow, checkpoint_id: UUID) -> None:
    """Ensure that no launch continues from the query's old state.

    The status row gets another version. Otherwise a launch that a driver has decided on would take the fence with the old checkpoint, and
    discard the fork's state.
    """
    root = sa.select(query_status.c.state_root).where(query_status.c.query_id == fork.id).scalar_subquery()
    connection.execute(
        sa.update(query_status)
        .where(query_status.c.query_id == stored.id)
        .values(state_root=root, state_checkpoint_id=checkpoint_id, version=query_status.c.version + 1)
    )


def _root(connection: sa.Connection, stored: QueryRow, fork: QueryRow) -> UUID | None:
    """Return the state root of the fork, which is also that of the query."""
    rows = connection.execute(
        sa.select(query_status.c.query_id, query_status.c.state_root).where(query_status.c.query_id.in_([stored.id, fork.id]))
    )
    roots: dict[UUID, UUID | None] = {row.query_id: row.state_root for row in rows}
    if None not in roots.values() and len({*roots.values()}) > 1:
        raise not_possible(f"'{stored.name}' and '{fork.name}' have their state in different directories", "?from_fork")
    return roots[fork.id]


def _copy_state(connection: sa.Connection, stored: QueryRow, fork: QueryRow, parameters: TakeOver) -> None:
    committed = load_committed_state(raw(connection), fork.id, fork.checkpoint_id)
    if committed.layout is None:
        raise not_possible(f"'{fork.name}' has not started yet; wait until it runs, or DELETE it", "?from_fork")
    states = load_states(raw(connection), fork.id)
    if not any(stored_segments(json.loads(state.manifest)) for state in states.values()):
        return
    refuse_elsewhere(parameters.files, fork.name, _root(connection, stored, fork))
    source, target = (fork.id, fork.checkpoint_id), (stored.id, parameters.checkpoint_id)
    try:
        parameters.files.copy(source, target, committed.layout.segments, states, partial(keep_alive, connection))
    except SegmentsGone as error:
        raise not_possible(f"the state of '{fork.name}' cannot be copied: {error}", "?from_fork") from error


def _exchange(connection: sa.Connection, stored: QueryRow, fork: QueryRow, plan: Plan, checkpoint_id: UUID) -> None:
    """Discard the original's result and state, and give it those of the fork."""
    fork_output = output_of_query(connection, fork.id)
    forget_results(connection, stored.id)
    drop_result(connection, stored.id)
    move_result(connection, fork.id, stored.id, plan.output)
    move_delivery(connection, fork.id, stored.id)
    move_commits(raw(connection), (fork.id, fork.checkpoint_id), (stored.id, checkpoint_id), (fork_output.name, plan.output.name))
    connection.execute(sa.delete(query_read).where(query_read.c.query_id.in_([stored.id, fork.id])))
    insert_reads(connection, stored.id, plan)


def _store(
    connection: sa.Connection, stored: QueryRow, fork: QueryRow, definition: dict[str, Any], checkpoint_id: UUID
) -> QueryRow:
    release = sa.select(query.c.release_nonce).where(query.c.id == fork.id).scalar_subquery()
    connection.execute(
        sa.update(query)
        .where(query.c.id == stored.id, query.c.version == stored.version)
        .values(
            **redefined(definition),
            checkpoint_id=checkpoint_id,
            release_nonce=release,
            generation=query.c.generation + 1,
            version=query.c.version + 1,
            updated_at=sa.func.now(),
        )
    )
    # Forks of the fork become forks of the query.
    is_fork_of_fork = query.c.fork_of["query_id"].as_string() == str(fork.id)
    renamed = {"query_id": str(stored.id), "query": stored.name}
    connection.execute(
        sa.update(query).where(is_fork_of_fork).values(fork_of=query.c.fork_of.concat(sa.cast(renamed, query.c.fork_of.type)))
    )
    add_event(connection, stored.id, "query_replaced", {"edit": "taken_over"})
    replaced = get_query(connection, stored.name)
    note(connection, Change(Action.REPLACE, "query", stored.name, stored.body, replaced.body | {"from_fork": fork.name}))
    return replaced


def _end_fork(connection: sa.Connection, fork: QueryRow, stored: QueryRow) -> None:
    forget_results(connection, fork.id, is_deleted=True)
    mark_deleted(connection, fork, "taken_over")
    note(connection, Change(Action.DELETE, "query", fork.name, fork.body, {"result": "taken_over", "by": stored.name}))
