"""Bodies of requests and answers about rewinds of a query to earlier commits."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ConfigDict, Field

from app.catalog.queries.answers import EditChange
from app.http.schemas import Answer, DesiredState, StoredQueryAnswer, refers_to
from engine.expressions.limits import FewFields
from engine.expressions.model import Name


class RewindBody(FewFields):
    """A commit to return to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_id: int = Field(ge=0, le=2**63 - 1, description="Of a retained commit (`GET …/restore-points`).", examples=[41])
    definition: dict[str, Any] | None = Field(
        default=None,
        description="The edited definition, as in a PUT, with which the query continues from there; absent: the stored one.",
        json_schema_extra=refers_to("QueryDefinition"),
    )
    desired_state: DesiredState | None = Field(
        default=None, description="Its desired state; absent: from `definition`, else the present one."
    )


class CommitPlace(Answer):
    """A commit of a query."""

    batch_id: int = Field(description="Number of its batch.", examples=[41])
    committed_at: datetime = Field(description="When it was committed.")
    position: dict[str, dict[str, int]] = Field(
        description="Feed to partition to the next offset: the input of its results.", examples=[{"log:departures": {"0": 1200}}]
    )
    stream_time_ms: int | None = Field(description="Stream time: milliseconds since 1970; null before the first record.")


class RetainedCommitAnswer(CommitPlace):
    """A retained commit."""

    of_launch: bool = Field(description="Whether a launch continued from it, as after each edit.")
    can_rewind: bool = Field(description="Whether no obstacle to a rewind to this commit is known.")
    obstacle: str | None = Field(description="The obstacle; null: none is known.")


class CommitsAnswer(Answer):
    """The retained commits of a query."""

    items: list[RetainedCommitAnswer] = Field(description="Newest first.")
    newest: CommitPlace | None = Field(description="The newest commit; null: there is none yet.")
    obstacle: str | None = Field(description="The present obstacle to any rewind; null: there is none.")


class RewindAnswer(StoredQueryAnswer):
    """A query after a rewind, as it is stored now."""

    before: CommitPlace = Field(description="Its newest commit before the rewind.")
    after: CommitPlace = Field(description="Its newest commit after the rewind.")
    removed_rows: int = Field(
        description="Number of removed records of the resulting stream, or changes of the resulting table.", examples=[1743]
    )
    changes: list[EditChange] = Field(description="The differences of the new definition.")
    dry_run: bool = Field(description="True: nothing was changed; the answer shows what would be.")


class ForkBody(FewFields):
    """A fork to create."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = Field(description="Name of the new query.", examples=["delays_wider"])
    into: Name | None = Field(
        default=None,
        description="Name of the relation that it writes; absent: from `definition`, if that is not the original's, else the query's name.",
    )
    definition: dict[str, Any] | None = Field(
        default=None,
        description="The edited definition, as in a PUT of the original; its names may be left out. Absent: the original's.",
        json_schema_extra=refers_to("QueryDefinition"),
    )
    desired_state: DesiredState | None = Field(
        default=None, description="Its desired state; absent: from `definition`, else `running`."
    )


class ForkAnswer(StoredQueryAnswer):
    """A fork as stored."""

    changes: list[EditChange] = Field(description="Its differences from the original, except for the names; may be empty.")
