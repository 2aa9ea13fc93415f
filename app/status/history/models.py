"""Answers about the past: events and launches of queries, rejected records."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from app.http.schemas import Answer, QueryError


class Event(Answer):
    """An event of a query."""

    id: int = Field(description="Rises with every event of the service.")
    at: datetime = Field(description="Time of the event.")
    kind: str = Field(description="Kind of event.", examples=["query_transitioned"])
    from_state: str | None = Field(description="State before; null if the state did not change.")
    to_state: str | None = Field(description="State after; null if the state did not change.")
    epoch: int | None = Field(description="Number of its launch; null: it belongs to none.")
    actor: str = Field(description="Who did it: `driver`, a key, `oidc:` and a name, or `api` if the service requires no key.")
    detail: dict[str, Any] | None = Field(description="More about it, by kind; null: nothing more.")


class EventPage(Answer):
    """Events, oldest first; ``next`` resumes behind the last one."""

    items: list[Event] = Field(description="Events, oldest first.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class Run(Answer):
    """One launch of a query."""

    epoch: int = Field(description="Number of the launch.")
    generation: int = Field(description="Generation of its definition.")
    driver_id: str | None = Field(description="The driver that launched it; null: unknown.")
    started_at: datetime = Field(description="Start of the launch.")
    running_at: datetime | None = Field(description="Time when it was running; null: not yet, or never.")
    ended_at: datetime | None = Field(description="End of the launch; null: it has not ended.")
    end_reason: str | None = Field(description="Why it ended, as a code; null: it has not ended.")
    error: QueryError | None = Field(description="The error that ended it.")


class RunPage(Answer):
    """Launches, newest first."""

    items: list[Run] = Field(description="Launches, newest first.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class Reject(Answer):
    """A record that could not be read."""

    id: int = Field(description="Rises with every reject of the service.")
    partition: int | None = Field(description="Its partition in the feed; null if it never entered the feed.")
    offset: int | None = Field(description="Its offset in the feed; null if it never entered the feed.")
    reason: str = Field(description="Why it was rejected, as a code; `GET /v1/errors/{code}` explains it.")
    detail: str = Field(description="What is wrong with it.")
    excerpt: str | None = Field(
        description="Its first characters; null if it is from a file and the key is not an admin's, or from a feed that also has relations "
        "outside of the key's scope."
    )
    at: datetime = Field(description="Time of the rejection.")


class RejectPage(Answer):
    """Rejects, newest first."""

    items: list[Reject] = Field(description="Rejects, newest first.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")
    kept: dict[str, int] = Field(description="Reason to number of stored rejects.", examples=[{"event_time_missing": 8255}])
