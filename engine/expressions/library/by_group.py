"""Functions whose other arguments are the same for many records, as a regular expression is: each of them is looked at once for each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from engine.expressions.library.by_value import Unfit
from engine.expressions.types.types import ColumnType
from engine.expressions.values.operands import Operand

_TEXT, _VALUE, _FAILED, _ROW = "text", "value", "failed", "row"


@dataclass(frozen=True)
class ByGroup:
    """What is done with texts.

    Attributes:
        build: from the text and the other arguments' values to the result; raises Unfit for such that have none.
        result: the result's type.
        is_total: every text has a result, but one that would be too long.
    """

    build: Callable[..., pl.Expr]
    result: ColumnType
    is_total: bool = True

    def __call__(self, text: pl.Expr, parts: Sequence[pl.Expr]) -> Operand:
        """Compile it; ``parts`` are the other arguments."""
        names = [f"argument_{number}" for number in range(len(parts))]
        kind = pl.Struct({_VALUE: self.result.polars, _FAILED: pl.Boolean()})
        given = pl.struct([text.alias(_TEXT), *(part.alias(name) for name, part in zip(names, parts, strict=True))])
        passed = given.map_batches(lambda batch: self._over(batch.struct.unnest(), names), return_dtype=kind, is_elementwise=True)
        return Operand(passed.struct.field(_VALUE), self.result, failed=passed.struct.field(_FAILED))

    def _over(self, frame: pl.DataFrame, names: Sequence[str]) -> pl.Series:
        groups = frame.with_row_index(_ROW).partition_by(names, as_dict=True)
        found = [group.select(_ROW, *self._of_group(key)) for key, group in groups.items()]
        empty = pl.DataFrame(schema={_ROW: pl.UInt32, _VALUE: self.result.polars, _FAILED: pl.Boolean})
        return pl.concat([empty, *found]).sort(_ROW).select(_VALUE, _FAILED).to_struct()

    def _of_group(self, key: Sequence[Any]) -> tuple[pl.Expr, pl.Expr]:
        nothing = pl.lit(None, dtype=self.result.polars).alias(_VALUE)
        if None in key:
            return nothing, pl.lit(value=False).alias(_FAILED)
        try:
            found = self.build(pl.col(_TEXT), *key)
        except Unfit:
            return nothing, pl.col(_TEXT).is_not_null().alias(_FAILED)
        failed = pl.col(_TEXT).is_not_null() & found.is_null() if self.is_total else pl.lit(value=False)
        return found.alias(_VALUE), failed.alias(_FAILED)
