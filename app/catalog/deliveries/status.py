"""Deliveries for status and metrics. Read only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.catalog.deliveries.rules import DeliveryFacts
from app.db.log_tables import RESULT_FEED

# The batch with the first undelivered row is the one with the greatest first number up to it.
_FACTS: Final = f"""
SELECT q.name AS query, d.id::text AS id, d.definition, q.desired_state, d.position, coalesce(f.next_sequence, d.position) AS "end",
    (SELECT b.head_ms FROM log.batch b WHERE b.feed_id = f.id AND b.sequence IS NOT NULL ORDER BY b.sequence DESC LIMIT 1) AS newest_ms,
    d.event_time_ms,
    CASE WHEN f.next_sequence > d.position THEN extract(epoch FROM clock_timestamp() - (
        SELECT b.appended_at FROM log.batch b WHERE b.feed_id = f.id AND b.sequence <= d.position ORDER BY b.sequence DESC LIMIT 1
    ))::double precision END AS waited_s,
    d.delivered_at, d.delivered_rows, d.failures, d.attempt, d.next_attempt_at, d.error, d.is_stopped, d.state_since,
    coalesce(d.lease_expires_at > now(), false) AS is_leased
FROM slackwater.delivery d JOIN slackwater.query q ON q.id = d.query_id
LEFT JOIN slackwater.relation r ON r.produced_by = q.id
LEFT JOIN log.feed f ON f.name = {RESULT_FEED}
WHERE q.deleted_at IS NULL
"""  # noqa: S608 - made of constants
_OF_QUERY: Final = sa.text(_FACTS + " AND q.id = :query")
_OF_QUERIES: Final = sa.text(_FACTS + " AND q.id = ANY(:queries)")
_ALL: Final = sa.text(_FACTS)


async def delivery_of(connection: AsyncConnection, query_id: UUID) -> DeliveryFacts | None:
    """Return the delivery of a query; None if it has none."""
    row = (await connection.execute(_OF_QUERY, {"query": query_id})).mappings().one_or_none()
    return None if row is None else DeliveryFacts(**row)


async def deliveries_of(connection: AsyncConnection, query_ids: Sequence[UUID]) -> dict[str, DeliveryFacts]:
    """Return the deliveries of queries by the queries' names; most have none."""
    rows = (await connection.execute(_OF_QUERIES, {"queries": list(query_ids)})).mappings()
    return {row["query"]: DeliveryFacts(**row) for row in rows}


async def all_deliveries(connection: AsyncConnection) -> list[DeliveryFacts]:
    """Return every delivery."""
    return [DeliveryFacts(**row) for row in (await connection.execute(_ALL)).mappings()]
