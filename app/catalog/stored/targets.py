"""Relations as reads and appends use them: the form of a record, its destination, and the place of results."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from app.catalog.stored.catalog import entry_of
from app.catalog.stored.relations import ROWS, RelationRow
from app.db.tables import relation
from engine.plan.catalog import CatalogEntry


async def find_relation_async(connection: AsyncConnection, name: str) -> RelationRow | None:
    """Return the relation of that name."""
    row = (await connection.execute(ROWS.where(relation.c.name == name))).one_or_none()
    return None if row is None else RelationRow(*row)


def entry_of_row(row: RelationRow) -> CatalogEntry:
    """Return the catalog entry of a stored relation, without the inputs of its query, which a read does not need."""
    return entry_of(row.name, row.kind, row.origin, row.definition, row.produced_by, [])
