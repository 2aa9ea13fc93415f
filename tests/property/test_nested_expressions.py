"""Expressions over nested values are what a model in Python says row by row, however the rows are cut."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from app.testing.comparing.rows import plain_values
from engine.expressions.expressions import compile_scalar, qualify
from engine.expressions.types.types import Schema
from engine.expressions.values.operands import ExpressionInvalid
from tests.examples import examples
from tests.property import nested_model as model

ROWS = st.lists(st.fixed_dictionaries({name: model.values(kind) for name, kind in model.SCHEMA.items()}), min_size=1, max_size=5)
KINDS = st.sampled_from(model.SCHEMA.types)


def frame(rows: list[dict[str, Any]], prefix: str = "") -> pl.DataFrame:
    columns = {
        prefix + name: pl.Series([model.held(row[name], kind) for row in rows], dtype=kind.polars)
        for name, kind in model.SCHEMA.items()
    }
    return pl.DataFrame(columns)


def found(text: str, schema: Schema, given: pl.DataFrame) -> list[Any]:
    scalar = compile_scalar(text, schema)
    return plain_values(given.select(scalar.expr.alias("x")).to_series().to_list(), scalar.type)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(rows=ROWS, data=st.data())
def test_a_nested_expression_is_what_its_model_says_for_each_row_and_for_every_cut(rows: list[dict[str, Any]], data: Any) -> None:
    expression = data.draw(KINDS.flatmap(lambda kind: model.models(kind, dict(model.SCHEMA.items()))))
    try:
        scalar = compile_scalar(expression.text, model.SCHEMA)
    except ExpressionInvalid as refused:
        assume("nested" in refused.detail or "operators in a row" in refused.detail)
        raise
    assert scalar.type == expression.type
    wanted = [expression.value(row) for row in rows]
    assert found(expression.text, model.SCHEMA, frame(rows)) == wanted
    cut = data.draw(st.integers(0, len(rows)))
    assert (
        found(expression.text, model.SCHEMA, frame(rows[:cut])) + found(expression.text, model.SCHEMA, frame(rows[cut:]))
        == wanted
    )
    qualified = Schema(tuple((f"r.{name}", kind) for name, kind in model.SCHEMA.items()))
    assert found(qualify(expression.text, qualified), qualified, frame(rows, "r.")) == wanted
