"""Rows of driver processes: identity, heartbeat, and which of them are orphans of a dead supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from app.access.scopes import PREFIX
from app.catalog.deliveries import sql as deliveries
from app.catalog.drivers.placement import DriverLoad, ReadyDrivers

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class DriverRow:
    """One driver process.

    Attributes:
        create_time: of the process, seconds since the epoch: with the pid it identifies one process for ever.
        supervisor_pid: of the process that started it, None for a driver without a supervisor.
        supervisor_create_time: of that process.
        heartbeat_age_s: seconds since the last heartbeat, by the database's clock.
        phase: starting_jvm, ready, draining.
    """

    id: UUID
    host: str
    pid: int
    create_time: float
    supervisor_pid: int | None
    supervisor_create_time: float | None
    heartbeat_age_s: float
    phase: str


_ROWS = """
    SELECT id, host, pid, create_time, phase,
        (detail ->> 'supervisor_pid')::int AS supervisor_pid,
        (detail ->> 'supervisor_create_time')::double precision AS supervisor_create_time,
        extract(epoch FROM clock_timestamp() - heartbeat_at)::double precision AS heartbeat_age_s
    FROM slackwater.driver
"""


UNCAPPED = 1_000_000
"""The limit of every driver for internal queries."""

_LOADS = """
    SELECT d.id AS driver_id,
        CASE WHEN %(is_internal)s THEN %(uncapped)s ELSE (d.detail ->> 'max_queries')::int END AS max_queries,
        count(q.id) FILTER (WHERE starts_with(q.name, %(prefix)s) = %(is_internal)s)::int AS held
    FROM slackwater.driver d
    LEFT JOIN slackwater.query_status s ON s.lease_owner = d.id LEFT JOIN slackwater.query q ON q.id = s.query_id
    WHERE d.phase = 'ready' AND d.heartbeat_at > now() - %(silent_ms)s * interval '1 ms' AND d.detail ->> 'state_root' = %(root)s
    GROUP BY d.id ORDER BY d.id
"""


def beat(connection: Connection, driver_id: UUID, phase: str, detail: dict[str, Any], process: tuple[str, int, float]) -> None:
    """Write a driver's heartbeat and phase; the first one creates its row. ``process``: host, pid, create time."""
    host, pid, create_time = process
    with connection.transaction():
        connection.execute(
            """
            INSERT INTO slackwater.driver (id, host, pid, create_time, phase, detail) VALUES (%s, %s, %s, %s, %s, %s)
            ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp(), phase = excluded.phase, detail = excluded.detail
            """,
            (driver_id, host, pid, create_time, phase, Jsonb(detail)),
        )


def load_ready_drivers(
    connection: Connection, unplaced: int, silent_ms: int, root: UUID, *, is_internal: bool = False
) -> ReadyDrivers:
    """Return the drivers that share the users' (or internal) queries of a root: ready, with a heartbeat within ``silent_ms``.

    The connection is in autocommit mode.
    """
    values = {"silent_ms": silent_ms, "uncapped": UNCAPPED, "root": str(root), "is_internal": is_internal, "prefix": PREFIX}
    with connection.cursor(row_factory=class_row(DriverLoad)) as cursor:
        return ReadyDrivers(tuple(cursor.execute(_LOADS, values)), unplaced)


def find_driver(connection: Connection, driver_id: UUID) -> DriverRow | None:
    with connection.transaction(), connection.cursor(row_factory=class_row(DriverRow)) as cursor:
        return cursor.execute(_ROWS + " WHERE id = %s", (driver_id,)).fetchone()


def drivers_on(connection: Connection, host: str) -> list[DriverRow]:
    """Return the drivers that were started on a host and have not removed their rows."""
    with connection.transaction(), connection.cursor(row_factory=class_row(DriverRow)) as cursor:
        return cursor.execute(_ROWS + " WHERE host = %s ORDER BY started_at", (host,)).fetchall()


def forget_driver(connection: Connection, driver_id: UUID) -> None:
    """Remove the row of a lost driver, and release its leases: the next driver need not wait until they expire."""
    with connection.transaction():
        connection.execute(
            """
            UPDATE slackwater.query_status SET lease_owner = NULL, lease_expires_at = NULL, version = version + 1
            WHERE lease_owner = %s
            """,
            (driver_id,),
        )
        deliveries.release_all(connection, driver_id)
        connection.execute("DELETE FROM slackwater.driver WHERE id = %s", (driver_id,))
