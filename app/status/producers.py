"""Find the query that a query waits for, because that one writes one of its inputs.

A query that reads several feeds merges them by event time. For a derived feed, it knows the progress of the producer's merge. Records of other
feeds behind that time stay unread until the producer continues (P4), however long the producer is paused, stopped or failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.rules import visible
from app.access.scopes import WITHHELD_NAME
from app.catalog.stored.catalog import read_definition
from app.catalog.warned import Reason
from app.db.tables import query
from app.http.values import shown
from app.status.lineage.rules import FeedFact, Graph, Places, QueryFact, RelationFact, read_of
from app.status.lineage.sql import load_graph
from app.status.sql import Status
from engine.definition.queries import QueryDefinition
from engine.expressions.durations import format_duration
from engine.runtime.planning.upstream import ProducerFact, Reached, log_feed_of, walk

WAITS_FOR_PRODUCER = "waits_for_producer"
_AT_WORK = ("running", "starting")


@dataclass(frozen=True, slots=True)
class Reader:
    """The query that may wait.

    Attributes:
        relations: names of its inputs.
        position: feed → partition → next offset.
        held: inputs with a hold: a hold waits by itself, up to its own bound (J9).
        joined: tables that it joins its stream with: such a join may have a hold.
    """

    relations: Sequence[str]
    position: Places
    held: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()


def wait_of(graph: Graph, reader: Reader) -> Reason | None:
    """Return the query without progress that the reader waits for, and what can be done; None if it waits for none."""
    relations = [graph.relations[name] for name in reader.relations if name in graph.relations]
    feeds = {relation.feed.name: relation.feed for relation in relations}
    if len(feeds) < 2 or not any(_has_unread(feed, reader.position) for feed in feeds.values()):
        return None
    facts, known = _facts(graph), dict[str, Reached]()
    behind = [
        (-1 if reached.merged_to_ms is None else reached.merged_to_ms, relation)
        for relation in relations
        if relation.produced_by in graph.queries and relation.name not in reader.held
        if not (reached := walk(log_feed_of(relation.feed.name), facts, known)).is_at_end
    ]
    if not behind:
        return None
    _, relation = min(behind, key=lambda each: (each[0], each[1].name))
    producers = sorted(_unfinished(graph, relation.name), key=lambda each: (each[1].state in _AT_WORK, -each[0]))
    if all(producer.state in _AT_WORK for _, producer in producers):
        return None  # they make progress: this is lag, and the lineage shows it
    return _reason(graph, relation, [producer for _, producer in producers], reader)


def _facts(graph: Graph) -> dict[str, ProducerFact]:
    facts = {}
    for relation in graph.relations.values():
        feed, producer = relation.feed, graph.queries.get(relation.produced_by or "")
        parts = {str(part.partition): part.end_offset for part in feed.parts or ()}
        facts[log_feed_of(feed.name)] = ProducerFact(
            producer=None if producer is None else producer.id,
            next_sequence=feed.next_sequence,
            reached_ms=feed.reached_ms,
            position={} if producer is None else producer.position,
            read_to={} if producer is None else producer.read_to,
            ends=feed.ends if feed.parts is None else parts,
        )
    return facts


def _has_unread(feed: FeedFact, position: Places) -> bool:
    offsets = position.get(feed.name, {})
    if feed.parts is None:
        return any(end > offsets.get(partition, 0) for partition, end in feed.ends.items())
    return any(part.end_offset > max(part.start_offset, offsets.get(str(part.partition), 0)) for part in feed.parts)


def _unfinished(graph: Graph, relation: str) -> Iterator[tuple[int, QueryFact]]:
    """Yield the upstream queries that have unread records or have never begun, with their distance from the relation."""
    visited, pending = set[str](), [(1, relation)]
    for depth, name in pending:
        known = graph.relations.get(name)
        query = None if known is None else graph.queries.get(known.produced_by or "")
        if query is None or query.name in visited:
            continue
        visited.add(query.name)
        feeds = [relation.feed for relation in _relations(graph, query)]
        if not query.position or any(_has_unread(feed, query.position) for feed in feeds):
            yield depth, query
        pending += [(depth + 1, read) for read in query.reads]


def _reason(graph: Graph, relation: RelationFact, producers: Sequence[QueryFact], reader: Reader) -> Reason:
    first = producers[0]
    role = "writes it" if relation.produced_by == first.name else "stands behind it"
    others = [f"'{each.name}' is {each.state} too" for each in producers[1:] if each.state not in _AT_WORK]
    so_far = f"the query '{first.name}', which {role}, is {first.state} and {_unread(graph, first)}"
    can_hold = relation.name in reader.joined
    ways = [
        _going_on(first),
        *(["a `grace` with a `hold` and its `at_most` on the join bounds the wait"] if can_hold else []),
        f"DELETE /v1/queries/{first.name}?state=keep ends it for good and keeps what there is of the result",
    ]
    fact = (
        f"it reads its feeds together in event time, and no further than '{relation.name}' has come "
        f"({shown(relation.feed.reached_ms)}): {'; '.join([so_far, *others])}"
    )
    return Reason(WAITS_FOR_PRODUCER, fact, _sentence(ways))


def _unread(graph: Graph, query: QueryFact) -> str:
    if not query.position:
        return "has not begun to read"
    reads = [read_of(graph, relation, query) for relation in _relations(graph, query)]
    records = sum(read.records or 0 for read in reads)
    lag_ms = max((read.lag_ms for read in reads if read.lag_ms is not None), default=0)
    if not records:
        kinds = sorted({relation.feed.holds for relation in _relations(graph, query) if relation.feed.parts is None})
        return f"has {' and '.join(kinds) or 'nothing'} to read"
    # Show whole seconds for a lag over a second.
    lag = format_duration(lag_ms if lag_ms < 1_000 else lag_ms // 1_000 * 1_000)
    return f"has {records} record{'' if records == 1 else 's'} to read" + (f", {lag} of event time" if lag_ms else "")


def _relations(graph: Graph, query: QueryFact) -> list[RelationFact]:
    return [graph.relations[name] for name in query.reads if name in graph.relations]


def _going_on(query: QueryFact) -> str:
    if query.desired_state != "running":
        return f'resume it (PUT /v1/queries/{query.name}/desired-state {{"state": "running"}})'
    if query.state == "failed":
        return f"fix the error in GET /v1/queries/{query.name}/status, and POST /v1/queries/{query.name}/restart"
    return f"it should start without help; GET /v1/queries/{query.name}/status says why it does not yet"


def _sentence(ways: Sequence[str]) -> str:
    text = "; or ".join(ways)
    return text[0].upper() + text[1:]


async def find_wait(connection: AsyncConnection, status: Status, relations: Sequence[str]) -> Reason | None:
    """Return the query that a running query waits for; None if it waits for none."""
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
