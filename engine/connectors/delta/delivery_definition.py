"""What a definition says of results in a Delta table. Pure: definitions are made of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.definition.delivery import LakeDelivery


class DeltaDelivery(LakeDelivery):
    """A Delta table to which results are appended. A table's changes have `_op`: `upsert` or `delete`."""

    type: Literal["delta"] = Field(description="A Delta table.")
    partition_by: Literal["date"] | None = Field(
        default=None, description="`date`: partitioned by `_date`, the day (UTC) of event time; null: not partitioned."
    )
