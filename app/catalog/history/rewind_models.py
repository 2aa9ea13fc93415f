"""Bodies of requests and answers about going back to earlier commits of a query."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ConfigDict, Field

from app.catalog.queries.models import EditChange
from app.http.schemas import Answer, DesiredState, StoredQueryAnswer, refers_to
from engine.expressions.limits import FewFields


class RewindBody(FewFields):
    """The commit that is wanted back."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_id: int = Field(ge=0, le=2**63 - 1, description="Of a retained commit (`GET …/restore-points`).", examples=[41])
    definition: dict[str, Any] | None = Field(
        default=None,
        description="The edited definition, as a PUT takes it, under which the query goes on from there; absent: the one in force.",
        json_schema_extra=refers_to("QueryDefinition"),
    )
    desired_state: DesiredState | None = Field(
        default=None, description="Its desired state; absent: what `definition` says, else what it is now."
    )


class CommitPlace(Answer):
    """A commit of a query."""

    batch_id: int = Field(description="Its number.", examples=[41])
    committed_at: datetime = Field(description="When it was made.")
    position: dict[str, dict[str, int]] = Field(
        description="Feed to partition to the next offset: what its results include.", examples=[{"log:departures": {"0": 1200}}]
    )
    stream_time_ms: int | None = Field(description="Stream time: milliseconds since 1970; null before the first record.")


class RetainedCommitAnswer(CommitPlace):
    """A commit that is retained."""

    of_launch: bool = Field(description="A launch went on from it, as after each edit.")
    can_rewind: bool = Field(description="Whether nothing is known to be in the way of going back to this very commit.")
    obstacle: str | None = Field(description="What is in the way; null: nothing is known to be.")


class CommitsAnswer(Answer):
    """The retained commits of a query."""

    items: list[RetainedCommitAnswer] = Field(description="The newest first.")
    newest: CommitPlace | None = Field(description="What is committed now; null: nothing yet.")
    obstacle: str | None = Field(
        description="What is in the way of going back to any of them as things are now; null: nothing is."
    )


class RewindAnswer(StoredQueryAnswer):
    """A query that was put back, as it is stored now."""

    before: CommitPlace = Field(description="Its newest commit until now.")
    after: CommitPlace = Field(description="Its newest commit from now on.")
    removed_rows: int = Field(
        description="Records of the resulting stream, or changes of the resulting table, that are gone.", examples=[1743]
    )
    changes: list[EditChange] = Field(description="What the definition does otherwise from here on.")
    dry_run: bool = Field(description="Nothing was done: it would have been this.")
