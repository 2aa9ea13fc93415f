"""The facts of a lineage: two statements, whatever the size of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.scopes import is_internal
from app.catalog.stored.catalog import entry_of
from app.status.lineage.rules import FeedFact, Graph, Part, QueryFact, RelationFact
from engine.log.sequences import LANE_PARTITION
from engine.plan.model import Feed
from engine.sources.connector_kinds import OWN_ENDS_SQL

MOST_NODES = 1_000
"""Limit of relations with their queries in one direction of a graph. For more, ask for a relation further away."""

NEWEST_BATCHES = 1_000
"""Batches of a partition that are searched for its newest event time. A record so far out of order that it is before
them counts after a query has read it."""

# Breadth first, so that the nearest items are included if there are too many. A limit ends the recursion.
_GRAPH = sa.text(
    """
    WITH RECURSIVE up (relation, query) AS (
        SELECT r.id, r.produced_by FROM slackwater.relation r WHERE r.name = ANY(:names)
        UNION
        SELECT i.id, i.produced_by FROM up JOIN slackwater.query_read x ON x.query_id = up.query
        JOIN slackwater.relation i ON i.id = x.relation_id
    ), down (relation, query) AS (
        SELECT r.id, CAST(NULL AS uuid) FROM slackwater.relation r WHERE r.name = ANY(:names) AND :is_downstream
        UNION
        SELECT o.id, x.query_id FROM down JOIN slackwater.query_read x ON x.relation_id = down.relation
        LEFT JOIN slackwater.relation o ON o.produced_by = x.query_id
    ), near AS (
        (SELECT 'up' AS way, * FROM up LIMIT :most) UNION ALL (SELECT 'down', * FROM down LIMIT :most)
    )
    SELECT (
        SELECT jsonb_agg(jsonb_build_array(r.name, r.kind, r.origin, r.definition, q.name))
        FROM slackwater.relation r LEFT JOIN slackwater.query q ON q.id = r.produced_by
        WHERE r.id IN (SELECT relation FROM near)
    ), (
        SELECT jsonb_agg(jsonb_build_array(q.id, q.name, s.state, q.desired_state, q.definition -> 'tasks', c.position, c.detail -> 'read_to', (
            SELECT jsonb_agg(i.name ORDER BY i.name) FROM slackwater.query_read x JOIN slackwater.relation i ON i.id = x.relation_id
            WHERE x.query_id = q.id AND i.id IN (SELECT relation FROM near)
        )))
        FROM slackwater.query q JOIN slackwater.query_status s ON s.query_id = q.id
        LEFT JOIN log.commit c ON c.query_id = q.id AND c.checkpoint_id = q.checkpoint_id
        WHERE q.id IN (SELECT query FROM near)
    ), (SELECT coalesce(max(size), 0) FROM (SELECT count(*) AS size FROM near GROUP BY way) ways)
    """
)
# The heads of a derived feed rise with the numbers: the last block has the greatest.
_FEEDS = sa.text(
    f"""
    SELECT f.name, f.start_sequence, f.next_sequence, f.reached_ms, (
        SELECT b.head_ms FROM log.batch b WHERE b.feed_id = f.id AND b.sequence IS NOT NULL ORDER BY b.sequence DESC LIMIT 1
    ), (
        SELECT jsonb_agg(jsonb_build_array(h.partition, h.start_offset, h.next_offset, (
            SELECT max(b.max_ts) FROM (
                SELECT n.max_ts FROM log.batch n WHERE n.feed_id = h.feed_id AND n.partition = h.partition
                ORDER BY n.base_offset DESC LIMIT :batches
            ) b
        )) ORDER BY h.partition) FROM log.head h WHERE h.feed_id = f.id AND f.next_sequence IS NULL
    ), {OWN_ENDS_SQL}
    FROM log.feed f WHERE f.name = ANY(:names)
    """  # noqa: S608 - made of constants
)
Direction = Literal["upstream", "both"]


async def load_graph(
    connection: AsyncConnection, names: Sequence[str], direction: Direction = "both", most: int = MOST_NODES
) -> Graph:
    """Return the graph around relations: all that they are made of, and all that is made of them.

    Positions are read before ends, so that no unread record counts as read.

    Args:
        connection: of the service's reads.
        names: of relations; unknown names are left out.
        direction: upstream only, or downstream too.
        most: limit of relations with their queries in one direction; the nearest come first.
    """
    params = {"names": list(names), "most": most + 1, "is_downstream": direction == "both"}
    relations, queries, size = (await connection.execute(_GRAPH, params)).one()
    # The inputs of its query are left out: a feed does not depend on them.
    entries = [
        (entry_of(name, kind, origin, definition, produced_by, []), origin)
        for name, kind, origin, definition, produced_by in relations or ()
    ]
    feeds = await _load_feeds(connection, [entry.feed for entry, _ in entries])
    query_facts = [_query(row) for row in queries or ()]
    return Graph(
        relations={
            entry.relation.name: RelationFact(
                entry.relation.name, entry.relation.kind, origin, feeds[entry.feed.name], entry.produced_by
            )
            for entry, origin in entries
        },
        queries={query.name: query for query in query_facts},
        is_whole=size <= most,
    )


def _query(row: Sequence[Any]) -> QueryFact:
    query_id, name, state, desired_state, tasks, position, read_to, reads = row
    return QueryFact(
        id=UUID(query_id),
        name=name,
        state=state,
        desired_state=desired_state,
        tasks=tasks,
        reads=tuple(reads or ()),
        position=position or {},
        read_to=read_to or {},
        is_internal=is_internal(name),
    )


async def _load_feeds(connection: AsyncConnection, feeds: Sequence[Feed]) -> dict[str, FeedFact]:
    """Return feeds by their names in positions."""
    params = {"names": [feed.log_feed for feed in feeds], "batches": NEWEST_BATCHES}
    rows = {row[0]: row[1:] for row in await connection.execute(_FEEDS, params)}
    return {feed.name: _feed(feed, rows.get(feed.log_feed)) for feed in feeds}


def _feed(feed: Feed, row: Sequence[Any] | None) -> FeedFact:
    traits = feed.traits
    if row is None:
        return FeedFact(feed.name, () if traits.has_heads else None, holds=traits.holds)
    start, following, reached_ms, head_ms, parts, own_ends = row
    if not traits.has_heads:
        return FeedFact(feed.name, None, ends=own_ends or {}, holds=traits.holds)
    if following is not None:
        return FeedFact(feed.name, (Part(LANE_PARTITION, start, following, head_ms),), following, reached_ms)
    return FeedFact(feed.name, tuple(Part(*part) for part in parts or ()))
