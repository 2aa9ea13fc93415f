"""Rows of queries: find, list, insert, desired state; removal of what a query has written about itself.

Transactions that also change relations are in ``catalog.queries.edits``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import sqlalchemy as sa

from app.access.audit.sql import Action, Change, note
from app.access.rules import actor
from app.access.scopes_sql import query_is_visible
from app.db.database import raw
from app.db.page_bounds import Most, bounded
from app.db.tables import commit, counter, delivery, late_record, query, query_event, query_status, task_state
from app.errors.app_errors import Conflict, NotFound
from app.http.requests.conditions import Preconditions
from engine.commit.history.retained_commits import forget_retained
from engine.log.dropped_feeds import drop_feed
from engine.log.sequences import leave_orphaned
from engine.sources.log.replay_reader import replay_feed


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A stored query: the desired state, and the state its status row shows.

    Attributes:
        fork_of: its origin as stored by ``app.catalog.queries.fork_rules.Fork``; None if the query is no fork.
    """

    id: UUID
    name: str
    definition: dict[str, Any]
    generation: int
    desired_state: str
    restart_nonce: int
    checkpoint_id: UUID
    version: int
    created_at: datetime
    updated_at: datetime
    state: str
    fork_of: dict[str, Any] | None = None

    @property
    def body(self) -> dict[str, Any]:
        """The user's part of the query, as the audit log shows it."""
        return {"definition": self.definition, "desired_state": self.desired_state, "generation": self.generation}


_COLUMNS = (
    query.c.id,
    query.c.name,
    query.c.definition,
    query.c.generation,
    query.c.desired_state,
    query.c.restart_nonce,
    query.c.checkpoint_id,
    query.c.version,
    query.c.created_at,
    query.c.updated_at,
    query_status.c.state,
    query.c.fork_of,
)
_LIVE = sa.select(*_COLUMNS).join_from(query, query_status).where(query.c.deleted_at.is_(None))


def find_query(connection: sa.Connection, name: str, *, is_locking: bool = False) -> QueryRow | None:
    """Return the query of that name, locked against other writers on request; None if it does not exist."""
    statement = _LIVE.where(query.c.name == name)
    if is_locking:
        statement = statement.with_for_update(of=query)
    row = connection.execute(statement).one_or_none()
    return None if row is None else QueryRow(*row)


def statement_text(connection: sa.Connection, query_id: UUID) -> str | None:
    """Return the statement that defines a query; None if JSON created it, or changed it since."""
    text: str | None = connection.execute(sa.select(query.c.statement).where(query.c.id == query_id)).scalar_one()
    return text


