"""Answers about what happened: events and launches of queries, refused records."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from app.http.schemas import Answer, QueryError


class Event(Answer):
    """Something that happened to a query."""

    id: int = Field(description="Rises with every event of the service.")
    at: datetime = Field(description="When it happened.")
    kind: str = Field(description="What happened.", examples=["query_transitioned"])
    from_state: str | None = Field(description="State before; null where the state did not change.")
    to_state: str | None = Field(description="State after; null where the state did not change.")
    epoch: int | None = Field(description="Number of the launch that it belongs to; null: of none.")
    actor: str = Field(description="Who did it: `driver`, a key, `oidc:` and a name, or `api` where no key was asked for.")
    detail: dict[str, Any] | None = Field(description="More about it, by kind; null: nothing more.")


class EventPage(Answer):
    """Events, oldest first; ``next`` resumes behind the last one."""

    items: list[Event] = Field(description="Events, oldest first.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class Run(Answer):
    """One launch of a query."""

    epoch: int = Field(description="Number of the launch.")
    generation: int = Field(description="Generation of the definition that it ran.")
    driver_id: str | None = Field(description="The driver that launched it; null: not known.")
    started_at: datetime = Field(description="When it began.")
    running_at: datetime | None = Field(description="When it was up; null: not yet, or never.")
    ended_at: datetime | None = Field(description="When it ended; null: it goes on.")
    end_reason: str | None = Field(description="Why it ended, as a code; null: it goes on.")
    error: QueryError | None = Field(description="The error that ended it.")


class RunPage(Answer):
    """Launches, newest first."""

    items: list[Run] = Field(description="Launches, newest first.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class Reject(Answer):
    """A record that could not be read."""

    id: int = Field(description="Rises with every reject of the service.")
    partition: int | None = Field(description="Its partition in the feed; null where it never entered one.")
    offset: int | None = Field(description="Its place in the feed; null where it never entered one.")
    reason: str = Field(description="Why it was refused, as a code; `GET /v1/errors/{code}` explains it.")
    detail: str = Field(description="What is wrong with it.")
    excerpt: str | None = Field(
        description="How it begins; null where it is from a file and the key is not an admin's, or from a feed that has relations outside of "
        "the key's scope."
    )
    at: datetime = Field(description="When it was refused.")


class RejectPage(Answer):
    """Rejects, newest first."""

    items: list[Reject] = Field(description="Rejects, newest first.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")
    kept: dict[str, int] = Field(description="Reason to number of kept rejects.", examples=[{"event_time_missing": 8255}])
