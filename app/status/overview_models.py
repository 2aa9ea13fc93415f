"""Answer of the overview of all queries."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from app.catalog.deliveries.rules import DeliveryState
from app.http.schemas import Answer, DesiredState, QueryState
from app.status.models import DeliveryTrouble, Reason


class OverviewRead(Answer):
    """A relation that a query reads, and its progress there."""

    relation: str = Field(description="The relation that is read.", examples=["departures"])
    lag: int | None = Field(
        description="Unread records of its feed; null before the query's first commit, and for feeds outside the built-in log."
    )
    read_rows: int | None = Field(
        description="Records of its feed read since the query began with this state; null as `lag`. Relations of one feed share it."
    )


class OverviewDelivery(Answer):
    """The delivery of a query's results (`into.connector`)."""

    state: DeliveryState = Field(description="As in the query's status.")
    reason: DeliveryTrouble | None = Field(description="Why it is not delivering; null: it is.")
    lag_rows: int = Field(description="Rows that are not delivered yet.", examples=[120])


class OverviewQuery(Answer):
    """A query in the overview."""

    name: str = Field(description="Name of the query.", examples=["delays_by_airport"])
    state: QueryState = Field(description="Current state.")
    phase: str | None = Field(description="Step inside its state, as in its status.")
    desired_state: DesiredState = Field(description="The desired state.")
    conditions: list[str] = Field(
        description="`unreachable`, `unplaced`, `stale`, as in its status. The conditions `waits_for_…` are in the status only: they need"
        " its inputs."
    )
    reason: Reason | None = Field(description="Its error, or why it has no driver; null: neither.")
    state_since: datetime = Field(description="Start of this state.")
    internal: bool = Field(
        description="It materialises the rows of a source (`materialize`) and follows that table's definition."
    )
    batch_id: int | None = Field(description="Number of the last committed batch; null before the first.")
    committed_at: datetime | None = Field(description="Time of its last commit; null before the first commit.")
    stream_time_ms: int | None = Field(
        description="Stream time as of the last commit: milliseconds since 1970; null before the first record."
    )
    batch_ms: int | None = Field(
        description="Milliseconds of its last batch: work of its tasks, and the commit; null before the first.", examples=[41]
    )
    read_rows: int = Field(description="Records read since the query began with this state.", examples=[27004])
    emitted_rows: int = Field(description="Records or changes of rows written since then.", examples=[1743])
    lag: int | None = Field(
        description="Unread records; null before its first commit, and if the ends of its feeds are unknown (files)."
    )
    waiting: int = Field(description="Records that wait in all operators and tasks.", examples=[118])
    late: int = Field(
        description="Records that came too late, whatever became of them, since it began with this state.", examples=[42]
    )
    reads: list[OverviewRead] = Field(description="The relations that it reads, by name.")
    writes: str | None = Field(description="The relation that it writes; null if it writes none of its own.")
    fork_of: str | None = Field(
        description="The query that it is a fork of, by its current name; null: it is not a fork, or the original is deleted."
    )
    delivery: OverviewDelivery | None = Field(description="Delivery of its results; null: they are not delivered.")


class OverviewRelation(Answer):
    """A stream or a table that one of the queries reads or writes."""

    name: str = Field(description="Name of the relation.", examples=["departures"])
    kind: Literal["stream", "table"] = Field(description="Whether it is a stream or a table.")
    origin: Literal["source", "derived"] = Field(description="Registered by a user, or produced by a query.")
    appended: int | None = Field(
        description="Records, or changes of rows, ever appended to its feed; null if unknown here (files, topics).",
        examples=[27004],
    )


class OverviewAnswer(Answer):
    """An overview of all queries. The difference between two answers, divided by the time between them, is a rate."""

    at: datetime = Field(description="Time of the answer.")
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
