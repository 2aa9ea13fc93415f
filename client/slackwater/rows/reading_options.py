"""The common keywords of reads of rows, with their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from slackwater.parameters import Duration, Instant, Where


class ReadOptions(TypedDict, total=False):
    """See ``slackwater.rows.rows.Reading``."""

    as_of: Instant | None
    where: Where | None
    state: Literal["final", "open", "any"] | None
    window_from: Instant | None
    window_to: Instant | None
    order: Literal["asc", "desc"] | None
    min_position: Mapping[str, Mapping[str, int]] | None
    timeout: float | None
    max_staleness: Duration | None
    bigints: Literal["number", "string"] | None
