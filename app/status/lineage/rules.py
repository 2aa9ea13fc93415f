"""The graph of relations and queries around a relation, and the progress of each reader. Pure: facts in, edges out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import Literal
from uuid import UUID

Places = Mapping[str, Mapping[str, int]]
"""Feed → partition → offset or event time, as a commit row has them."""


@dataclass(frozen=True, slots=True)
class Part:
    """One partition of a feed in the log; a derived feed has one, whose offsets are the numbers of its rows (P1).

    Attributes:
        end_offset: of the next record.
        newest_ms: greatest event time of its newest batches; for a derived feed the head of its newest rows. None without any.
    """

    partition: int
    start_offset: int
    end_offset: int
    newest_ms: int | None


@dataclass(frozen=True, slots=True)
class FeedFact:
    """A feed.

    Attributes:
        name: in positions.
        parts: in the order of partitions; None if its offsets do not count records (``Traits.has_heads``).
        next_sequence: of a derived feed; None for a source's.
        reached_ms: progress of the merge of the producer's inputs (P3); None for a source.
        ends: for feeds without parts: partition → position after the known records.
        holds: ``Traits.holds``.
    """

    name: str
    parts: tuple[Part, ...] | None
    next_sequence: int | None = None
    reached_ms: int | None = None
    ends: Mapping[str, int] = field(default_factory=dict)
    holds: str = "records"


@dataclass(frozen=True, slots=True)
class RelationFact:
    """A relation.

    Attributes:
        produced_by: name of the query that writes it; None for a source, and for a result that outlived its query.
    """

    name: str
    kind: Literal["stream", "table"]
    origin: Literal["source", "derived"]
    feed: FeedFact
    produced_by: str | None = None


@dataclass(frozen=True, slots=True)
class QueryFact:
    """A query, and what it has committed.

    Attributes:
        reads: names of the relations.
        position: feed → partition → next offset; empty before its first launch.
        read_to: feed → partition → greatest event time read (``engine.commit.commit_row``).
    """

    id: UUID
    name: str
    state: str
    desired_state: str
    tasks: int
    reads: tuple[str, ...]
    position: Places
    read_to: Places
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """Relations and queries by name.

    Attributes:
        is_whole: False: the graph has more items than were loaded.
    """

    relations: Mapping[str, RelationFact]
    queries: Mapping[str, QueryFact]
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class PartRead:
    """Progress of a query in a partition.

    Attributes:
        next_offset: None before the query's first launch.
        records: unread ones.
        lag_ms: see ``Read``.
    """

    partition: int
    next_offset: int | None
    end_offset: int
    records: int
    read_to_ms: int | None
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class Read:
    """An edge from a relation to a query.

    Attributes:
        parts: empty if the ends of the feed are unknown.
        records: unread ones, over all partitions; None if unknown.
        lag_ms: greatest, over the partitions, of newest event time − greatest event time read; 0 for a partition that is read to its end.
            None if unknown: offsets do not count records, or nothing is read of a partition that has records.
    """

    relation: str
    query: str
    parts: tuple[PartRead, ...]
    records: int | None
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class Write:
    """An edge from a query to its result.

    Attributes:
        end_offset: number of the next row; None if the feed does not exist.
        reached_ms: progress of the merge of the query's inputs, in event time; None before the first record.
    """

    query: str
    relation: str
    end_offset: int | None
    reached_ms: int | None


@dataclass(frozen=True, slots=True)
class Lineage:
    """A graph with its edges. Each item comes after the items that it is made of.

    Attributes:
        newest_ms: relation → newest event time in its feed, if known.
    """

    relations: tuple[RelationFact, ...]
    queries: tuple[QueryFact, ...]
    reads: tuple[Read, ...]
    writes: tuple[Write, ...]
    newest_ms: Mapping[str, int | None]


def narrowed(graph: Graph, relations: Callable[[str], bool], queries: Collection[str]) -> Graph:
    """Return the part of a graph that may be shown: relations that ``relations`` allows, and these queries."""
    return replace(
        graph,
        relations={name: relation for name, relation in graph.relations.items() if relations(name)},
        queries={name: query for name, query in graph.queries.items() if name in queries},
    )


def assemble(graph: Graph) -> Lineage:
    """Return nodes and edges in order.

    An internal query (``materialize:<table>``) keeps the rows of the table it reads: it has no edge back, so the graph has no cycle.
    """
    reads = [read_of(graph, graph.relations[name], query) for query in graph.queries.values() for name in query.reads]
    writes = [
        Write(relation.produced_by, relation.name, relation.feed.next_sequence, relation.feed.reached_ms)
        for relation in graph.relations.values()
        if relation.produced_by in graph.queries and relation.produced_by is not None
    ]
    places = _places(graph)
    return Lineage(
        relations=tuple(sorted(graph.relations.values(), key=lambda each: places["relation", each.name])),
        queries=tuple(sorted(graph.queries.values(), key=lambda each: places["query", each.name])),
        reads=tuple(sorted(reads, key=lambda read: (places["query", read.query], places["relation", read.relation]))),
        writes=tuple(sorted(writes, key=lambda write: places["relation", write.relation])),
        newest_ms={name: newest_ms(graph, relation.feed) for name, relation in graph.relations.items()},
    )


def _places(graph: Graph) -> dict[tuple[str, str], int]:
    sorter: TopologicalSorter[tuple[str, str]] = TopologicalSorter()
    for name, relation in sorted(graph.relations.items()):
        made_by = [] if relation.produced_by not in graph.queries else [("query", str(relation.produced_by))]
        sorter.add(("relation", name), *made_by)
    for name, query in sorted(graph.queries.items()):
        sorter.add(("query", name), *(("relation", read) for read in sorted(query.reads)))
    return {node: place for place, node in enumerate(sorter.static_order())}


def read_of(graph: Graph, relation: RelationFact, query: QueryFact) -> Read:
    feed = relation.feed
    if feed.parts is None:
        return Read(relation.name, query.name, (), None, None)
    parts = tuple(_part_read(part, query, feed.name, _newest(graph, feed.name, part)) for part in feed.parts)
    lags = [part.lag_ms for part in parts]
    lag_ms = None if None in lags else max((lag for lag in lags if lag is not None), default=None)
    return Read(relation.name, query.name, parts, sum(part.records for part in parts), lag_ms)


def _part_read(part: Part, query: QueryFact, feed: str, newest: int | None) -> PartRead:
    partition = str(part.partition)
    following = query.position.get(feed, {}).get(partition)
    records = max(0, part.end_offset - max(part.start_offset, following or 0))
    read_to = query.read_to.get(feed, {}).get(partition)
    is_known = read_to is not None and newest is not None
    lag_ms = 0 if records == 0 else max(0, (newest or 0) - (read_to or 0)) if is_known else None
    return PartRead(part.partition, following, part.end_offset, records, read_to, lag_ms)


def newest_ms(graph: Graph, feed: FeedFact) -> int | None:
    """Return the newest event time in a feed; None if there is none or it is unknown."""
    return max((ms for part in feed.parts or () if (ms := _newest(graph, feed.name, part)) is not None), default=None)


def _newest(graph: Graph, feed: str, part: Part) -> int | None:
    """Return the newest event time of a partition: of its newest batches, or of earlier records that a reader has read."""
    read = [query.read_to.get(feed, {}).get(str(part.partition)) for query in graph.queries.values()]
    return max((ms for ms in (part.newest_ms, *read) if ms is not None), default=None)