def redefined(form: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a query with a new definition; the statement is cleared, because it no longer describes the query.

    The caller that executes a statement stores its text afterwards.
    """
    return {"definition": form, "statement": None}


def get_query(connection: sa.Connection, name: str, *, is_locking: bool = False) -> QueryRow:
    """Return the query of that name.

    Raises:
        NotFound: ``query_not_found``.
    """
    row = find_query(connection, name, is_locking=is_locking)
    if row is None:
        raise query_not_found(name)
    return row


def query_not_found(name: str) -> NotFound:
    return NotFound("query_not_found", f"there is no query '{name}'; GET /v1/queries lists all")


def list_queries(connection: sa.Connection, most: Most, after: str | None) -> tuple[list[QueryRow], bool]:
    """Return queries by name, after ``after``, and whether the last one is beyond the page; only those in the caller's scope."""
    statement = _LIVE.where(query_is_visible()).order_by(query.c.name).limit(most.items)
    if after is not None:
        statement = statement.where(query.c.name > after)
    rows = connection.execute(bounded(statement, ("definition",), most.bytes)).all()
    return [QueryRow(*row[:-1]) for row in rows], bool(rows) and rows[-1][-1]


def set_desired_state(connection: sa.Connection, name: str, state: str, conditions: Preconditions) -> tuple[QueryRow, bool]:
    """Write the desired state. Return the query after the change and whether anything changed."""
    stored = get_query(connection, name, is_locking=True)
    conditions.check(f"query '{name}'", stored.version)
    if stored.desired_state == state:
        return stored, False
    connection.execute(
        sa.update(query)
        .where(query.c.id == stored.id, query.c.version == stored.version)
        .values(desired_state=state, version=query.c.version + 1, updated_at=sa.func.now())
    )
    add_event(connection, stored.id, "desired_state_changed", {"from": stored.desired_state, "to": state})
    before, after = {"desired_state": stored.desired_state}, {"desired_state": state}
    note(connection, Change(Action.SET_DESIRED_STATE, "query", name, before, after))
    return get_query(connection, name), True


def request_restart(connection: sa.Connection, name: str, conditions: Preconditions) -> QueryRow:
    """Request a new launch: the same definition, the same state, the next epoch.

    Raises:
        Conflict: ``query_not_wanted``: the desired state is not ``running``.
    """
    stored = get_query(connection, name, is_locking=True)
    conditions.check(f"query '{name}'", stored.version)
    if stored.desired_state != "running":
        raise Conflict(
            "query_not_wanted",
            f'query \'{name}\' shall be {stored.desired_state}; PUT /v1/queries/{name}/desired-state {{"state": "running"}} starts it',
        )
    connection.execute(
        sa.update(query)
        .where(query.c.id == stored.id, query.c.version == stored.version)
        .values(restart_nonce=query.c.restart_nonce + 1, version=query.c.version + 1, updated_at=sa.func.now())
    )
    add_event(connection, stored.id, "restart_requested", {"restart_nonce": stored.restart_nonce + 1})
    stopped = sa.update(delivery).where(delivery.c.query_id == stored.id, delivery.c.is_stopped)
    connection.execute(stopped.values(is_stopped=False, error=None, attempt=0, next_attempt_at=None, state_since=sa.func.now()))
    before, after = {"restart_nonce": stored.restart_nonce}, {"restart_nonce": stored.restart_nonce + 1}
    note(connection, Change(Action.RESTART, "query", name, before, after))
    return get_query(connection, name)


def add_event(connection: sa.Connection, query_id: UUID, kind: str, detail: dict[str, Any]) -> None:
    connection.execute(sa.insert(query_event).values(query_id=query_id, kind=kind, actor=actor(), detail=detail))


def insert_query(connection: sa.Connection, query_id: UUID, name: str, form: Mapping[str, Any], **others: Any) -> None:
    """Insert the rows of a new query, which is stopped; ``others`` are further columns."""
    values = {"checkpoint_id": uuid4(), **others}
    connection.execute(
        sa.insert(query).values(id=query_id, name=name, definition=form, desired_state=form["desired_state"], **values)
    )
    connection.execute(sa.insert(query_status).values(query_id=query_id, state="stopped"))


def mark_deleted(connection: sa.Connection, stored: QueryRow, result: str) -> None:
    """Delete a query for its users; a driver removes its state and its rows. ``result``: what became of its result."""
    connection.execute(
        sa.update(query)
        .where(query.c.id == stored.id, query.c.version == stored.version)
        .values(deleted_at=sa.func.now(), desired_state="stopped", version=query.c.version + 1, updated_at=sa.func.now())
    )
    add_event(connection, stored.id, "query_deleted", {"result": result})


def relaunch(connection: sa.Connection, query_id: UUID, reason: str) -> None:
    """Make a driver launch a running query again, because its surroundings have changed."""
    connection.execute(sa.update(query).where(query.c.id == query_id).values(restart_nonce=query.c.restart_nonce + 1))
    add_event(connection, query_id, "restart_requested", {"reason": reason})


STEP_ROWS = 5_000
"""Late records to delete in one transaction: some megabytes."""

# One index look-up for each query with late records.
_OF_DELETED = """
    WITH RECURSIVE found AS (
        (SELECT query_id FROM log.late_record ORDER BY query_id LIMIT 1)
        UNION ALL
        SELECT (SELECT l.query_id FROM log.late_record l WHERE l.query_id > f.query_id ORDER BY l.query_id LIMIT 1)
        FROM found f WHERE f.query_id IS NOT NULL
    )
    SELECT f.query_id FROM found f WHERE f.query_id IS NOT NULL
    AND NOT EXISTS (SELECT FROM slackwater.query q WHERE q.id = f.query_id AND q.deleted_at IS NULL)
"""
_STEP = "DELETE FROM log.late_record WHERE ctid = ANY(ARRAY(SELECT ctid FROM log.late_record WHERE query_id = %s LIMIT %s))"


def forget_results(connection: sa.Connection, query_id: UUID, *, is_deleted: bool = False) -> None:
    """Remove counters, late records, their replays, retained commits and the state of tasks; empty the commit row.

    The query's result logs no longer wait for more rows.

    Late records of a deleted query stay for ``sweep_late_records``: no route shows them any more, and other edits wait for this transaction.

    The commit row itself stays, with an unused checkpoint id and the newest epoch. It is the fence: without it an earlier launch order could
    take the fence again. A sink locks this row before it writes, so it is updated first.
    """
    epoch = sa.select(query_status.c.epoch).where(query_status.c.query_id == query_id).scalar_subquery()
    connection.execute(
        sa.update(commit)
        .where(commit.c.query_id == query_id)
        .values(
            checkpoint_id=uuid4(),
            epoch=sa.func.greatest(commit.c.epoch, epoch),
            batch_id=None,
            committed_at=None,
            position={},
            stream_time_ms=None,
            detail={},
            cursor=None,
            layout=None,
        )
    )
    connection.execute(sa.delete(task_state).where(task_state.c.query_id == query_id))
    forget_retained(raw(connection), query_id)
    connection.execute(sa.delete(counter).where(counter.c.owner == query_id))
    if not is_deleted:
        connection.execute(sa.delete(late_record).where(late_record.c.query_id == query_id))
    drop_feed(raw(connection), replay_feed(query_id))
    leave_orphaned(raw(connection), query_id)


def sweep_late_records(connection: psycopg.Connection[Any], step_rows: int = STEP_ROWS) -> None:
    """Remove the late records of deleted queries.

    Args:
        connection: in autocommit mode; the rows of a finished step stay removed if a later step fails.
        step_rows: rows to delete in one transaction.
    """
    for (query_id,) in connection.execute(_OF_DELETED).fetchall():
        while connection.execute(_STEP, (query_id, step_rows)).rowcount:
            pass
