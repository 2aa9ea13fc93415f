"""The drivers for the API: which accept queries, how many they have, and how many queries wait. Read only."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.scopes import PREFIX, is_internal
from app.catalog.drivers.placement import DriverLoad, ReadyDrivers, reason_for_waiting
from app.catalog.drivers.sql import UNCAPPED
from app.catalog.warned import Reason
from app.db.tables import driver, query, query_status

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
