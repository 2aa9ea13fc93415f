"""Answers of the pages of changes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.http.schemas import Answer


class Change(Answer):
    """One change, or one row of a snapshot. A change that comes from a replayed late record also has ``$replayed``: true."""

    kind: Literal["change", "snapshot"] = Field(
        description="`snapshot`: a row as of the snapshot; `change`: a change of a row, or a record."
    )
    op: Literal["upsert", "delete", "append"] = Field(description="`append` in a stream.")
    partition: int | None = Field(description="Partition of the log; null for a row of a snapshot.")
    sequence: int | None = Field(
        default=None, description="Number of the change over all partitions of a derived relation; absent for sources."
    )
    part: str | None = Field(
        default=None,
        description="The part of the stream that has the record, if a query appends it; absent: the stream's own log.",
    )
    offset: int | None = Field(description="Offset in the partition; null for a row of a snapshot.")
    event_time_ms: int = Field(description="Result time. For a versioned table, keep the greatest of a key, deletes included.")
    key: dict[str, Any] = Field(description="The key, as columns by name; empty if a stream has no key.")
    row: dict[str, Any] | None = Field(description="Null for a delete.")


class ChangesAnswer(Answer):
    """A page of changes. There is always a next page."""

    name: str = Field(description="Name of the relation.")
    phase: Literal["snapshot", "changes"] = Field(description="`snapshot` until all rows of the snapshot are sent.")
    changes: list[Change] = Field(description="Rows of the snapshot, or changes; empty if there is nothing new.")
    next: str = Field(description="Cursor to continue with, now or later; the same as an event's id.")
    caught_up: bool = Field(description="The page reached the end of the log when it was read.")
