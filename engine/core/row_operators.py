"""Operators that look at one row at a time and remember nothing."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from engine.core.frames import FORCED, SERVICE_COLUMNS, OperatorOutput, empty_frame
from engine.core.operators import Moment, Operator
from engine.definition.expressions import compile_scalar
from engine.definition.types import BOOLEAN, Schema
from engine.plan.model import Filter, Projection


class RowFilter(Operator):
    """Keeps a stream's rows for which the condition is true."""

    def __init__(self, spec: Filter, schema: Schema) -> None:
        self.schema = schema
        self._condition = compile_scalar(spec.condition, schema).expr

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: Moment) -> OperatorOutput:  # noqa: ARG002
        return OperatorOutput(frame.filter(self._condition) if frame.height else frame)


class RowProjection(Operator):
    """The ``select``. Rows may be deletes: whatever their columns give is kept, and what matters of it is the key.

    Args:
        is_forced_known: the query has ``idle``: the expressions may read ``$forced``.
    """

    def __init__(self, spec: Projection, schema: Schema, *, is_forced_known: bool) -> None:
        known = Schema((*schema.items(), (FORCED, BOOLEAN))) if is_forced_known and FORCED not in schema else schema
        self._adds_forced = known is not schema
        compiled = [(name, compile_scalar(text, known)) for name, text in spec.columns]
        self.schema = Schema(tuple((name, item.type) for name, item in compiled))
        self._nothing = empty_frame(self.schema)
        self._columns = [item.expr.cast(item.type.polars).alias(name) for name, item in compiled]

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: Moment) -> OperatorOutput:  # noqa: ARG002
        if frame.is_empty():
            return OperatorOutput(self._nothing)
        if self._adds_forced:
            frame = frame.with_columns(pl.Series(FORCED, moment.are_forced(frame)))
        return OperatorOutput(frame.select(*SERVICE_COLUMNS, *self._columns))
