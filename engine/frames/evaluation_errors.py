"""Counting where expressions give NULL because there is no value to give (``engine.expressions.values.evaluation_errors``)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from engine.expressions.expressions import Scalar
from engine.frames.frames import OP, Counters, add_counter


class GapCounter:
    """The gaps of some expressions of one operator.

    Args:
        operator: under which they are counted, by reason.
        scalars: the expressions.
    """

    def __init__(self, operator: str, scalars: Sequence[Scalar]) -> None:
        self._operator = operator
        self._scalars = [(place, scalar) for place, scalar in enumerate(scalars) if scalar.gaps]

    def count(self, frame: pl.DataFrame, counters: Counters, results: Sequence[pl.Series] | None = None) -> None:
        """Add how many values of the frame's rows are missing; deletes have none.

        Args:
            frame: what the expressions are over; with ``_op``.
            counters: added to.
            results: what each expression gave, where that is known: rows that have a value need no second look.
        """
        for place, scalar in self._scalars:
            looked_at = frame.select(OP, *scalar.columns)
            if results is not None and scalar.is_strict:
                looked_at = looked_at.filter(results[place].is_null())
            if looked_at.is_empty():
                continue
            masks = [(pl.col(OP) == 0) & gap.is_met for gap in scalar.gaps]
            found = looked_at.select(mask.sum().alias(str(number)) for number, mask in enumerate(masks)).row(0)
            for gap, count in zip(scalar.gaps, found, strict=True):
                add_counter(counters, self._operator, gap.reason, count)
