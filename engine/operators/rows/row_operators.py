"""Operators that look at one row at a time and remember nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from engine.expressions.expressions import Scalar, compile_scalar
from engine.expressions.pseudo_columns import EVENT_TIME, FORCED
from engine.expressions.syntax import reference
from engine.expressions.types.types import BIGINT, BOOLEAN, Schema
from engine.expressions.values.text_limits import holds_texts
from engine.frames.clocks import LAST_EVENT_TIME_MS
from engine.frames.evaluation import Evaluation
from engine.frames.evaluation_errors import GapCounter
from engine.frames.frames import OP, OPEN_ROW, TS, Counters, add_counter, empty_frame
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.operators.rows.computed_rows import RowMaker
from engine.plan.operators.row_operators import Filter, Projection, Retiming

_ROW: Final = 0
"""``_op`` of what is no delete."""


class RowFilter(Operator):
    """Keeps a stream's rows for which the condition is true; of a record without a value none is.

    Counted, under ``where``, is what it could not compute (``gaps``).
    """

    def __init__(self, spec: Filter, schema: Schema) -> None:
        self.schema = schema
        scalar = compile_scalar(spec.condition, schema)
        self._condition = ((pl.col(OP) == 0) & scalar.expr).alias("passes")
        self._gaps = GapCounter("where", [scalar])

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:  # noqa: ARG002
        if frame.is_empty():
            return OperatorOutput(frame)
        counters: Counters = {}
        passes = frame.select(self._condition).to_series()
        self._gaps.count(frame, counters, [passes])
        return OperatorOutput(frame.filter(passes), counters=counters)


class RowProjection(Operator):
    """The ``select``. Rows may be deletes: whatever their columns give is kept, and what matters of it is the key.

    Counted, under the step's name, is what it could not compute (``engine.expressions.values.evaluation_errors``). ``$event_time_ms`` alone is
    the event time that the row has here.

    Args:
        is_forced_known: the query has ``idle``: the expressions may read ``$forced``.
    """

    def __init__(self, spec: Projection, schema: Schema, *, is_forced_known: bool) -> None:
        known = Schema((*schema.items(), (FORCED, BOOLEAN))) if is_forced_known and FORCED not in schema else schema
        self._adds_forced = known is not schema
        known = known if EVENT_TIME in known else Schema((*known.items(), (EVENT_TIME, BIGINT)))
        compiled = [(name, compile_scalar(text, known)) for name, text in spec.columns]
        self.schema = Schema(tuple((name, item.type) for name, item in compiled))
        self._reads_time = any(EVENT_TIME in item.columns for _, item in compiled)
        self._nothing = empty_frame(self.schema)
        values = Evaluation([(name, _as_declared(item, known)) for name, item in compiled])
        given = {reference(name) for name in known.names}
        texts = dict(spec.columns)
        made = [name for name, item in compiled if holds_texts(item.type) and texts[name] not in given]
        gaps = GapCounter(spec.step, [item for _, item in compiled])
        self._rows = RowMaker(values, made, gaps, spec.step)

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:  # noqa: ARG002
        if frame.is_empty():
            return OperatorOutput(self._nothing)
        if self._adds_forced:
            frame = frame.with_columns(pl.Series(FORCED, moment.are_forced(frame)))
        if self._reads_time:
            frame = frame.with_columns(pl.col(TS).alias(EVENT_TIME))
        counters: Counters = {}
        return OperatorOutput(self._rows.of(frame, counters), counters=counters)


def _as_declared(scalar: Scalar, schema: Schema) -> pl.Expr:
    """Return what an expression gives in the type that the plan gives it."""
    is_taken = scalar.expr.meta.is_column() and schema[scalar.expr.meta.output_name()].polars == scalar.type.polars
    return scalar.expr if is_taken else scalar.expr.cast(scalar.type.polars)


class RowRetiming(Operator):
    """Gives rows the event time that a column of them holds; deletes keep theirs. Rows without one are left out and counted."""

    def __init__(self, spec: Retiming, schema: Schema) -> None:
        self.schema = schema
        column = pl.col(spec.column)
        match schema[spec.column].kind:
            case "bigint":
                own = column
            case "string" if spec.form is not None:
                own = column.str.to_datetime(
                    spec.form, time_unit="us", time_zone="UTC", strict=False, ambiguous="earliest"
                ).dt.epoch("ms")
            case "string":
                own = compile_scalar(f"epoch_ms(CAST({reference(spec.column)} AS timestamp))", schema).expr
            case _:
                own = column.dt.epoch("ms")
        is_row = pl.col(OP).is_in([_ROW, OPEN_ROW])
        self._ts = pl.when(is_row).then(own).otherwise(pl.col(TS)).alias(TS)

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:  # noqa: ARG002
        timed = frame.with_columns(self._ts)
        kept = timed.filter(pl.col(TS).is_between(0, LAST_EVENT_TIME_MS))
        counters: Counters = {}
        add_counter(counters, "into", "result_time_missing", timed.height - kept.height)
        return OperatorOutput(kept, counters=counters)
