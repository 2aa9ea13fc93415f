"""Which columns choose the task of a stage's running relation."""

from __future__ import annotations

from engine.plan.model import Plan, Stage


def task_key(stage: Stage, plan: Plan) -> tuple[str, ...]:
    """Return the qualified columns of the running relation whose hash chooses the task, as they are called when they enter the stage."""
    if stage.running is None:
        return plan.stages[stage.index - 1].exchange_key
    source = next(item for item in plan.inputs if item.index == stage.running)
    return tuple(f"{source.alias}.{name}" for name in source.hash_key)
