"""Evaluating expressions over a frame: those that only name a column are taken as they are.

A query plan costs a tenth of a millisecond, whatever is in it; for a few rows that is thirty times what is to be done.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

_ROWS = "_rows"
"""Which no column of a user is called. Stands for the frame's height among the columns that are computed: a literal alone would give one row."""


class Evaluation:
    """What some expressions give.

    Args:
        columns: name and expression of each; names are distinct.
    """

    def __init__(self, columns: Sequence[tuple[str, pl.Expr]]) -> None:
        self._names = [name for name, _ in columns]
        self._taken = {name: expression.meta.output_name() for name, expression in columns if expression.meta.is_column()}
        self._computed = [expression.alias(name) for name, expression in columns if name not in self._taken]

    def of(self, frame: pl.DataFrame) -> list[pl.Series]:
        """Return the columns, one value for each row of ``frame``, in the order of the expressions."""
        found = {name: frame.get_column(source).alias(name) for name, source in self._taken.items()}
        if self._computed:
            rows = pl.int_range(pl.len(), dtype=pl.UInt32).alias(_ROWS)
            found |= {column.name: column for column in frame.select(rows, *self._computed).get_columns()}
        return [found[name] for name in self._names]
