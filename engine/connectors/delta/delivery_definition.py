"""What a definition says of results in a Delta table. Pure: definitions are made of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from engine.definition.delivery import DeliveryModel
from engine.errors import Problem


class DeltaDelivery(DeliveryModel):
    """A Delta table to which results are appended. A table's changes have `_op`: `upsert` or `delete`."""

    type: Literal["delta"] = Field(description="A Delta table.")
    path: str = Field(
        min_length=1, max_length=1_000, description="Its directory, below SLACKWATER_DELIVERY_ROOT.", examples=["/lake/orders"]
    )
    partition_by: Literal["date"] | None = Field(
        default=None, description="`date`: partitioned by `_date`, the day (UTC) of event time; null: not partitioned."
    )

    def faults(self, columns: tuple[str, ...], key: tuple[str, ...], *, is_table: bool) -> Iterator[Problem]:
        """See ``DeliveryModel``."""
        yield from super().faults(columns, key, is_table=is_table)
        if "\0" in self.path:
            yield Problem("/into/connector/path", "invalid_value", "a path cannot contain the character U+0000; leave it out")
