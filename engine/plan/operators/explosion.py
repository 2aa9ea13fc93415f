"""Rows of arrays' elements."""

from __future__ import annotations

from dataclasses import dataclass

from engine.plan.operators.operator import Operator


@dataclass(frozen=True, slots=True)
class Explosion(Operator):
    """Make of a stream's record as many rows as the longest of some arrays has elements; none where all are empty or NULL.

    Attributes:
        carried: columns before it that each of the rows has; the others end here.
        arrays: (column that holds an element of each row, expression of the array over the columns before it) pairs.
    """

    keeps_offset = True
    keeps_hash = True

    carried: tuple[str, ...]
    arrays: tuple[tuple[str, str], ...]
