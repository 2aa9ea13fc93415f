"""What the parts of the compiler that stand in files of their own see of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import polars as pl

from engine.expressions.types.types import ColumnType, Schema
from engine.expressions.values.evaluation_errors import Gap, Gaps
from engine.expressions.values.operands import Operand
from engine.sql.tree import Node


@dataclass(frozen=True)
class Scalar:
    """A compiled expression: one value per row.

    Attributes:
        expr: yields exactly as many rows as the frame has, also where it names no column.
        columns: the names of the schema that it reads.
        gaps: where it gives NULL because there is no value to give.
        is_strict: each gap makes the whole expression NULL.
        makes_lists: a call in it gives a nested value, whose size is not that of its arguments.
    """

    expr: pl.Expr
    type: ColumnType
    columns: frozenset[str]
    gaps: tuple[Gap, ...] = ()
    is_strict: bool = True
    makes_lists: bool = False


class Compiling(Protocol):
    """One walk over one tree.

    Attributes:
        schema: the columns that may be named.
        columns: those that were.
        gaps: where there is no value to give.
    """

    schema: Schema
    columns: set[str]
    gaps: Gaps

    def compile(self, node: Node) -> Operand:
        """Compile a part. Raises ExpressionInvalid."""

    def compile_inside(self, node: Node, schema: Schema) -> Scalar:
        """Compile the body of a lambda, over columns of its own. Raises ExpressionInvalid."""
