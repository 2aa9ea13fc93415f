"""What a definition says of results in a directory of files. Pure: definitions are made of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.definition.deliveries.delivery import LakeDelivery


class FilesDelivery(LakeDelivery):
    """A directory in which files appear whole, each result in one of them. A table's changes have `_op`: `upsert` or `delete`."""

    type: Literal["files"] = Field(description="A directory of files.")
    format: Literal["ndjson", "parquet"] = Field(default="parquet", description="How the files are written.")
    partition_by: Literal["date"] | None = Field(
        default=None, description="`date`: a directory `_date=2013-01-01` for each day (UTC) of event time; null: none."
    )
