"""The mark of results from replayed late records, added when a log is read."""

from __future__ import annotations

import numpy as np
import polars as pl

from engine.commit.sink import REPLAYED
from engine.frames.frames import with_series


def with_marks(records: pl.DataFrame, raw: pl.DataFrame) -> pl.DataFrame:
    """Add the column ``$replayed`` to records of the log.

    Args:
        records: with ``_offset``.
        raw: the batch of these records, with ``_offset``; without replayed results it lacks the column.
    """
    if REPLAYED not in raw.columns:
        return with_series(records, pl.Series(REPLAYED, np.zeros(records.height, np.bool_)))
    offsets = raw.filter(pl.col(REPLAYED))["_offset"]
    return records.with_columns(pl.col("_offset").is_in(offsets.implode()).alias(REPLAYED))
