"""Following columns through a plan: what a key given from outside is called at each operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from app.domain.explaining.facts import Values
from engine.core.hashing import key_hash
from engine.definition.types import Schema
from engine.plan.model import (
    Input,
    Operator,
    Plan,
    Projection,
    RunningAggregation,
    Stage,
    StreamStreamJoin,
    StreamTableJoin,
    TableAggregation,
    TableTableJoin,
    WindowedAggregation,
)
from engine.plan.scope import reference

_GROUPING = (*WindowedAggregation.__args__, RunningAggregation, TableAggregation)


def after(operator: Operator, values: Mapping[str, object]) -> dict[str, object]:
    """Return the known values behind an operator, under the names they have there."""
    if isinstance(operator, _GROUPING):
        return {name: values[source] for name, source in operator.group if source in values}
    if isinstance(operator, Projection):
        known = {reference(name): value for name, value in values.items()}
        return {name: known[text] for name, text in operator.columns if text in known}
    return dict(values) | equal_values(operator, values)


def equal_values(operator: Operator, values: Mapping[str, object]) -> dict[str, object]:
    """Return what a join's equalities say of the other side's columns."""
    pairs: Sequence[tuple[str, str]] = ()
    if isinstance(operator, StreamTableJoin):
        pairs = list(zip(operator.stream_key, operator.table_key, strict=True))
    elif isinstance(operator, TableTableJoin | StreamStreamJoin):
        pairs = list(zip(operator.left_key, operator.right_key, strict=True))
    found = {right: values[left] for left, right in pairs if left in values}
    return found | {left: values[right] for left, right in pairs if right in values}


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
        if isinstance(operator, _GROUPING):
            names = {name: names[source] for name, source in operator.group if source in names}
        elif isinstance(operator, Projection):
            known = {reference(name): source for name, source in names.items()}
            names = {name: known[text] for name, text in operator.columns if text in known}
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
