"""The latest row that counted of each key, as segments: what new rows of the key are judged by as they come in.

What makes a row later than another is not known here: who judges says which rows count, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from engine.frames.frames import KEY_HASH
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.hash_segments import HashSegments
from engine.state.sorted.running import Groups, grouped
from engine.state.sorted.sorted_search import distinct

ROW: Final = "_row"
"""Number of a new row, which the caller gives it; of one that was kept ``KEPT``."""

KEPT: Final = -1


class LatestByKey:
    """Rows of one table in one task.

    Args:
        columns: of what is kept: ``_key_hash``, the key's and others.
        key: names of the key's columns.
        further: columns that keep rows of one key apart.
        state: what ``snapshot`` returned, or None.
    """

    def __init__(
        self,
        columns: Sequence[str],
        key: Sequence[str],
        further: Sequence[str],
        state: dict[str, Any] | None,
        store: SegmentStore,
    ) -> None:
        self._columns, self._key, self._apart = list(columns), tuple(key), (*key, *further)
        self._hashing = store.hashing
        self._segments = HashSegments(store, (state or {}).get("keys"), KEY_HASH)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"keys": self._segments.snapshot()}

    def beside(self, rows: pl.DataFrame, *unkept: pl.Expr) -> tuple[pl.DataFrame, Groups]:
        """Return new rows beside those that are kept of their keys, brought together: the kept ones first, then the new ones in their order.

        Args:
            rows: the new ones, with ``_row``; those without a value in their key are left out.
            unkept: what kept rows have in columns that are not kept.
        """
        keyed = rows.with_columns(self._hashing.of(rows, self._key)).drop_nulls(KEY_HASH)
        kept = self._segments.matching(distinct(keyed.get_column(KEY_HASH).to_numpy()))
        known = [part.with_columns(pl.lit(KEPT, pl.Int64).alias(ROW), *unkept)[keyed.columns] for part in kept]
        return grouped(pl.concat([*known, keyed]), KEY_HASH, self._apart)

    def keep(self, counting: pl.DataFrame) -> None:
        """Keep the last row of each key if it is new.

        Args:
            counting: of what ``beside`` returned the rows that count, in that order.
        """
        new = self._last(counting).filter(pl.col(ROW) != KEPT)[self._columns]
        if new.height:
            self._segments.append(new, lambda slices, _: self._last(pl.concat(slices)))

    def _last(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Keep the last row of each key: older slices come first."""
        found, groups = grouped(frame, KEY_HASH, self._apart)
        return found[np.flatnonzero(groups.is_last)]
