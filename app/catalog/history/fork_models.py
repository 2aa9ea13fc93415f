"""Bodies of requests and answers about forks of queries."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from app.catalog.queries.models import EditChange
from app.http.schemas import DesiredState, StoredQueryAnswer, refers_to
from engine.expressions.limits import FewFields
from engine.expressions.names import Name


class ForkBody(FewFields):
    """The fork that is wanted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = Field(description="Name of the new query.", examples=["delays_wider"])
    into: Name | None = Field(
        default=None,
        description="Name of the relation that it writes; absent: what `definition` says, if that is not the original's, else the query's name.",
    )
    definition: dict[str, Any] | None = Field(
        default=None,
        description="The edited definition, as a PUT of the original takes it; its names may be left out. Absent: the original's.",
        json_schema_extra=refers_to("QueryDefinition"),
    )
    desired_state: DesiredState | None = Field(
        default=None, description="Its desired state; absent: what `definition` says, else `running`."
    )


class ForkAnswer(StoredQueryAnswer):
    """A fork as it was stored."""

    changes: list[EditChange] = Field(
        description="What it does otherwise than the original, beside the names; empty where it does the same."
    )
