"""GET …/lineage: what a relation is made of, what is made of it, and the progress of each query."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field

from app.access.rules import scope_in_force
from app.access.scopes_sql import find_visible_queries
from app.catalog.stored.relations import Kind, of_kind
from app.http.answers.documented import answered, problems
from app.http.leaving import cancel_on_client_disconnect
from app.http.parameters import Name, OnlyKnownParameters, Services, ServicesOf
from app.http.schemas import Answer, DesiredState, QueryState
from app.status.lineage.rules import Lineage, PartRead, Read, RelationFact, assemble, narrowed
from app.status.lineage.sql import load_graph


class LineageRelation(Answer):
    """A stream or a table."""

    name: str = Field(description="Name of the relation.", examples=["departures"])
    kind: Literal["stream", "table"] = Field(description="Whether it is a stream or a table.")
    origin: Literal["source", "derived"] = Field(description="Registered by a user, or produced by a query.")
    feed: str = Field(description="The feed of its records, by its name in positions.", examples=["log:departures"])
    end_offsets: dict[str, int] | None = Field(
        description="Partition to the offset of the next record; null if only the driver can know it (files). A derived relation has one "
        "partition: its rows are numbered across the tasks of its query.",
        examples=[{"0": 9000}],
    )
    newest_ms: int | None = Field(
        description="Newest event time in the feed: for a source, of its records; for a derived relation, the event time of its "
        "sources that its newest row has reached. null: unknown."
    )


class LineageQuery(Answer):
    """A query."""

    name: str = Field(description="Name of the query.")
    state: QueryState = Field(description="Current state.")
    desired_state: DesiredState = Field(description="The desired state.")
    tasks: int = Field(description="Number of its tasks.")
    internal: bool = Field(
        description="It materialises the rows of the source that it reads (`materialize`), and writes no relation of its own."
    )


class LineagePartition(Answer):
    """Progress of a query in one partition."""

    partition: int = Field(description="Number of the partition, from 0.")
    next_offset: int | None = Field(description="The next record to read; null before the first launch.")
    end_offset: int = Field(description="The partition's current end.")
    lag: int = Field(description="Records between the two.")
    read_to_ms: int | None = Field(description="Greatest event time read; null before the first record.")
    lag_s: float | None = Field(
        description="Newest event time in the partition minus the greatest one read, in seconds; 0 if everything is read; null if "
        "nothing is read yet."
    )


class LineageRead(Answer):
    """An edge from a relation to a query that reads it."""

    relation: str = Field(description="The relation that is read.")
    query: str = Field(description="The query that reads it.")
    partitions: list[LineagePartition] = Field(description="Empty if the feed's ends are unknown (files).")
    lag: int | None = Field(description="Unread records; null if unknown (files).")
    lag_s: float | None = Field(
        description="Lag of the query in seconds of event time: the greatest over the partitions; 0 if everything is read; "
        "null if unknown: for files, and if a partition has records and none of them is read."
    )


class LineageWrite(Answer):
    """An edge from a query to its result."""

    query: str = Field(description="The query that writes.")
    relation: str = Field(description="Its result.")
    end_offset: int | None = Field(description="Number of the next row.")
    reached_ms: int | None = Field(
        description="Progress of the query in the event time of its inputs: no later row has an earlier time. null before the "
        "first record."
    )


class LineageAnswer(Answer):
    """What a relation is made of, and what is made of it. Each item comes after the items that it is made of."""

    name: str = Field(description="The requested relation.")
    kind: Literal["stream", "table"] = Field(description="Whether it is a stream or a table.")
    relations: list[LineageRelation] = Field(description="Relations, each after those that it is made of.")
    queries: list[LineageQuery] = Field(description="Queries between them, each after those whose results it reads.")
    reads: list[LineageRead] = Field(description="Edges from relations to the queries that read them.")
    writes: list[LineageWrite] = Field(description="Edges from queries to their results.")
    truncated: bool = Field(description="The graph has more items; the nearest are here. Ask for a relation further away.")
    withheld: bool = Field(
        description="The graph has items outside of the key's scope. Relations outside of it are left out, and queries that read or write them."
    )


LINEAGE: dict[str, Any] = {
    "name": "delays_by_airport",
    "kind": "table",
    "relations": [
        {
            "name": "departures",
            "kind": "stream",
            "origin": "source",
            "feed": "log:departures",
            "end_offsets": {"0": 9000},
            "newest_ms": 1357041600000,
        },
        {
            "name": "delays_by_airport",
            "kind": "table",
            "origin": "derived",
            "feed": "log:changes:delays_by_airport",
            "end_offsets": {"0": 1743},
            "newest_ms": 1357041570000,
        },
    ],
    "queries": [{"name": "delays_by_airport", "state": "running", "desired_state": "running", "tasks": 2, "internal": False}],
    "reads": [
        {
            "relation": "departures",
            "query": "delays_by_airport",
            "partitions": [
                {
                    "partition": 0,
                    "next_offset": 8990,
                    "end_offset": 9000,
                    "lag": 10,
                    "read_to_ms": 1357041570000,
                    "lag_s": 30.0,
                }
            ],
            "lag": 10,
            "lag_s": 30.0,
        }
    ],
    "writes": [{"query": "delays_by_airport", "relation": "delays_by_airport", "end_offset": 1743, "reached_ms": 1357041570000}],
    "truncated": False,
    "withheld": False,
}


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
