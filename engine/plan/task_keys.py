"""Which columns choose the task of a stage's records."""

from __future__ import annotations

from engine.plan.model import Plan, Stage
from engine.plan.operators.operator import Operator


def task_key(stage: Stage, plan: Plan) -> tuple[str, ...]:
    """Return the qualified columns of the running relation whose hash chooses the task, as they are called when they enter the stage."""
    if stage.running is None:
        return plan.stages[stage.index - 1].exchange_key
    source = next(item for item in plan.inputs if item.index == stage.running)
    return tuple(f"{source.alias}.{name}" for name in source.hash_key)


def input_key(index: int, plan: Plan) -> tuple[str, ...]:
    """Return the qualified columns of an input whose hash chooses the task."""
    source = next(item for item in plan.inputs if item.index == index)
    return tuple(f"{source.alias}.{name}" for name in source.hash_key)


def followed_keys(stage: Stage, plan: Plan) -> list[tuple[str, ...]]:
    """Return for each operator of a stage what the columns of ``task_key`` are called in the rows that it keeps of the running relation.

    Joins and aggregations give them other names. Where an aggregation groups by a column that always equals one of them, it is that.
    """
    key = task_key(stage, plan)
    equal: dict[str, set[str]] = {}
    for before in plan.stages[: stage.index]:
        for operator in before.operators:
            _behind(operator, (), equal)
    found = []
    for operator in stage.operators:
        sources = operator.stored_by
        key = tuple(next((source for source in sources if source == name or source in equal.get(name, ())), name) for name in key)
        found.append(key)
        key = _behind(operator, key, equal)
    return found


def _behind(operator: Operator, key: tuple[str, ...], equal: dict[str, set[str]]) -> tuple[str, ...]:
    """Return the names behind an operator; notes in ``equal`` which columns equal others there."""
    for left, right in operator.always_equal:
        united = {left, right} | equal.get(left, set()) | equal.get(right, set())
        equal.update(dict.fromkeys(united, united))
    names = operator.renamed
    return tuple(names.get(name, name) for name in key)
