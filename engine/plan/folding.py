"""Which aggregation may leave out changes that its sink would fold anyway (T3).

The sink of an unversioned table and its change feed may fold a batch to the last value per key. An aggregation right before that
sink need not make the others: a list that grows with every record would be written once per record.
"""

from __future__ import annotations

from dataclasses import replace

from engine.plan.model import Aggregation, Plan, Projection, Stage, WindowedAggregation


def folded(plan: Plan) -> Plan:
    """Let the aggregation fold that nothing but the ``select`` stands between and the sink of an unversioned table."""
    output, last = plan.output, plan.stages[-1]
    if output.kind != "table" or output.history_retention_ms is not None or not output.key:
        return plan
    aggregation = last.operators[-2] if len(last.operators) > 1 and isinstance(last.operators[-1], Projection) else None
    if not isinstance(aggregation, Aggregation):
        return plan
    if isinstance(aggregation, WindowedAggregation) and aggregation.emit != "changes":
        return plan
    operators = (*last.operators[:-2], replace(aggregation, is_folded=True), last.operators[-1])
    return replace(plan, stages=(*plan.stages[:-1], replace(last, operators=operators)))


def unfolded(plan: Plan) -> Plan:
    """Let every change be seen, also by those who read the plan's results instead of a sink."""
    return replace(plan, stages=tuple(map(_unfolded_stage, plan.stages)))


def _unfolded_stage(stage: Stage) -> Stage:
    operators = tuple(replace(each, is_folded=False) if isinstance(each, Aggregation) else each for each in stage.operators)
    return replace(stage, operators=operators)
