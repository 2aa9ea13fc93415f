"""GET /v1/drivers and /v1/settings: drivers and settings, for operators of the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import sqlalchemy as sa
from fastapi import APIRouter
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.scopes import is_internal
from app.catalog.drivers.sql import IS_UNPLACED
from app.db.tables import commit, driver, query, query_status
from app.http.answers.documented import answered, problems
from app.http.examples import EXECUTION
from app.http.parameters import OnlyKnownParameters, ServicesOf
from app.http.schemas import Answer, QueryState
from app.settings.effective_settings import in_force
from app.status.models import Execution
from app.status.routes import execution_of
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


class LeasedQueryItem(Answer):
    """A query that a driver runs."""

    name: str = Field(description="Name of the query.", examples=["delays_by_airport"])
    state: QueryState = Field(description="Current state.")
    internal: bool = Field(description="It materialises the rows of a source (`materialize`).")
    committed_at: datetime | None = Field(description="Time of its last commit; null before the first commit.")
    execution: Execution | None = Field(description="Kind of slot that ran its last batch, and why; null before the first batch.")


class DriverItem(Answer):
    """A process that runs queries."""

    id: str = Field(description="Id of the process, new after each start; launches of queries name it.")
    host: str = Field(description="The host that it runs on.")
    pid: int = Field(description="Process id on that host.")
    phase: Literal["starting_jvm", "ready", "draining"] = Field(
        description="`starting_jvm`: it starts its engine; `ready`: it takes queries; `draining`: it stops its queries and ends."
    )
    silent: bool = Field(
        description="Its last heartbeat is older than a lease (`SLACKWATER_DRIVER__LEASE_TTL_MS`): other drivers take its queries."
    )
    started_at: datetime = Field(description="Start of the process.")
    heartbeat_at: datetime = Field(description="Last heartbeat.")
    max_queries: int = Field(description="Limit of queries, internal ones not counted.")
    queries: list[LeasedQueryItem] = Field(description="The queries that it runs, by name.")


class DriversAnswer(Answer):
    """The drivers, and the queries that wait for one."""

    drivers: list[DriverItem] = Field(description="Every driver, the oldest first.")
    waiting: list[str] = Field(description="Queries that need a driver and have none; the status of each says why.")


class SettingItem(Answer):
    """A setting and its current value."""

    name: str = Field(description="Name, with dots between its parts.", examples=["driver.max_queries"])
    variable: str = Field(description="The environment variable that sets it.", examples=["SLACKWATER_DRIVER__MAX_QUERIES"])
    value: str = Field(description="Value; secrets are masked, and a setting without a value is empty.", examples=["100"])
    origin: Literal["environment", "default", "command line"] = Field(description="Where the value comes from.")


class SettingsAnswer(Answer):
    """Every setting of this service."""

    settings: list[SettingItem] = Field(description="All settings, in the order of `slackwater config show`.")


DRIVERS: Final[dict[str, Any]] = {
    "drivers": [
        {
            "id": "0193f1d2-7c1e-7000-8000-3f0c7c9d2b11",
            "host": "worker-1",
            "pid": 4711,
            "phase": "ready",
            "silent": False,
            "started_at": "2025-11-21T08:00:00Z",
            "heartbeat_at": "2025-11-21T08:30:00Z",
            "max_queries": 100,
            "queries": [
                {
                    "name": "delays_by_airport",
                    "state": "running",
                    "internal": False,
                    "committed_at": "2025-11-21T08:29:58Z",
                    "execution": EXECUTION,
                }
            ],
        }
    ],
    "waiting": [],
}
SETTINGS: Final[dict[str, Any]] = {
    "settings": [
        {"name": "driver.max_queries", "variable": "SLACKWATER_DRIVER__MAX_QUERIES", "value": "100", "origin": "default"}
    ]
}


router = APIRouter(prefix="/v1", tags=["service"], dependencies=[OnlyKnownParameters])


@router.get(
    "/drivers",
    summary="List drivers and their queries",
    response_model=DriversAnswer,
    responses={200: answered(DRIVERS, "The drivers, as of their last heartbeats."), **problems(400)},
)
async def get_drivers(services: ServicesOf) -> DriversAnswer:
    """Every process that runs queries, with its queries and their execution slots; and the queries without a driver.

    A `silent` driver did not end in order: its host hangs or is gone. Its row stays until a driver starts on that host.
    """
    async with services.database.paging() as connection:
        drivers = await list_drivers(connection, services.settings.driver.lease_ttl_ms)
        waiting = await list_unplaced(connection)
    return DriversAnswer(drivers=[_driver(each) for each in drivers], waiting=waiting)


@router.get(
    "/settings",
    summary="List the settings in force",
    response_model=SettingsAnswer,
    responses={200: answered(SETTINGS, "Every setting."), **problems(400)},
)
async def get_settings(services: ServicesOf) -> SettingsAnswer:
    """Every setting of the service that answers, with its value and the value's origin, as in `slackwater config show`.

    Secrets are masked. Drivers on other hosts have settings of their own.
    """
    return SettingsAnswer(
        settings=[
            SettingItem(name=each.name, variable=each.variable, value=each.value, origin=each.origin)
            for each in in_force(services.settings)
        ]
    )


def _driver(driver: ListedDriver) -> DriverItem:
    return DriverItem.model_validate(
        {
            "id": str(driver.id),
            "host": driver.host,
            "pid": driver.pid,
            "phase": driver.phase,
            "silent": driver.is_silent,
            "started_at": driver.started_at,
            "heartbeat_at": driver.heartbeat_at,
            "max_queries": driver.max_queries,
            "queries": [_leased(each) for each in driver.queries],
        }
    )


def _leased(query: DriverQuery) -> LeasedQueryItem:
    return LeasedQueryItem.model_validate(
        {
            "name": query.name,
            "state": query.state,
            "internal": is_internal(query.name),
            "committed_at": query.committed_at,
            "execution": execution_of(query.execution, query.commit_age_s),
        }
    )
