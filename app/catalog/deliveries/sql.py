"""The statements of the delivering process (leases, plans, positions, failures), and the deliveries for status and metrics.

The statements of the process have a guard: the delivery's id and the epoch of the lease. If one finds no row, another process leases the
delivery, or it has ended. The lease only saves work; the target ensures that nothing is delivered twice (``engine.deliveries.deliveries``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
import sqlalchemy as sa
from psycopg.rows import class_row, tuple_row
from psycopg.types.json import Jsonb
from sqlalchemy.ext.asyncio import AsyncConnection

from app.catalog.deliveries.rules import DeliveryFacts
from app.db.tables import RESULT_FEED
from engine.deliveries.delivered_rows import Gathered, RecordedDelivery, gather
from engine.deliveries.deliveries import Result

Connection = psycopg.Connection[Any]

_FREE: Final = "(d.lease_owner IS NULL OR d.lease_expires_at NOT BETWEEN now() AND now() + interval '10 minutes')"
_WANTED: Final = "NOT d.is_stopped AND q.deleted_at IS NULL AND q.desired_state <> 'stopped'"
_ANY: Final = f"""
SELECT EXISTS (SELECT FROM slackwater.delivery d JOIN slackwater.query q ON q.id = d.query_id WHERE {_FREE} AND {_WANTED})
"""  # noqa: S608 - made of constants, as all below
_CLAIM: Final = f"""
WITH free AS (
    SELECT d.query_id FROM slackwater.delivery d JOIN slackwater.query q ON q.id = d.query_id
    WHERE {_FREE} AND {_WANTED} ORDER BY d.query_id LIMIT %(most)s FOR UPDATE OF d SKIP LOCKED
)
UPDATE slackwater.delivery d SET lease_owner = %(owner)s, lease_expires_at = now() + %(ttl_ms)s * interval '1 millisecond',
    epoch = epoch + 1
FROM free WHERE d.query_id = free.query_id RETURNING d.id
"""  # noqa: S608
_RENEW: Final = """
UPDATE slackwater.delivery SET lease_expires_at = now() + %(ttl_ms)s * interval '1 millisecond' WHERE lease_owner = %(owner)s
"""
_LOOK: Final = f"""
SELECT d.id, d.epoch, d.definition, d.position, d.planned, q.name AS query, r.version AS result_version, r.definition AS output,
    f.next_sequence, {_WANTED} AS is_wanted,
    (SELECT max(c.updated_at) FROM slackwater.connection c) AS connections_at
FROM slackwater.delivery d JOIN slackwater.query q ON q.id = d.query_id JOIN slackwater.relation r ON r.produced_by = q.id
JOIN log.feed f ON f.name = {RESULT_FEED}
WHERE d.lease_owner = %(owner)s
"""  # noqa: S608
_HELD: Final = "d.id = %(id)s AND d.epoch = %(epoch)s"
_NOTED: Final = f"""
SELECT position, planned, extract(epoch FROM clock_timestamp() - planned_at)::double precision AS planned_age_s, is_known
FROM slackwater.delivery d WHERE {_HELD}
"""  # noqa: S608
_HOLD: Final = f"""
SELECT f.id FROM slackwater.delivery d JOIN slackwater.relation r ON r.produced_by = d.query_id
JOIN log.feed f ON f.name = {RESULT_FEED}
WHERE {_HELD} FOR UPDATE OF d
"""  # noqa: S608
_PLAN: Final = f"""
UPDATE slackwater.delivery d SET position = %(start)s, planned = %(upto)s, planned_at = now(), is_known = %(is_known)s,
    delivered_rows = delivered_rows + greatest(%(start)s - position, 0)
