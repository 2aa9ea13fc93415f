"""From the operators of a stage, as the plan describes them, to those that run."""

from __future__ import annotations

from typing import Any

from engine.expressions.types.types import Schema
from engine.operators.operator_kinds import KINDS, TaskContext, input_schema
from engine.operators.operators import Operator
from engine.plan.model import Plan, Stage
from engine.state.segments.ports import SegmentStore


def running_schema(stage: Stage, plan: Plan) -> Schema:
    """Return the columns of the running relation as it enters a stage."""
    if stage.running is None:
        return plan.stages[stage.index - 1].emitted
    return input_schema(stage, next(item for item in plan.inputs if item.index == stage.running))


def build_chain(stage: Stage, plan: Plan, states: dict[str, Any], store: SegmentStore) -> list[Operator]:
    """Build a stage's operators in order, each with its state by name."""
    chain: list[Operator] = []
    running = running_schema(stage, plan)
    for spec in stage.operators:
        state = None if spec.name is None else states.get(spec.name)
        chain.append(KINDS[type(spec)].build(spec, TaskContext(running, stage, plan, state, store)))
        running = chain[-1].schema
    return chain
