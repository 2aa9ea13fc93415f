"""Rows of driver processes: identity, heartbeat, which of them accept queries and how many they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import sqlalchemy as sa
from psycopg.rows import class_row
from psycopg.types.json import Jsonb
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.scopes import PREFIX, is_internal
from app.catalog.deliveries import sql as deliveries
from app.catalog.drivers.placement import DriverLoad, ReadyDrivers, reason_for_waiting
from app.catalog.warned import Reason
from app.db.tables import driver, query, query_status

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


IS_UNPLACED: sa.ColumnElement[bool] = sa.and_(
    query.c.desired_state != "stopped",
    sa.or_(
        query_status.c.state != "failed",
        query_status.c.observed_generation != query.c.generation,
        query_status.c.observed_restart_nonce != query.c.restart_nonce,
    ),
    sa.func.coalesce(query_status.c.lease_expires_at < sa.func.now(), sa.true()),
)
"""Condition for a query and its status: it is to run now, and has no driver."""


async def find_drivers(connection: AsyncConnection, silent_ms: int, query_name: str | None = None) -> tuple[ReadyDrivers, int]:
    """Return the ready drivers with their loads, and the number of drivers that are not ready yet; silent ones are not counted.

    Args:
        connection: to the database.
        silent_ms: a driver without a heartbeat for this time does not count.
        query_name: an internal query has no limit per driver.
    """
    rows = await connection.execute(_drivers(silent_ms, is_internal=query_name is not None and is_internal(query_name)))
    return _ready_drivers(rows.all())


def warning_of_no_room(connection: sa.Connection, silent_ms: int, query_name: str) -> Reason | None:
    """Return the reason that no driver has room for a new query, when the waiting ones are counted; None: one has room.

    A missing or starting driver gives no warning: right after the start of a service this is normal, and the query's status shows it.
    """
    is_waiting = (
        sa.select(IS_UNPLACED).join_from(query, query_status).where(query.c.name == query_name, query.c.deleted_at.is_(None))
    )
    if not connection.execute(is_waiting).scalar_one_or_none():
        return None
    is_query_internal = is_internal(query_name)
    ready, starting = _ready_drivers(connection.execute(_drivers(silent_ms, is_internal=is_query_internal)).all())
    others = (
        sa.select(sa.func.count())
        .select_from(query.join(query_status))
        .where(IS_UNPLACED, query.c.deleted_at.is_(None), query.c.name != query_name)
        .where(sa.func.starts_with(query.c.name, PREFIX) == is_query_internal)
    )
    waiting = connection.execute(others).scalar_one()
    return (
        reason_for_waiting(ReadyDrivers(ready.drivers, waiting), starting, query_name, None, has_results=False)
        if ready.drivers
        else None
    )


def _drivers(silent_ms: int, *, is_internal: bool) -> sa.Select[Any]:
    leased_queries = sa.func.count(query.c.id).filter(sa.func.starts_with(query.c.name, PREFIX) == is_internal)
    cap = sa.literal(UNCAPPED) if is_internal else driver.c.detail["max_queries"].as_integer()
    leases = driver.outerjoin(query_status, query_status.c.lease_owner == driver.c.id).outerjoin(query)
    return (
        sa.select(driver.c.id, driver.c.phase, cap, leased_queries, driver.c.detail["state_root"].as_string())
        .select_from(leases)
        .where(driver.c.heartbeat_at > sa.func.now() - sa.func.make_interval(0, 0, 0, 0, 0, 0, silent_ms / 1000))
        .group_by(driver.c.id)
        .order_by(driver.c.id)
    )


def _ready_drivers(drivers: Any) -> tuple[ReadyDrivers, int]:
    ready = tuple(DriverLoad(id_, most, number, root) for id_, phase, most, number, root in drivers if phase == "ready")
    return ReadyDrivers(ready, unplaced=0), sum(phase == "starting_jvm" for _, phase, *_ in drivers)
