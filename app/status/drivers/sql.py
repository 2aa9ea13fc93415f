"""Every driver with its queries, and the queries that wait for a driver. Read only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.catalog.drivers.ready_drivers import IS_UNPLACED
from app.db.log_tables import commit
from app.db.tables import driver, query, query_status
from app.status.sql import AGE_S


@dataclass(frozen=True, slots=True)
class DriverQuery:
    """A query whose lease a driver has.

    Attributes:
        commit_age_s: time since its last commit; None: there is no commit.
        execution: the execution that this commit recorded.
    """

    name: str
    state: str
    committed_at: datetime | None
    commit_age_s: float | None
    execution: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ListedDriver:
    """One driver process.

    Attributes:
        is_silent: its last heartbeat is older than a lease.
    """

    id: UUID
    host: str
    pid: int
    phase: str
    started_at: datetime
    heartbeat_at: datetime
    is_silent: bool
    max_queries: int
    queries: list[DriverQuery] = field(default_factory=list)


async def list_drivers(connection: AsyncConnection, silent_ms: int) -> list[ListedDriver]:
    """Return every driver, the longest running first. Silent drivers are included: they show what went wrong."""
    drivers: dict[UUID, ListedDriver] = {}
    for row in await connection.execute(_drivers(silent_ms)):
        known = drivers.setdefault(
            row.id,
            ListedDriver(row.id, row.host, row.pid, row.phase, row.started_at, row.heartbeat_at, row.is_silent, row.max_queries),
        )
        if row.name is not None:
            known.queries.append(DriverQuery(row.name, row.state, row.committed_at, row.commit_age_s, row.execution))
    return list(drivers.values())


async def list_unplaced(connection: AsyncConnection) -> list[str]:
    """Return the names of queries that need a driver and have none."""
    names = sa.select(query.c.name).join_from(query, query_status).where(query.c.deleted_at.is_(None), IS_UNPLACED)
    return list((await connection.execute(names.order_by(query.c.name))).scalars())


def _drivers(silent_ms: int) -> sa.Select[Any]:
    is_commit_of_query = sa.and_(commit.c.query_id == query.c.id, commit.c.checkpoint_id == query.c.checkpoint_id)
    leases = driver.outerjoin(query_status, query_status.c.lease_owner == driver.c.id)
    leases = leases.outerjoin(query, sa.and_(query.c.id == query_status.c.query_id, query.c.deleted_at.is_(None)))
    silence = sa.func.make_interval(0, 0, 0, 0, 0, 0, silent_ms / 1000)
    return (
        sa.select(
            driver.c.id, driver.c.host, driver.c.pid, driver.c.phase, driver.c.started_at, driver.c.heartbeat_at,
            (driver.c.heartbeat_at <= sa.func.now() - silence).label("is_silent"),
            driver.c.detail["max_queries"].as_integer().label("max_queries"),
            query.c.name, query_status.c.state, commit.c.committed_at, AGE_S.label("commit_age_s"),
            commit.c.detail["execution"].label("execution"),
        )
        .select_from(leases.outerjoin(commit, is_commit_of_query))
        .order_by(driver.c.started_at, driver.c.id, query.c.name)
    )  # fmt: skip
