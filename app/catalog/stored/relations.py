"""Rows of relations: find, list, readers. Transactions that change them are in ``catalog.relations.edits``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.scopes_sql import name_is_visible
from app.catalog.stored.catalog import entry_of
from app.db.page_bounds import Most, bounded
from app.db.tables import query, query_read, relation
from app.errors.app_errors import NotFound
from engine.plan.catalog import CatalogEntry

Kind = Literal["stream", "table"]


class _HasKind(Protocol):
    @property
    def kind(self) -> Kind: ...


Found = TypeVar("Found", bound=_HasKind)


@dataclass(frozen=True, slots=True)
class RelationRow:
    """A stored relation.

    Attributes:
        definition: of a source, with every default; or the output of a derived relation (``catalog``).
        produced_by: name of the query that writes it.
        kept: for a result of a deleted query: see ``retained_result``.
    """

    id: UUID
    name: str
    kind: Kind
    definition: dict[str, Any]
    origin: Literal["source", "derived"]
    produced_by: str | None
    version: int
    created_at: datetime
    updated_at: datetime
    kept: dict[str, Any] | None = None

    @property
    def body(self) -> dict[str, Any]:
        """The relation, as the audit log shows it."""
        origin = {} if self.kept is None else {"kept_of": self.kept["query"]}
        return {"definition": self.definition, **origin}


_COLUMNS: tuple[sa.ColumnElement[Any], ...] = (
    relation.c.id,
    relation.c.name,
    relation.c.kind,
    relation.c.definition,
    relation.c.origin,
    query.c.name.label("produced_by"),
    relation.c.version,
    relation.c.created_at,
    relation.c.updated_at,
    relation.c.kept,
)
ROWS = sa.select(*_COLUMNS).join_from(relation, query, relation.c.produced_by == query.c.id, isouter=True)


def find_relation(connection: sa.Connection, name: str) -> RelationRow | None:
    """Return the relation of that name; streams and tables share one namespace."""
    row = connection.execute(ROWS.where(relation.c.name == name)).one_or_none()
    return None if row is None else RelationRow(*row)


def get_relation(connection: sa.Connection, kind: Kind, name: str) -> RelationRow:
    """Return the stream or table of that name.

    Raises:
        NotFound: ``relation_not_found``.
    """
    return of_kind(find_relation(connection, name), kind, name)


def of_kind(found: Found | None, kind: Kind, name: str) -> Found:
    """Return ``found`` if it is of this kind.

    Raises:
        NotFound: ``relation_not_found``; the detail says if the name is of the other kind.
    """
    if found is None:
        raise NotFound("relation_not_found", f"there is no {kind} '{name}'; GET /v1/{kind}s lists all")
    if found.kind != kind:
        raise NotFound("relation_not_found", f"'{name}' is a {found.kind}: use /v1/{found.kind}s/{name}")
    return found


def list_relations(connection: sa.Connection, kind: Kind, most: Most, after: str | None) -> tuple[list[RelationRow], bool]:
    """Return relations of a kind by name, after ``after``, and whether the last one is beyond the page; only those in the caller's scope."""
    statement = ROWS.where(relation.c.kind == kind, name_is_visible(relation.c.name)).order_by(relation.c.name).limit(most.items)
    if after is not None:
        statement = statement.where(relation.c.name > after)
    rows = connection.execute(bounded(statement, ("definition",), most.bytes)).all()
    return [RelationRow(*row[:-1]) for row in rows], bool(rows) and rows[-1][-1]


def readers_of(connection: sa.Connection, ids: Iterable[UUID]) -> dict[UUID, list[str]]:
    """Return the names of the reading queries for each of these relations that has readers."""
    rows = connection.execute(
        sa.select(query_read.c.relation_id, query.c.name)
        .join_from(query_read, query)
        .where(query_read.c.relation_id.in_(list(ids)))
        .order_by(query.c.name)
    )
    readers: dict[UUID, list[str]] = {}
    for relation_id, name in rows:
        readers.setdefault(relation_id, []).append(name)
    return readers


def retained_result(query_name: str, committed: Any | None) -> dict[str, Any]:
    """Return the facts that a result keeps about its deleted query.

    Args:
        query_name: of the query.
        committed: position, stream_time_ms and committed_at of its last commit; None if it has none.
    """
    if committed is None:
        return {"query": query_name, "position": {}, "stream_time_ms": None, "committed_at": None}
    committed_at = None if committed.committed_at is None else committed.committed_at.isoformat()
    return {
        "query": query_name,
        "position": committed.position or {},
        "stream_time_ms": committed.stream_time_ms,
        "committed_at": committed_at,
    }


async def find_relation_async(connection: AsyncConnection, name: str) -> RelationRow | None:
    row = (await connection.execute(ROWS.where(relation.c.name == name))).one_or_none()
    return None if row is None else RelationRow(*row)


def entry_of_row(row: RelationRow) -> CatalogEntry:
    """Return the catalog entry of a stored relation, without the inputs of its query, which a read does not need."""
    return entry_of(row.name, row.kind, row.origin, row.definition, row.produced_by, [])
