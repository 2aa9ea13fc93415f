"""Explains filters: whether values fulfil a condition, as far as they are known."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from app.catalog.queries import columns
from app.explain.rules.facts import Step
from app.explain.rules.subject import Desk, Subject
from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema
from engine.expressions.values.operands import ExpressionInvalid
from engine.plan.operators.row_operators import Filter
from engine.plan.operators.table_filter import TableFilter


def explain_filter(desk: Desk, spec: Filter | TableFilter, subject: Subject) -> Step:
    """Explain whether a record passes a filter."""
    is_fulfilled = holds(spec.condition, columns.typed(subject.plan), subject.values)
    if is_fulfilled is False:
        return desk.step("filtered", f"It does not fulfil `where`: {spec.condition}", is_blocking=True)
    known = "fulfils" if is_fulfilled else "may or may not fulfil"
    return desk.step("passed", f"It {known} `where`: {spec.condition}")


def holds(condition: str, schema: Schema, values: Mapping[str, object]) -> bool | None:
    """Evaluate a condition; None if a column that it reads is unknown. Null is not true."""
    known = Schema(tuple((name, kind) for name, kind in schema.items() if name in values))
    try:
        scalar = compile_scalar(condition, schema)
    except ExpressionInvalid:  # it reads columns that only operators make: $match, computed columns
        return None
    if not scalar.columns <= set(known.names):
        return None
    frame = pl.DataFrame({name: pl.Series([values[name]], dtype=kind.polars) for name, kind in known.items()})
    return bool(frame.select(scalar.expr.fill_null(value=False)).item()) if frame.width else None
