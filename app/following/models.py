"""Answers of the pages of changes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.http.schemas import Answer


class Change(Answer):
    """One change, or one row of a snapshot. One that came of a replayed late record also has ``$replayed``: true."""

    kind: Literal["change", "snapshot"] = Field(
        description="`snapshot`: a row as it is; `change`: what happened to one, or a record."
    )
    op: Literal["upsert", "delete", "append"] = Field(description="`append` in a stream.")
    partition: int | None = Field(description="Where in the log; null for a row of a snapshot.")
    sequence: int | None = Field(
        default=None, description="Number of the change over all partitions of a derived relation; absent for those of a source."
    )
    part: str | None = Field(
        default=None,
        description="The part of the stream that has the record, where a query appends it; absent: the stream's own log.",
    )
    offset: int | None = Field(description="Its place in the partition; null for a row of a snapshot.")
    event_time_ms: int = Field(description="Result time. A versioned table's fold keeps the greatest of a key, deletes included.")
    key: dict[str, Any] = Field(description="The key, as columns by name; empty where a stream has none.")
    row: dict[str, Any] | None = Field(description="Null for a delete.")


class ChangesAnswer(Answer):
    """A page of what changed. There is always a next one."""

    name: str = Field(description="Name of the relation.")
    phase: Literal["snapshot", "changes"] = Field(description="`snapshot` until all rows of the snapshot were given.")
    changes: list[Change] = Field(description="Rows of the snapshot, or changes; empty where there is nothing new.")
    next: str = Field(description="Cursor to go on with, now or later; the same as an event's id.")
    caught_up: bool = Field(description="There was nothing behind this page when it was read.")