WHERE {_HELD}
"""  # noqa: S608
_WELL: Final = """attempt = 0, next_attempt_at = NULL, error = NULL,
    state_since = CASE WHEN d.error IS NULL THEN state_since ELSE now() END"""
_BEFORE: Final = f"""
FROM (SELECT id, error FROM slackwater.delivery WHERE id = %(id)s FOR UPDATE) before WHERE {_HELD} AND before.id = d.id
"""  # noqa: S608
_DELIVERED: Final = f"""
UPDATE slackwater.delivery d SET position = %(upto)s, delivered_rows = delivered_rows + %(rows)s, delivered_at = now(),
    event_time_ms = greatest(event_time_ms, %(event_time_ms)s), is_known = true, {_WELL}
{_BEFORE} RETURNING before.error IS NOT NULL
"""  # noqa: S608
_REACHED: Final = f"""
UPDATE slackwater.delivery d SET position = %(start)s, planned = %(start)s, is_known = %(is_known)s,
    delivered_rows = delivered_rows + greatest(%(start)s - position, 0), {_WELL}
{_BEFORE} RETURNING before.error IS NOT NULL
"""  # noqa: S608
_FAILED: Final = f"""
UPDATE slackwater.delivery d SET failures = failures + 1, attempt = attempt + 1, is_stopped = %(is_stopped)s,
    next_attempt_at = now() + %(again_ms)s * interval '1 millisecond',
    lease_owner = CASE WHEN %(is_stopped)s THEN NULL ELSE lease_owner END,
    error = %(error)s || jsonb_build_object('at', now()),
    state_since = CASE WHEN d.error IS NULL OR %(is_stopped)s THEN now() ELSE state_since END
{_BEFORE} RETURNING before.error IS NULL
"""  # noqa: S608
_RELEASE: Final = f"UPDATE slackwater.delivery d SET lease_owner = NULL, lease_expires_at = NULL WHERE {_HELD}"  # noqa: S608
_RELEASE_ALL: Final = "UPDATE slackwater.delivery SET lease_owner = NULL, lease_expires_at = NULL WHERE lease_owner = %s"
_EVENT: Final = """
INSERT INTO slackwater.query_event (query_id, kind, actor, detail)
SELECT query_id, %(kind)s, 'driver', %(detail)s FROM slackwater.delivery WHERE id = %(id)s
"""

MOST_DETAIL_CHARS: Final = 2_000


class DeliveryLost(Exception):
    """Another process leases the delivery, or it has ended."""


@dataclass(frozen=True, slots=True)
class DeliveryLease:
    """A lease of a delivery."""

    id: UUID
    epoch: int

    @property
    def names(self) -> dict[str, Any]:
        return {"id": self.id, "epoch": self.epoch}


@dataclass(frozen=True, slots=True)
class LeasedDelivery:
    """A leased delivery with its present facts.

    Attributes:
        result_version: of the relation: its columns may change with the version.
        output: the relation as stored.
        next_sequence: number after the last row of the result.
        is_wanted: whether the delivery is to run: it is not stopped, nor its query.
        connections_at: newest change of any connection; None if there are none.
    """

    id: UUID
    epoch: int
    definition: Mapping[str, Any]
    position: int
    planned: int
    query: str
    result_version: int
    output: Mapping[str, Any]
    next_sequence: int
    is_wanted: bool
    connections_at: datetime | None

    @property
    def lease(self) -> DeliveryLease:
        return DeliveryLease(self.id, self.epoch)

    @property
    def form(self) -> tuple[object, ...]:
        """The values that a target is opened with: if they change it is opened again."""
        return self.result_version, str(self.definition), self.connections_at


def is_any_free(connection: Connection) -> bool:
    """Whether there is a delivery to run without a lease."""
    row = connection.execute(_ANY).fetchone()
    return row is not None and bool(row[0])


def claim(connection: Connection, owner: UUID, ttl_ms: int, most: int) -> int:
    """Lease free deliveries; return how many."""
    return connection.execute(_CLAIM, {"owner": owner, "ttl_ms": ttl_ms, "most": most}).rowcount


def renew(connection: Connection, owner: UUID, ttl_ms: int) -> None:
    connection.execute(_RENEW, {"owner": owner, "ttl_ms": ttl_ms})


def look(connection: Connection, owner: UUID) -> list[LeasedDelivery]:
    """Return the deliveries whose leases are this process's now."""
    with connection.cursor(row_factory=class_row(LeasedDelivery)) as cursor:
        return cursor.execute(_LOOK, {"owner": owner}).fetchall()


