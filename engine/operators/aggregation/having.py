"""What ``having`` makes of a group's states: which are shown, which become deletes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema
from engine.frames.clocks import Bools
from engine.frames.frames import OP
from engine.state.sorted.running import Groups


class Having:
    """The condition over an aggregation's output columns.

    Args:
        condition: SQL.
        schema: the output columns.
        values: those of them that are aggregates.
    """

    def __init__(self, condition: str, schema: Schema, values: Sequence[str]) -> None:
        scalar = compile_scalar(condition, schema)
        self._matches = scalar.expr.fill_null(value=False).alias("matches")
        self._values = values
        self.reads = frozenset(scalar.columns)
        """The columns it looks at."""

    def matches(self, rows: pl.DataFrame) -> Bools:
        """Say which rows are shown; ``rows`` have at least the columns that are read."""
        return rows.select(self._matches)["matches"].to_numpy()

    def with_deletes(self, states: pl.DataFrame, groups: Groups) -> pl.DataFrame:
        """Add ``_op``: 1 for a row that no longer matches, null for one that did not match before either. A delete has no values.

        Args:
            states: the states of groups, one group after the other.
            groups: which ones.
        """
        matches = self.matches(states)
        op = pl.Series(OP, (~matches).astype(np.int8)).set(pl.Series(~matches & ~groups.previous(matches)), None)
        nulled = [pl.when(op == 0).then(pl.col(name)).alias(name) for name in self._values if name in states.columns]
        return states.with_columns(op, *nulled)
