"""The answer about all queries at a glance."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from app.catalog.deliveries.rules import DeliveryState
from app.http.schemas import Answer, DesiredState, QueryState
from app.status.models import DeliveryTrouble, Reason


class OverviewRead(Answer):
    """A relation that a query reads, and how far."""

    relation: str = Field(description="The relation that is read.", examples=["departures"])
    lag: int | None = Field(
        description="Records of its feed that are not read yet; null before the query's first commit, and of what is not in the built-in log."
    )
    read_rows: int | None = Field(
        description="Records of its feed that were read since the query began with this state; null as `lag`. Relations of one feed share it."
    )


class OverviewDelivery(Answer):
    """How the delivery of a query's results is (`into.connector`)."""

    state: DeliveryState = Field(description="As in the query's status.")
    reason: DeliveryTrouble | None = Field(description="Why it is not delivering; null: it is.")
    lag_rows: int = Field(description="Rows that are not delivered yet.", examples=[120])


class OverviewQuery(Answer):
    """A query at a glance."""

    name: str = Field(description="Name of the query.", examples=["delays_by_airport"])
    state: QueryState = Field(description="What it is doing now.")
    phase: str | None = Field(description="What it does inside its state, as in its status.")
    desired_state: DesiredState = Field(description="The desired state.")
    conditions: list[str] = Field(
        description="`unreachable`, `unplaced`, `stale`, as in its status. Those that begin with `waits_for_` stand there alone: they take a"
        " look at what it reads."
    )
    reason: Reason | None = Field(description="Its error, or why no driver has it; null: neither.")
    state_since: datetime = Field(description="When it came into this state.")
    internal: bool = Field(description="It keeps the rows of a source with `materialize` and follows that table's definition.")
    batch_id: int | None = Field(description="Number of the last committed batch; null before the first.")
    committed_at: datetime | None = Field(description="When it last committed; null before the first commit.")
    stream_time_ms: int | None = Field(
        description="Stream time as of the last commit: milliseconds since 1970; null before the first record."
    )
    batch_ms: int | None = Field(
        description="Milliseconds that its last batch took: its tasks' work and the commit; null before the first.", examples=[41]
    )
    read_rows: int = Field(description="Records read since the query began with this state.", examples=[27004])
    emitted_rows: int = Field(description="Records or changes of rows written since then.", examples=[1743])
    lag: int | None = Field(
        description="Records that it has not read yet; null before its first commit, and where the ends of its feeds are not known (files)."
    )
    waiting: int = Field(description="Records that wait inside, over all operators and tasks.", examples=[118])
    late: int = Field(
        description="Records that came too late, whatever became of them, since it began with this state.", examples=[42]
    )
    reads: list[OverviewRead] = Field(description="The relations that it reads, by name.")
    writes: str | None = Field(description="The relation that it writes; null for one that writes none of its own.")
    fork_of: str | None = Field(
        description="The query that it is a fork of, by its present name; null: it is none, or that is gone."
    )
    delivery: OverviewDelivery | None = Field(description="How its results are delivered elsewhere; null: they are not.")


class OverviewRelation(Answer):
    """A stream or a table that one of the queries reads or writes."""

    name: str = Field(description="Name of the relation.", examples=["departures"])
    kind: Literal["stream", "table"] = Field(description="Whether it is a stream or a table.")
    origin: Literal["source", "derived"] = Field(description="Registered by a user, or produced by a query.")
    appended: int | None = Field(
        description="Records, or changes of rows, that its feed was ever given; null where that is not known here (files, topics).",
        examples=[27004],
    )


class OverviewAnswer(Answer):
    """All queries at a glance. The differences of two answers over the time between them are rates."""

    at: datetime = Field(description="When the service looked.")
    queries: list[OverviewQuery] = Field(description="Queries, by name.")
    relations: list[OverviewRelation] = Field(description="What they read and write, by name.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


OVERVIEW: dict[str, Any] = {
    "at": "2025-11-21T08:00:01Z",
    "queries": [
        {
            "name": "delays_by_airport",
            "state": "running",
            "phase": None,
            "desired_state": "running",
            "conditions": [],
            "reason": None,
            "state_since": "2025-11-21T07:00:00Z",
            "internal": False,
            "batch_id": 412,
            "committed_at": "2025-11-21T08:00:00Z",
            "stream_time_ms": 1357041600000,
            "batch_ms": 41,
            "read_rows": 27004,
            "emitted_rows": 1743,
            "lag": 10,
            "waiting": 118,
            "late": 42,
            "reads": [{"relation": "departures", "lag": 10, "read_rows": 27004}],
            "writes": "delays_by_airport",
            "delivery": None,
            "fork_of": None,
        }
    ],
    "relations": [
        {"name": "delays_by_airport", "kind": "table", "origin": "derived", "appended": 1743},
        {"name": "departures", "kind": "stream", "origin": "source", "appended": 27014},
    ],
    "next": None,
}
