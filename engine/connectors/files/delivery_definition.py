"""What a definition says of results in a directory of files. Pure: definitions are made of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from engine.definition.delivery import DeliveryModel
from engine.errors import Problem


class FilesDelivery(DeliveryModel):
    """A directory in which files appear whole, each result in one of them. A table's changes have `_op`: `upsert` or `delete`."""

    type: Literal["files"] = Field(description="A directory of files.")
    path: str = Field(
        min_length=1, max_length=1_000, description="The directory, below SLACKWATER_DELIVERY_ROOT.", examples=["/lake/orders"]
    )
    format: Literal["ndjson", "parquet"] = Field(default="parquet", description="How the files are written.")
    partition_by: Literal["date"] | None = Field(
        default=None, description="`date`: a directory `_date=2013-01-01` for each day (UTC) of event time; null: none."
    )

    def faults(self, columns: tuple[str, ...], key: tuple[str, ...], *, is_table: bool) -> Iterator[Problem]:
        """See ``DeliveryModel``."""
        yield from super().faults(columns, key, is_table=is_table)
        if "\0" in self.path:
            yield Problem("/into/connector/path", "invalid_value", "a path cannot contain the character U+0000; leave it out")
