"""Rows of deliveries as edits of queries make, change and end them, and as status shows them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import Conflict
from app.store.log_tables import feed
from app.store.tables import delivery
from engine.connectors.outputs import result_feed
from engine.definition.delivery import DeliveryModel
from engine.plan.model import Output


def set_delivery(connection: sa.Connection, query_id: UUID, wanted: DeliveryModel | None, output: Output, *, is_anew: bool = False) -> None:
    """Let a query's result be delivered as its definition says, in the transaction of the edit.

    A delivery whose definition stays as it is goes on; any other one, also of a result that begins anew, begins anew under another id.

    Raises:
        Conflict: ``changes_expired``: the first changes of a table were removed, and it is to be delivered from its beginning.
    """
    said = None if wanted is None else wanted.model_dump(mode="json", by_alias=True)
    before = connection.execute(sa.select(delivery.c.definition).where(delivery.c.query_id == query_id)).scalar_one_or_none()
    if before == said and not is_anew:
        return
    connection.execute(sa.delete(delivery).where(delivery.c.query_id == query_id))
    if wanted is None:
        return
    name = result_feed(output)
    row = connection.execute(sa.select(feed.c.start_sequence, feed.c.next_sequence).where(feed.c.name == name)).one()
    if wanted.start == "earliest" and output.kind == "table" and row.start_sequence > 0:
        raise Conflict(
            "changes_expired",
            f"the first changes of '{output.name}' were removed by retention, so that it cannot be delivered whole; say \"start\": \"latest\" in "
            "`into.connector`, or let the query begin anew (?state=discard)",
        )
    position = row.start_sequence if wanted.start == "earliest" else row.next_sequence
    connection.execute(
        sa.insert(delivery).values(
            id=uuid.uuid4(), query_id=query_id, feed=name, definition=said, position=position, planned=position
        )
    )


def end_delivery(connection: sa.Connection, query_id: UUID) -> None:
    """End a query's delivery: what was not delivered is not delivered any more."""
    connection.execute(sa.delete(delivery).where(delivery.c.query_id == query_id))


def try_again(connection: sa.Connection, query_id: UUID) -> None:
    """Let a delivery that failed or stopped try again at once."""
    connection.execute(
        sa.update(delivery)
        .where(delivery.c.query_id == query_id, delivery.c.state != "delivering")
        .values(state="retrying", next_attempt_at=None)
    )


def is_delivered(connection: sa.Connection, query_id: UUID) -> bool:
    """Whether a query's result is delivered."""
    return bool(connection.execute(sa.select(sa.exists().where(delivery.c.query_id == query_id))).scalar_one())


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """A delivery as it stands.

    Attributes:
        lag_ms: since the oldest row that is not delivered was written; 0: all are.
    """

    type: str
    state: str
    position: int
    end: int
    lag_ms: float
    delivered_rows: int
    delivered_at: datetime | None
    attempt: int
    next_attempt_at: datetime | None
    failure: dict[str, Any] | None


_STATUS = """
    SELECT d.definition ->> 'type' AS type, d.state, d.position, coalesce(f.next_sequence, d.position) AS "end",
        CASE WHEN f.next_sequence > d.position THEN coalesce(extract(epoch FROM clock_timestamp() - (
            SELECT b.appended_at FROM log.batch b WHERE b.feed_id = f.id AND b.sequence <= d.position ORDER BY b.sequence DESC LIMIT 1
        )) * 1000, 0) ELSE 0 END::double precision AS lag_ms,
        d.delivered_rows, d.delivered_at, d.attempt, d.next_attempt_at, d.failure
    FROM slackwater.delivery d LEFT JOIN log.feed f ON f.name = d.feed WHERE d.query_id = :query
"""


async def find_delivery(connection: AsyncConnection, query_id: UUID) -> DeliveryStatus | None:
    """Return how the delivery of a query's result stands; None: there is none."""
    row = (await connection.execute(sa.text(_STATUS), {"query": query_id})).mappings().one_or_none()
    return None if row is None else DeliveryStatus(**row)


async def has_deliveries(connection: AsyncConnection) -> bool:
    """Whether any result is delivered."""
    return bool((await connection.execute(sa.select(sa.exists(sa.select(delivery.c.id))))).scalar_one())
