"""What is said of results beside their values: which sums do not fit, which collections are full. Counted as results are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from engine.frames.clocks import I64, Bools
from engine.frames.frames import Counters, add_counter

Reason = Literal["sum_overflow", "collection_full"]


@dataclass(frozen=True, slots=True)
class Marks:
    """Masks over the rows of results, by the reason under which they are counted.

    Attributes:
        masks: pairs of reason and mask; one aggregate has at most one of a reason.
    """

    masks: tuple[tuple[Reason, NDArray[np.bool_]], ...] = ()

    def among(self, rows: Bools | I64) -> Marks:
        """The marks of some of the rows, given as a mask or as indexes."""
        return Marks(tuple((reason, mask[rows]) for reason, mask in self.masks))

    def count(self, operator: str, counters: Counters) -> None:
        """Add how many results are marked, under the operator's name."""
        for reason, mask in self.masks:
            add_counter(counters, operator, reason, int(mask.sum()))
