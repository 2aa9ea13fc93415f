"""Follows columns through a plan: the names of a given key's columns at each operator, and the values of expressions over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from engine.expressions import python_functions
from engine.expressions.expressions import compile_scalar
from engine.expressions.pseudo_columns import EVENT_TIME
from engine.expressions.types.types import BIGINT, Schema
from engine.expressions.values.operands import ExpressionInvalid
from engine.frames.hashing import key_hash
from engine.plan.model import Input, Plan, Stage
from engine.plan.operators.operator import Operator

Values = Mapping[str, object]
"""Column → value, as far as known."""


def after(plan: Plan, operator: Operator, values: Mapping[str, object]) -> dict[str, object]:
    """Return the known values after an operator, by their names there; computed values are included."""
    known = {**values, **equal_values(operator, values)}
    computed = computed_values(plan, dict(operator.selected), known)
    values_after = {**computed, **operator.values_behind(known)}
    if not operator.keeps_offset:  # a row of several records has another event time
        values_after.pop(EVENT_TIME, None)
    return values_after


def computed_values(plan: Plan, texts: Mapping[str, str], values: Mapping[str, object]) -> dict[str, object]:
    """Evaluate expressions over the inputs' columns.

    Returns:
        The values by the names of their texts. Left out are texts that read unknown columns, or call functions in Python, which run only in
        the query's workers.
    """
    schema = typed(plan)
    known = Schema(tuple((name, kind) for name, kind in schema.items() if name in values))
    row = {name: pl.Series([values[name]], dtype=kind.polars) for name, kind in known.items()}
    frame = pl.DataFrame({"": [None], **row})  # one row, even if nothing is known
    evaluated: dict[str, object] = {}
    for name, text in texts.items():
        if python_functions.CALL in text:
            continue
        try:
            scalar = compile_scalar(text, schema)
        except ExpressionInvalid:  # it reads columns that only operators make: $match, aggregates
            continue
        if scalar.columns <= set(known.names):
            evaluated[name] = frame.select(scalar.expr).item()
    return evaluated


def text_of(plan: Plan, name: str) -> str:
    """Return the name of a column for users: for a generated name its expression."""
    texts = {name: text for operator in _operators(plan) for name, text in operator.selected}
    texts |= {
        f"{item.alias}.{each.name}": f"{each.text} of {item.relation.name}" for item in plan.inputs for each in item.computed
    }
    return texts.get(name, name)


def with_time(source: Input, values: Values, at_ms: int) -> dict[str, object]:
    """Return values with the event time, by the names under which expressions read it."""
    return {**values, f"{source.alias}.{EVENT_TIME}": at_ms, EVENT_TIME: at_ms}


def equal_values(operator: Operator, values: Mapping[str, object]) -> dict[str, object]:
    """Return the values of columns that a join equates with known columns."""
    equal = {right: values[left] for left, right in operator.equalities if left in values}
    return equal | {left: values[right] for left, right in operator.equalities if right in values}


def entering(plan: Plan, values: Values) -> dict[str, object]:
    """Return the values with all that the plan's joins equate with them, before any column is renamed."""
    known = dict(values)
    for _ in range(2):  # once forward, once back: a table's key may equal the stream's
        for operator in _operators(plan):
            known |= equal_values(operator, known)
    return known


def result_columns(plan: Plan) -> dict[str, str]:
    """Return the qualified input column of each result column that is only a copy of it."""
    names = {f"{item.alias}.{name}": f"{item.alias}.{name}" for item in plan.inputs for name in item.relation.columns.names}
    for operator in _operators(plan):
        names = operator.values_behind(names)
    return {name: source for name, source in names.items() if name in plan.output.columns}


def result_values(plan: Plan, values: Values) -> dict[str, object]:
    """Return the known values of the result's columns: copied columns, and expressions over known columns."""
    known = dict(values)
    for operator in _operators(plan):
        known = after(plan, operator, known)
    return {name: value for name, value in known.items() if name in plan.output.columns}


def first_input(plan: Plan) -> Input:
    """Return the input of ``from``."""
    return next(item for item in plan.inputs if item.index == plan.stages[0].running)


def hashed_by(source: Input) -> list[str]:
    """Return the qualified columns of an input's relation by which its records are divided among tasks."""
    return [f"{source.alias}.{name}" for name in source.hash_key if name in source.relation.columns]


def typed(plan: Plan) -> Schema:
    """Return every qualified column of the inputs, their event times, and the event time of the present row."""
    known = ((f"{item.alias}.{name}", kind) for item in plan.whole_inputs for name, kind in item.relation.readable.items())
    return Schema((*known, (EVENT_TIME, BIGINT)))


def task_of(stage: Stage, plan: Plan, values: Values) -> int | None:
    """Return the ordinal of the task of the values' key in a stage; None if the key is unknown."""
    if stage.running is None:
        before = plan.stages[stage.index - 1]
        columns, schema = before.exchange_key, before.emitted
    else:
        item = next(each for each in plan.inputs if each.index == stage.running)
        columns, schema = tuple(f"{item.alias}.{name}" for name in item.hash_key), typed(plan)
    if plan.tasks == 1 or not columns:
        return 0
    if any(name not in values or name not in schema for name in columns):
        return None
    frame = pl.DataFrame({name: pl.Series([values[name]], dtype=schema[name].polars) for name in columns})
    hashed = key_hash(frame, columns)[0]
    return 0 if hashed is None else int(hashed) % plan.tasks


def _operators(plan: Plan) -> Sequence[Operator]:
    return [operator for stage in plan.stages for operator in stage.operators]
