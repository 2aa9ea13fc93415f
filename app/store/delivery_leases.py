"""What the process that delivers results reads and writes: leases, positions, failures. Every write carries its fence (owner, epoch)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Leased:
    """A delivery that this process may deliver.

    Attributes:
        definition: of the query, as it is stored.
        position: number of the first row of which it is not certain that the target has it.
        planned: behind the rows that may have been under way; equal to ``position``: none were.
        epoch: of the lease.
    """

    id: UUID
    query_id: UUID
    query: str
    feed: str
    definition: dict[str, Any]
    relation: dict[str, Any]
    position: int
    planned: int
    epoch: int
    attempt: int


_COLUMNS: Final = """
    d.id, d.query_id, q.name AS query, d.feed, d.definition, r.definition AS relation, d.position, d.planned, d.epoch, d.attempt
"""
_CLAIM: Final = f"""
    WITH claimed AS (
        UPDATE slackwater.delivery SET lease_owner = %(owner)s, epoch = epoch + 1,
            lease_expires_at = clock_timestamp() + %(ttl_ms)s * interval '1 ms'
        WHERE id IN (
            SELECT id FROM slackwater.delivery
            WHERE state <> 'stopped' AND (lease_owner IS NULL OR lease_expires_at < clock_timestamp())
            ORDER BY created_at LIMIT %(most)s FOR UPDATE SKIP LOCKED
        ) RETURNING *
    )
    SELECT {_COLUMNS} FROM claimed d JOIN slackwater.query q ON q.id = d.query_id JOIN slackwater.relation r ON r.produced_by = q.id
"""
_RENEW: Final = """
    UPDATE slackwater.delivery SET lease_expires_at = clock_timestamp() + %(ttl_ms)s * interval '1 ms'
    WHERE lease_owner = %(owner)s AND lease_expires_at > clock_timestamp() AND state <> 'stopped' RETURNING id, epoch
"""
_DUE: Final = """
    SELECT d.id FROM slackwater.delivery d JOIN log.feed f ON f.name = d.feed
    WHERE d.lease_owner = %(owner)s AND (f.next_sequence > d.position OR d.planned > d.position)
    AND (d.next_attempt_at IS NULL OR d.next_attempt_at <= clock_timestamp())
"""
_FENCE: Final = "id = %(id)s AND lease_owner = %(owner)s AND epoch = %(epoch)s AND lease_expires_at > clock_timestamp()"


def claim(connection: Connection, owner: UUID, ttl_ms: int, most: int) -> Sequence[Leased]:
    """Lease deliveries that nobody has."""
    with connection.transaction(), connection.cursor(row_factory=class_row(Leased)) as cursor:
        return cursor.execute(_CLAIM, {"owner": owner, "ttl_ms": ttl_ms, "most": most}).fetchall()


def renew(connection: Connection, owner: UUID, ttl_ms: int) -> dict[UUID, int]:
    """Renew this process's leases; returns those it still has, with their epochs."""
    with connection.transaction():
        return dict(connection.execute(_RENEW, {"owner": owner, "ttl_ms": ttl_ms}).fetchall())


def due(connection: Connection, owner: UUID) -> set[UUID]:
    """Return which of this process's deliveries have something to deliver now."""
    with connection.transaction():
        return {found for (found,) in connection.execute(_DUE, {"owner": owner}).fetchall()}


def release(connection: Connection, owner: UUID) -> None:
    """Give all leases of a process back."""
    with connection.transaction():
        connection.execute(
            "UPDATE slackwater.delivery SET lease_owner = NULL, lease_expires_at = NULL WHERE lease_owner = %s", (owner,)
        )


def plan(connection: Connection, leased: Leased, owner: UUID, position: int, planned: int) -> bool:
    """Note what is known to be delivered and what is delivered next; False: the lease is another's, deliver nothing."""
    values = {"id": leased.id, "owner": owner, "epoch": leased.epoch, "position": position, "planned": planned}
    with connection.transaction():
        return bool(
            connection.execute(
                f"UPDATE slackwater.delivery SET position = %(position)s, planned = %(planned)s WHERE {_FENCE}", values
            ).rowcount
        )


def delivered(connection: Connection, leased: Leased, owner: UUID, position: int, rows: int) -> bool:
    """Note that the target has all up to a position. A delivery that had failed goes on. False: the lease is another's."""
    values = {"id": leased.id, "owner": owner, "epoch": leased.epoch, "position": position, "rows": rows}
    with connection.transaction():
        done = connection.execute(
            f"""
            UPDATE slackwater.delivery SET position = %(position)s, planned = %(position)s, delivered_rows = delivered_rows + %(rows)s,
                delivered_at = clock_timestamp(), state = 'delivering', attempt = 0, next_attempt_at = NULL, failure = NULL
            WHERE {_FENCE} RETURNING query_id, (SELECT old.state FROM slackwater.delivery old WHERE old.id = %(id)s)
            """,
            values,
        ).fetchone()
        if done is not None and done[1] != "delivering":
            _event(connection, done[0], "delivery_resumed", {"position": position})
        return done is not None


def failed(connection: Connection, leased: Leased, owner: UUID, failure: dict[str, Any], backoff_ms: int | None) -> bool:
    """Note a failure; ``backoff_ms`` None: the delivery stops. False: the lease is another's."""
    state = "stopped" if backoff_ms is None else "retrying"
    values = {
        "id": leased.id, "owner": owner, "epoch": leased.epoch, "failure": Jsonb(failure), "state": state, "backoff_ms": backoff_ms or 0,
    }  # fmt: skip
    with connection.transaction():
        done = connection.execute(
            f"""
            UPDATE slackwater.delivery SET state = %(state)s, attempt = attempt + 1,
                failure = %(failure)s::jsonb || jsonb_build_object('at', clock_timestamp()),
                next_attempt_at = clock_timestamp() + %(backoff_ms)s * interval '1 ms'
            WHERE {_FENCE} RETURNING query_id, (SELECT old.state FROM slackwater.delivery old WHERE old.id = %(id)s)
            """,
            values,
        ).fetchone()
        if done is not None and done[1] != state:
            _event(connection, done[0], f"delivery_{state}", failure)
        return done is not None


def _event(connection: Connection, query_id: UUID, kind: str, detail: dict[str, Any]) -> None:
    connection.execute(
        "INSERT INTO slackwater.query_event (query_id, kind, actor, detail) VALUES (%s, %s, 'delivery', %s)",
        (query_id, kind, Jsonb(detail)),
    )