def release(connection: Connection, held: DeliveryLease) -> None:
    connection.execute(_RELEASE, held.names)


def release_all(connection: Connection, owner: UUID) -> None:
    """Release all leases of a driver's process that is gone."""
    connection.execute(_RELEASE_ALL, (owner,))


def recorded_delivery(connection: Connection, held: DeliveryLease) -> RecordedDelivery:
    """Return the recorded position of a delivery.

    Raises:
        DeliveryLost: the lease is lost.
    """
    with connection.cursor(row_factory=class_row(RecordedDelivery)) as cursor:
        recorded = cursor.execute(_NOTED, held.names).fetchone()
    if recorded is None:
        raise DeliveryLost
    return recorded


def plan(connection: Connection, held: DeliveryLease, start: int, result: Result, *, is_known: bool) -> Gathered | None:
    """Record the next rows to deliver, and return them; None if there are none.

    The delivery's row is locked while the log is read. A rewind of the query, which cuts the log off, waits for it and then sees the plan.

    Args:
        connection: in autocommit mode.
        held: the lease.
        start: number of the first row.
        result: to deliver.
        is_known: whether the target has a position.

    Raises:
        DeliveryLost: the lease is lost.
        DeliveryStopped: ``delivery_overtaken``.
    """
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(_HOLD, held.names).fetchone()
        if row is None:
            raise DeliveryLost
        gathered = gather(connection, row[0], start, result)
        if gathered is not None:
            values = {**held.names, "start": start, "upto": gathered.upto, "is_known": is_known}
            cursor.execute(_PLAN, values)
        return gathered


def note_delivered(connection: Connection, held: DeliveryLease, start: int, gathered: Gathered) -> None:
    """Record that rows were delivered.

    Raises:
        DeliveryLost: the lease is lost.
    """
    values = {"upto": gathered.upto, "rows": gathered.upto - start, "event_time_ms": gathered.event_time_ms}
    _note_good(connection, _DELIVERED, held, values)


def note_reached(connection: Connection, held: DeliveryLease, start: int, *, is_known: bool) -> None:
    """Record the target's position, with no rows planned.

    Raises:
        DeliveryLost: the lease is lost.
    """
    _note_good(connection, _REACHED, held, {"start": start, "is_known": is_known})


def note_failed(connection: Connection, held: DeliveryLease, code: str, detail: str, again_ms: int | None) -> None:
    """Record that the target did not accept rows.

    Args:
        connection: in autocommit mode.
        held: the lease; it is released if the delivery stops.
        code: stable code.
        detail: the fault.
        again_ms: time until the next attempt; None: the delivery stops.

    Raises:
        DeliveryLost: the lease is lost.
    """
    is_stopped = again_ms is None
    error = {"code": code, "detail": _storable(detail)}
    values = {**held.names, "is_stopped": is_stopped, "again_ms": again_ms, "error": Jsonb(error)}
    with connection.transaction():
        row = connection.execute(_FAILED, values).fetchone()
        if row is None:
            raise DeliveryLost
        if is_stopped or row[0]:
            _add_event(connection, held, "delivery_stopped" if is_stopped else "delivery_waits", error)


def _storable(text: str) -> str:
    """Return a text in a form that Postgres accepts. A text that it refuses would end the thread that reports a failure."""
    return text[:MOST_DETAIL_CHARS].replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _note_good(connection: Connection, statement: str, lease: DeliveryLease, values: Mapping[str, Any]) -> None:
    with connection.transaction():
        row = connection.execute(statement, {**lease.names, **values}).fetchone()
        if row is None:
            raise DeliveryLost
        if row[0]:
            _add_event(connection, lease, "delivery_resumed", {})


def _add_event(connection: Connection, lease: DeliveryLease, kind: str, detail: Mapping[str, Any]) -> None:
    connection.execute(_EVENT, {"id": lease.id, "kind": kind, "detail": Jsonb({"delivery": str(lease.id), **detail})})


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
    return [DeliveryFacts(**row) for row in (await connection.execute(_ALL)).mappings()]
