"""GET …/lineage: what a relation is made of, what is made of it, and the progress of each query."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from app.access.rules import scope_in_force
from app.access.scopes_sql import find_visible_queries
from app.catalog.stored.relations import Kind, of_kind
from app.http.answers.documented import answered, problems
from app.http.leaving import cancel_on_client_disconnect
from app.http.parameters import Name, OnlyKnownParameters, Services, ServicesOf
from app.status.lineage.models import (
    LINEAGE,
    LineageAnswer,
    LineagePartition,
    LineageQuery,
    LineageRead,
    LineageRelation,
    LineageWrite,
)
from app.status.lineage.rules import Lineage, PartRead, Read, RelationFact, assemble, narrowed
from app.status.lineage.sql import load_graph

router = APIRouter(prefix="/v1", dependencies=[OnlyKnownParameters])


_RESPONSES: dict[int | str, dict[str, Any]] = {200: answered(LINEAGE, "The graph, as of now."), **problems(400, 404)}


@router.get(
    "/streams/{name}/lineage",
    summary="Show what a stream is made of, and what is made of it",
    tags=["streams"],
    response_model=LineageAnswer,
    responses=_RESPONSES,
)
@cancel_on_client_disconnect
async def get_stream_lineage(
    name: Name,
    request: Request,  # noqa: ARG001 - the decorator's
    services: ServicesOf,
) -> LineageAnswer:
    """Relations and queries, upstream and downstream, with the lag of each query in records and in seconds of event time.

    Other inputs of downstream queries are left out. The graph shows committed facts, whether a driver is alive or not.
    """
    return await _lineage("stream", name, services)


@router.get(
    "/tables/{name}/lineage",
    summary="Show what a table is made of, and what is made of it",
    tags=["tables"],
    response_model=LineageAnswer,
    responses=_RESPONSES,
)
@cancel_on_client_disconnect
async def get_table_lineage(
    name: Name,
    request: Request,  # noqa: ARG001 - the decorator's
    services: ServicesOf,
) -> LineageAnswer:
    """Relations and queries, upstream and downstream, with the lag of each query in records and in seconds of event time.

    Other inputs of downstream queries are left out. The graph shows committed facts, whether a driver is alive or not.
    """
    return await _lineage("table", name, services)


async def _lineage(kind: Kind, name: str, services: Services) -> LineageAnswer:
    scope = scope_in_force()
    async with services.database.paging() as connection:
        graph = await load_graph(connection, [name])
        queries = graph.queries if scope is None else await find_visible_queries(connection, graph.queries.keys())
    of_kind(graph.relations.get(name), kind, name)
    shown = graph if scope is None else narrowed(graph, scope.allows, queries)
    lineage = assemble(shown)
    return LineageAnswer(
        name=name,
        kind=kind,
        relations=[_relation(relation, lineage) for relation in lineage.relations],
        queries=[
            LineageQuery.model_validate(
                {
                    "name": query.name,
                    "state": query.state,
                    "desired_state": query.desired_state,
                    "tasks": query.tasks,
                    "internal": query.is_internal,
                }
            )
            for query in lineage.queries
        ],
        reads=[_read(read) for read in lineage.reads],
        writes=[
            LineageWrite(query=write.query, relation=write.relation, end_offset=write.end_offset, reached_ms=write.reached_ms)
            for write in lineage.writes
        ],
        truncated=not graph.is_whole,
        withheld=len(shown.relations) < len(graph.relations) or len(shown.queries) < len(graph.queries),
    )


def _relation(relation: RelationFact, lineage: Lineage) -> LineageRelation:
    parts = relation.feed.parts
    return LineageRelation(
        name=relation.name,
        kind=relation.kind,
        origin=relation.origin,
        feed=relation.feed.name,
        end_offsets=None if parts is None else {str(part.partition): part.end_offset for part in parts},
        newest_ms=lineage.newest_ms[relation.name],
    )


def _read(read: Read) -> LineageRead:
    return LineageRead(
        relation=read.relation,
        query=read.query,
        partitions=[_partition(part) for part in read.parts],
        lag=read.records,
        lag_s=_seconds(read.lag_ms),
    )


def _partition(part: PartRead) -> LineagePartition:
    return LineagePartition(
        partition=part.partition,
        next_offset=part.next_offset,
        end_offset=part.end_offset,
        lag=part.records,
        read_to_ms=part.read_to_ms,
        lag_s=_seconds(part.lag_ms),
    )


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
