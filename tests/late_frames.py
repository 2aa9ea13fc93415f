"""Late records as a task hands them to the sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from engine.frames.frames import LATE_SCHEMA, POS, RANK

DESCRIBED = [name for name in LATE_SCHEMA if name not in (POS, RANK)]
"""What is kept of a late record for reading."""


def late_frame(rows: Sequence[Sequence[Any]]) -> pl.DataFrame:
    """Return late records that stand at places of their own, one behind the other.

    Args:
        rows: input, reason, event time, stream time, offset and record of each.
    """
    return pl.DataFrame([(*row, place, None) for place, row in enumerate(rows)], schema=LATE_SCHEMA, orient="row")
