"""Following columns through a plan: what a key given from outside is called at each operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from app.domain.explaining.facts import Values
from engine.core.hashing import key_hash
from engine.definition.types import Schema
from engine.plan.model import Input, Plan, Stage
from engine.plan.operators.operator import Operator


def after(operator: Operator, values: Mapping[str, object]) -> dict[str, object]:
    """Return the known values behind an operator, under the names they have there."""
    return operator.values_behind({**values, **equal_values(operator, values)})


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


def first_input(plan: Plan) -> Input:
    """Return the input that ``from`` names."""
    return next(item for item in plan.inputs if item.index == plan.stages[0].running)


def typed(plan: Plan) -> Schema:
    """Return every qualified column of the inputs."""
    return Schema(tuple((f"{item.alias}.{name}", kind) for item in plan.inputs for name, kind in item.relation.columns.items()))


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
