"""Which aggregation may leave out changes that its sink would fold anyway (T3).

The sink of an unversioned table and its change feed may fold a batch to the last value per key. An aggregation right before that
sink need not make the others. What queries read of a table must not depend on how its producer's batches were cut (P4): a group that was
only passed through stays with count 0 (A2), and a stream record may stand between two changes of one batch. So an aggregation folds while
nothing reads its result on, but what grows with every record: that would be written once per record.
"""

from __future__ import annotations

from dataclasses import replace

from engine.plan.model import Plan


def folded(plan: Plan, *, is_read: bool = False) -> Plan:
    """Let the aggregation fold that nothing but the ``select`` stands between and the sink of an unversioned table.

    Args:
        plan: as it was built.
        is_read: whether queries read its result: then only an aggregation that grows folds.
    """
    output, last = plan.output, plan.stages[-1]
    if output.kind != "table" or output.history_retention_ms is not None or not output.key:
        return plan
    if len(last.operators) < 2 or last.operators[-1].name is not None:
        return plan
    *before, operator, select = last.operators
    operators = (*before, operator.folded(is_read=is_read), select)
    return replace(plan, stages=(*plan.stages[:-1], replace(last, operators=operators)))


def changes_with_readers(plan: Plan) -> bool:
    """Say whether the first reader of the result makes its producer fold less."""
    return folded(plan) != folded(plan, is_read=True)
