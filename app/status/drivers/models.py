"""Answers about drivers and settings."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field

from app.http.examples import EXECUTION
from app.http.schemas import Answer, QueryState
from app.status.models import Execution


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
