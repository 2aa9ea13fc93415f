"""What a definition says of results in a Delta table. Pure: definitions are made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

from pydantic import Field

from engine.definition.deliveries.delivery import LakeDelivery
from engine.errors import Problem
from engine.expressions.model import NAME_PATTERN, is_absent

_IN_BUCKET: Final = re.compile(r"(?!.*(^|/)\.{1,2}(/|$))[A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*")


class DeltaDelivery(LakeDelivery):
    """A Delta table to which results are appended. A table's changes have `_op`: `upsert` or `delete`."""

    type: Literal["delta"] = Field(description="A Delta table.")
    connection: str | None = Field(
        default=None,
        pattern=NAME_PATTERN,
        exclude_if=is_absent,
        description="Name of a connection of type s3 (`PUT /v1/connections/{name}`): the table is at `path` in its bucket. null: `path` is a "
        "directory below SLACKWATER_DELIVERY_ROOT.",
    )
    partition_by: Literal["date"] | None = Field(
        default=None, description="`date`: partitioned by `_date`, the day (UTC) of event time; null: not partitioned."
    )

    def faults(self, columns: tuple[str, ...], key: tuple[str, ...], *, is_table: bool) -> Iterator[Problem]:
        yield from super().faults(columns, key, is_table=is_table)
        if self.connection is not None and not _IN_BUCKET.fullmatch(self.path):
            detail = "a path in a bucket has letters, digits, _, ., = and - between single slashes, and no '..'; write such as lake/orders"
            yield Problem("/into/connector/path", "invalid_value", detail)
