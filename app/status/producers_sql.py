"""Load the inputs of a query and everything upstream, to find the query that it waits for."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.rules import visible
from app.access.scopes import WITHHELD_NAME
from app.catalog.reasons import Reason
from app.catalog.stored.definitions import read_definition
from app.db.tables import query
from app.status.lineage.sql import load_graph
from app.status.producers import Reader, wait_of
from app.status.sql import Status
from engine.definition.queries import QueryDefinition


async def find_wait(connection: AsyncConnection, status: Status, relations: Sequence[str]) -> Reason | None:
    """Return the query that a running query waits for; None if it waits for none.

    Args:
        connection: of the service's reads.
        status: of the query that may wait.
        relations: names of its inputs.
    """
    stored = (await connection.execute(sa.select(query.c.definition).where(query.c.id == status.query_id))).scalar_one()
    definition = read_definition(QueryDefinition, stored)
    graph = await load_graph(connection, relations, "upstream")
    joined = [join for join in definition.joins if join.table is not None and definition.source.stream is not None]
    reader = Reader(
        relations=relations,
        position=status.position or {},
        held=frozenset(join.relation for join in joined if join.hold is not None),
        joined=frozenset(join.relation for join in joined),
    )
    wait = wait_of(graph, reader)
    if wait is None or WITHHELD_NAME not in {visible(name) for name in (*graph.relations, *graph.queries)}:
        return wait
    fact = "it waits for a query upstream that is not within your key's scope"
    return Reason(wait.code, fact, "ask for its status with a key without a scope, which sees that query")
