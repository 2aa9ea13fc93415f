"""Bodies of requests and answers about forks of queries."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from app.catalog.queries.models import EditChange
from app.http.schemas import DesiredState, StoredQueryAnswer, refers_to
from engine.expressions.limits import FewFields
from engine.expressions.model import Name


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
