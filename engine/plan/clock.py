"""What in a plan waits on more than its records: on the wall clock, or on how far a feed was read."""

from __future__ import annotations

from engine.plan.model import Plan, StreamTableJoin, TimeLimitSuppression, WallClockSuppression


def needs_ticks(plan: Plan) -> bool:
    """Whether tasks have to be told the time also when no record comes (T10, J9, S2), or to go on after a full buffer (S4)."""
    operators = [operator for stage in plan.stages for operator in stage.operators]
    has_timer = any(
        (isinstance(operator, WallClockSuppression) and not operator.is_event_driven)
        or (isinstance(operator, TimeLimitSuppression | WallClockSuppression) and _stops_when_full(operator))
        for operator in operators
    )
    return plan.idle_after_ms is not None or has_timer or bool(held_feeds(plan))


def _stops_when_full(operator: TimeLimitSuppression | WallClockSuppression) -> bool:
    return operator.buffer is not None and operator.buffer.when_full == "stop"


def held_feeds(plan: Plan) -> frozenset[str]:
    """Return the feeds of the tables whose progress some join holds for (J9)."""
    held = {
        operator.table_index
        for stage in plan.stages
        for operator in stage.operators
        if isinstance(operator, StreamTableJoin) and operator.hold is not None
    }
    return frozenset(item.feed.name for item in plan.inputs if item.index in held)
