"""Where the records behind rows stand: the columns that travel with rows (P1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64
from engine.frames.frames import HEAD

LANE, PLACE = "_lane", "_place"
"""With ``HEAD`` the columns that say where an emission stands: the lane of the record that caused it, and its number there."""


CAUSE_COLUMNS: Final = (HEAD, LANE, PLACE)


class Causes(NamedTuple):
    """Where rows stand: head, lane and place of the record behind each."""

    heads: I64
    lanes: I64
    places: I64

    @classmethod
    def joined(cls, parts: Sequence[Causes]) -> Causes:
        """Put parts one behind the other."""
        if not parts:
            nothing = np.empty(0, np.int64)
            return cls(nothing, nothing, nothing)
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    @classmethod
    def of_frame(cls, frame: pl.DataFrame) -> Causes:
        """Read what ``columns`` made."""
        return cls(*(frame.get_column(name).to_numpy() for name in CAUSE_COLUMNS))

    def columns(self) -> list[pl.Series]:
        """Return the columns of a frame of emissions."""
        return [pl.Series(name, values) for name, values in zip(CAUSE_COLUMNS, self, strict=True)]

    def order(self) -> I64:
        """Return the rows' indices in the total order; of equal causes the one that stands first here comes first."""
        is_first, is_last = self.heads == BEFORE_ALL_TIME, self.heads == AFTER_ALL_TIME
        is_caused = ~(is_first | is_last)
        if not is_caused.all():
            parts = [np.flatnonzero(is_first), np.flatnonzero(is_caused), np.flatnonzero(is_last)]
            return np.concatenate([part[self.taken(part)._order()] for part in parts])  # noqa: SLF001 - another value of this class
        return self._order()

    def taken(self, rows: I64) -> Causes:
        """Return those of some rows."""
        return Causes(self.heads[rows], self.lanes[rows], self.places[rows])

    def _order(self) -> I64:
        if len(self.lanes) == 0 or (self.lanes == self.lanes[0]).all():
            return np.argsort(self.places, kind="stable")
        packed = self._packed()
        return np.lexsort((self.places, self.lanes, self.heads)) if packed is None else np.argsort(packed, kind="stable")

    def _packed(self) -> I64 | None:
        """Return one number per row that sorts like the three; None where they do not fit. Sorted runs of it are merged quickly."""
        names, lanes = np.unique(self.lanes, return_inverse=True)
        least = self.places.min()
        place_bits = int(self.places.max() - least).bit_length()
        lane_bits = (len(names) - 1).bit_length()
        low = self.heads.min()
        if int(self.heads.max() - low).bit_length() + lane_bits + place_bits > 62:
            return None
        packed: I64 = ((self.heads - low) << (lane_bits + place_bits)) | (lanes << place_bits) | (self.places - least)
        return packed
