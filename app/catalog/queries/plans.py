"""A stored query with its plan and the facts of its last commit, for routes that answer questions about a query."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from app.catalog.stored.catalog import load_catalog, read_definition
from app.catalog.stored.queries import QueryRow, get_query
from app.db.database import raw
from app.db.tables import commit
from engine.definition.queries import QueryDefinition
from engine.plan.build import build_plan
from engine.plan.model import Plan


@dataclass(frozen=True, slots=True)
class Committed:
    """The facts of the last commit with the query's present state; empty before the first.

    Attributes:
        position: feed → partition → next offset.
        detail: from the sink (``engine.commit.sink``).
    """

    position: dict[str, dict[str, int]]
    stream_time_ms: int | None
    committed_at: datetime | None
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query, its plan, and its last commit."""

    row: QueryRow
    definition: QueryDefinition
    plan: Plan
    committed: Committed


def get_planned(connection: sa.Connection, name: str, *, is_locking: bool = False) -> PlannedQuery:
    """Return the query of that name.

    Args:
        connection: in a transaction without earlier statements.
        name: of the query.
        is_locking: whether to lock the definition for a write. Otherwise all is one snapshot: no commit falls between its parts.

    Raises:
        NotFound: ``query_not_found``.
    """
    if not is_locking:
        connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
    row = get_query(connection, name, is_locking=is_locking)
    definition = read_definition(QueryDefinition, row.definition)
    plan = build_plan(definition, load_catalog(raw(connection)))
    row_of_commit = connection.execute(
        sa.select(commit.c.position, commit.c.stream_time_ms, commit.c.committed_at, commit.c.detail).where(
            commit.c.query_id == row.id, commit.c.checkpoint_id == row.checkpoint_id
        )
    ).one_or_none()
    committed = Committed({}, None, None, {}) if row_of_commit is None else Committed(*row_of_commit)
    return PlannedQuery(row, definition, plan, committed)
