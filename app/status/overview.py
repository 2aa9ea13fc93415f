"""An overview of all queries: six statements for any number of queries. Read only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.catalog.deliveries.rules import DeliveryFacts
from app.catalog.deliveries.sql import deliveries_of
from app.db.tables import RESULT_FEED, counter
from app.lateness.record_rules import LATE_REASONS
from app.status.sql import Status, list_statuses
from engine.definition.sources.connector import LOG_PREFIX
from engine.definition.sources.connector_list import DEFAULT, MODELS
from engine.log.sequences import LANE_PARTITION

# Partitions that a position does not name are unread as a whole.
_LAGS = sa.text(
    """
    SELECT c.query_id, p.feed, sum(greatest(
        coalesce(f.next_sequence, h.next_offset) - coalesce((p.partitions ->> h.partition::text)::bigint, 0), 0
    ))::bigint
    FROM log.commit c JOIN slackwater.query q ON q.id = c.query_id AND q.checkpoint_id = c.checkpoint_id
    CROSS JOIN LATERAL jsonb_each(c.position) AS p(feed, partitions)
    JOIN log.feed f ON f.name = CASE WHEN starts_with(p.feed, CAST(:own AS text)) THEN substr(p.feed, length(CAST(:own AS text)) + 1)
        ELSE p.feed END
    JOIN log.head h ON h.feed_id = f.id AND (f.next_sequence IS NULL OR h.partition = :lane)
    WHERE c.query_id = ANY(:ids) AND split_part(p.feed, ':', 1) = ANY(:headed)
    GROUP BY c.query_id, p.feed
    """
)
# Only a feed of the built-in log has a name that follows from its relation; for others it is null.
_RELATIONS = sa.text(
    f"""
    WITH edge AS (
        SELECT x.query_id, x.relation_id, false AS is_written FROM slackwater.query_read x WHERE x.query_id = ANY(:ids)
        UNION ALL SELECT r.produced_by, r.id, true FROM slackwater.relation r WHERE r.produced_by = ANY(:ids)
    ), fed AS (
        SELECT r.id, r.name, r.kind, r.origin, CASE
            WHEN r.origin = 'derived' THEN {RESULT_FEED}
            WHEN r.definition #>> '{{connector,type}}' = :built_in THEN coalesce(r.definition #>> '{{connector,feed}}', r.name)
        END AS feed
        FROM slackwater.relation r WHERE r.id IN (SELECT relation_id FROM edge)
    )
    SELECT e.query_id, e.is_written, d.name, d.kind, d.origin, d.feed, (
        SELECT sum(coalesce(f.next_sequence, h.next_offset))::bigint FROM log.feed f
        JOIN log.head h ON h.feed_id = f.id AND (f.next_sequence IS NULL OR h.partition = :lane) WHERE f.name = d.feed
    )
    FROM edge e JOIN fed d ON d.id = e.relation_id ORDER BY d.name
    """  # noqa: S608 - made of constants
)

_FORKS = sa.text(
    """
    SELECT f.id, o.name FROM slackwater.query f
    JOIN slackwater.query o ON o.id = (f.fork_of ->> 'query_id')::uuid AND o.deleted_at IS NULL
    WHERE f.id = ANY(:ids) AND f.fork_of IS NOT NULL
    """
)


@dataclass(frozen=True, slots=True)
class RelationAtGlance:
    """A stream or a table.

    Attributes:
        appended: records, or changes of rows, ever appended; None if unknown here.
    """

    name: str
    kind: Literal["stream", "table"]
    origin: Literal["source", "derived"]
    appended: int | None


@dataclass(frozen=True, slots=True)
class ReadAtGlance:
    """A relation that a query reads.

    Attributes:
        lag: unread records of its feed; None if unknown.
        read_rows: records of its feed read since the query began with this state; None if unknown.
    """

    relation: str
    lag: int | None
    read_rows: int | None


@dataclass(frozen=True, slots=True)
class QueryAtGlance:
    """A query.

    Attributes:
        status: with the parts of its last commit that the overview needs.
        lag: unread records of all feeds; None before its first commit, and if no end of a feed is known.
        late: records that came too late, whatever became of them.
        writes: the relation that it writes; None if it writes none of its own.
        delivery: of its results; None: they are not delivered.
        fork_of: the query that it is a fork of; None: it is not a fork, or the original is deleted.
    """

    status: Status
    lag: int | None
    late: int
    reads: tuple[ReadAtGlance, ...]
    writes: str | None
    delivery: DeliveryFacts | None
    fork_of: str | None


@dataclass(frozen=True, slots=True)
class Glance:
    """Queries by name, and the relations that they read and write."""

    queries: tuple[QueryAtGlance, ...]
    relations: tuple[RelationAtGlance, ...]


async def look(connection: AsyncConnection, limit: int, after: str | None) -> Glance:
    """Return up to ``limit`` queries behind the name ``after``, within the scope of the request's key."""
    statuses = await list_statuses(connection, limit, after)
    ids = [status.query_id for status in statuses]
    lags = await _lags(connection, ids)
    late = await _late(connection, ids)
    deliveries = await deliveries_of(connection, ids)
    forks: dict[UUID, str] = {row.id: row.name for row in await connection.execute(_FORKS, {"ids": ids})}
    params = {"ids": ids, "built_in": DEFAULT.name(), "lane": LANE_PARTITION}
    edges = (await connection.execute(_RELATIONS, params)).all()
    relations = {name: RelationAtGlance(name, kind, origin, appended) for _, _, name, kind, origin, _, appended in edges}
    reads: dict[UUID, list[tuple[str, str | None]]] = {}
    writes: dict[UUID, str] = {}
    for query_id, is_written, name, _, _, feed, _ in edges:
        if is_written:
            writes[query_id] = name
        else:
            reads.setdefault(query_id, []).append((name, None if feed is None else LOG_PREFIX + feed))
    queries = [
        QueryAtGlance(
            status,
            sum(lags_of_query.values()) if (lags_of_query := lags.get(status.query_id, {})) else None,
            late.get(status.query_id, 0),
            tuple(_read(name, feed, lags_of_query, status) for name, feed in reads.get(status.query_id, ())),
            writes.get(status.query_id),
            deliveries.get(status.name),
            forks.get(status.query_id),
        )
        for status in statuses
    ]
    return Glance(tuple(queries), tuple(relations.values()))


def _read(name: str, feed: str | None, lags: Mapping[str, int], status: Status) -> ReadAtGlance:
    read_rows = (status.detail or {}).get("read_rows") or {}
    return ReadAtGlance(name, None if feed is None else lags.get(feed), None if feed is None else read_rows.get(feed))


async def _lags(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, dict[str, int]]:
    headed = [name for name, model in MODELS.items() if model.traits.has_heads]
    params: dict[str, Any] = {"ids": list(ids), "own": LOG_PREFIX, "headed": headed, "lane": LANE_PARTITION}
    unread: dict[UUID, dict[str, int]] = {}
    for query_id, feed, records in await connection.execute(_LAGS, params):
        unread.setdefault(query_id, {})[feed] = records
    return unread


async def _late(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, int]:
    rows = await connection.execute(
        sa.select(counter.c.owner, sa.func.sum(counter.c.total))
        .where(counter.c.owner.in_(ids), counter.c.reason.in_(sorted(LATE_REASONS)))
        .group_by(counter.c.owner)
    )
    return {owner: int(total) for owner, total in rows}
