"""The columns that say where a change stands in its database's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

POSITION, COMMITTED, ORIGIN, IS_EXACT = "_position", "_committed_us", "_origin", "_is_exact"
"""Columns of records: where a change stands and when it was committed (microseconds), null where nobody says it; of which log; whether two
changes of one key at one position are the same one."""


POSITION_COLUMNS: Final[dict[str, pl.DataType]] = {
    POSITION: pl.String(), COMMITTED: pl.Int64(), ORIGIN: pl.String(), IS_EXACT: pl.Boolean(),
}  # fmt: skip


def position_columns(names: Sequence[str]) -> list[str]:
    """Return which of some columns say where changes stand."""
    return [name for name in POSITION_COLUMNS if name in names]
