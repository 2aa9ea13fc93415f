"""Following columns through a plan: what a key given from outside is called at each operator, and what expressions make of it."""

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
    """Return the known values behind an operator, under the names they have there; what it computes of them included."""
    known = {**values, **equal_values(operator, values)}
    computed = computed_values(plan, dict(operator.selected), known)
    found = {**computed, **operator.values_behind(known)}
    if not operator.keeps_offset:  # rows of several records have a time of their own
        found.pop(EVENT_TIME, None)
    return found


def computed_values(plan: Plan, texts: Mapping[str, str], values: Mapping[str, object]) -> dict[str, object]:
    """Evaluate expressions over the inputs' columns.

    Returns:
        The values by the names of their texts. Those are left out that read what is not known, or call functions in Python, which run in
        the query's workers alone.
    """
    schema = typed(plan)
    known = Schema(tuple((name, kind) for name, kind in schema.items() if name in values))
    row = {name: pl.Series([values[name]], dtype=kind.polars) for name, kind in known.items()}
    frame = pl.DataFrame({"": [None], **row})  # a row even where nothing is known
    found: dict[str, object] = {}
    for name, text in texts.items():
        if python_functions.CALL in text:
            continue
        try:
            scalar = compile_scalar(text, schema)
        except ExpressionInvalid:  # it reads what only operators make: $match, aggregates
            continue
        if scalar.columns <= set(known.names):
            found[name] = frame.select(scalar.expr).item()
    return found


def text_of(plan: Plan, name: str) -> str:
    """Return what a column is called for people: a made-up one by the expression that it is made of."""
    made = {name: text for operator in _operators(plan) for name, text in operator.selected}
    made |= {
        f"{item.alias}.{each.name}": f"{each.text} of {item.relation.name}" for item in plan.inputs for each in item.computed
    }
    return made.get(name, name)


def with_time(source: Input, values: Values, at_ms: int) -> dict[str, object]:
    """Return values with the event time, under the names by which expressions read it."""
    return {**values, f"{source.alias}.{EVENT_TIME}": at_ms, EVENT_TIME: at_ms}


def equal_values(operator: Operator, values: Mapping[str, object]) -> dict[str, object]:
    """Return what a join's equalities say of the other side's columns."""
    found = {right: values[left] for left, right in operator.equalities if left in values}
    return found | {left: values[right] for left, right in operator.equalities if right in values}


def entering(plan: Plan, values: Values) -> dict[str, object]:
    """Return the values with all that the plan's joins make equal to them, before anything is renamed."""
    known = dict(values)
    for _ in range(2):  # once forward, once back: a table's key may name the stream's
        for operator in _operators(plan):
            known |= equal_values(operator, known)
    return known


def result_columns(plan: Plan) -> dict[str, str]:
    """Return for each column of the result that is just a column of an input that column's qualified name."""
    names = {f"{item.alias}.{name}": f"{item.alias}.{name}" for item in plan.inputs for name in item.relation.columns.names}
    for operator in _operators(plan):
        names = operator.values_behind(names)
    return {name: source for name, source in names.items() if name in plan.output.columns}


def result_values(plan: Plan, values: Values) -> dict[str, object]:
    """Return what is known of the result's columns: values of columns, and what expressions make of them."""
    known = dict(values)
    for operator in _operators(plan):
        known = after(plan, operator, known)
    return {name: value for name, value in known.items() if name in plan.output.columns}


def first_input(plan: Plan) -> Input:
    """Return the input that ``from`` names."""
    return next(item for item in plan.inputs if item.index == plan.stages[0].running)


def hashed_by(source: Input) -> list[str]:
    """Return the qualified columns of an input's relation that choose its records' task."""
    return [f"{source.alias}.{name}" for name in source.hash_key if name in source.relation.columns]


def typed(plan: Plan) -> Schema:
    """Return every qualified column of the inputs, their event times, and that of the row on its way."""
    known = ((f"{item.alias}.{name}", kind) for item in plan.whole_inputs for name, kind in item.relation.readable.items())
    return Schema((*known, (EVENT_TIME, BIGINT)))


def task_of(stage: Stage, plan: Plan, values: Values) -> int | None:
    """Return the ordinal of the task that the values' key belongs to in a stage; None where the key is not known."""
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
