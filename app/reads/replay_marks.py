"""The mark on results of replayed late records, as readers of a log carry it along."""

from __future__ import annotations

import numpy as np
import polars as pl

from engine.commit.sink import REPLAYED
from engine.frames.frames import with_series


def with_marks(judged: pl.DataFrame, raw: pl.DataFrame) -> pl.DataFrame:
    """Add the column ``$replayed`` to records of the log.

    Args:
        judged: with ``_offset``.
        raw: the batch that they are of, with ``_offset``; one without replayed results lacks the column.
    """
    if REPLAYED not in raw.columns:
        return with_series(judged, pl.Series(REPLAYED, np.zeros(judged.height, np.bool_)))
    offsets = raw.filter(pl.col(REPLAYED))["_offset"]
    return judged.with_columns(pl.col("_offset").is_in(offsets.implode()).alias(REPLAYED))
