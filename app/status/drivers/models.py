"""Answers about what the service runs with: drivers, settings."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field

from app.http.examples import EXECUTION
from app.http.schemas import Answer, QueryState
from app.status.models import Execution


class LeasedQueryItem(Answer):
    """A query that a driver has."""

    name: str = Field(description="Name of the query.", examples=["delays_by_airport"])
    state: QueryState = Field(description="What it is doing now.")
    internal: bool = Field(description="It keeps the rows of a source with `materialize`.")
    committed_at: datetime | None = Field(description="When it last committed; null before the first commit.")
    execution: Execution | None = Field(description="Which kind of slot ran its last batch, and why; null before the first.")


class DriverItem(Answer):
    """A process that runs queries."""

    id: str = Field(description="Id of the process: another one after each start; launches of queries name it.")
    host: str = Field(description="The host that it runs on.")
    pid: int = Field(description="Its number there.")
    phase: Literal["starting_jvm", "ready", "draining"] = Field(
        description="`starting_jvm`: it starts its engine; `ready`: it takes queries; `draining`: it stops them and ends."
    )
    silent: bool = Field(
        description="It has not been heard of for longer than a lease lasts (`SLACKWATER_DRIVER__LEASE_TTL_MS`): others take its queries."
    )
    started_at: datetime = Field(description="When it began.")
    heartbeat_at: datetime = Field(description="When it was last heard of.")
    max_queries: int = Field(description="How many queries it takes, internal ones not counted.")
    queries: list[LeasedQueryItem] = Field(description="The queries that it has, by name.")


class DriversAnswer(Answer):
    """The drivers, and what waits for one."""

    drivers: list[DriverItem] = Field(description="Every driver, the oldest first.")
    waiting: list[str] = Field(description="Queries that want a driver and have none; the status of each says why.")


class SettingItem(Answer):
    """A setting as it is in force."""

    name: str = Field(description="Its name, with dots between its parts.", examples=["driver.max_queries"])
    variable: str = Field(description="The environment variable that sets it.", examples=["SLACKWATER_DRIVER__MAX_QUERIES"])
    value: str = Field(description="Its value; secrets are masked, and what is not set is empty.", examples=["100"])
    origin: Literal["environment", "default", "command line"] = Field(description="Where the value comes from.")


class SettingsAnswer(Answer):
    """Every setting of this service."""

    settings: list[SettingItem] = Field(description="All of them, in the order of `slackwater config show`.")


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
