"""What in a plan waits on more than its records: on the wall clock, or on how far a feed was read."""

from __future__ import annotations

from engine.plan.model import Plan


def needs_ticks(plan: Plan) -> bool:
    """Whether tasks must learn the time also when no record comes (T10, J9, S2), or to go on after a full buffer (S4)."""
    has_timer = any(operator.needs_ticks for stage in plan.stages for operator in stage.operators)
    return plan.idle_after_ms is not None or has_timer or bool(feeds_held_for(plan))


def feeds_held_for(plan: Plan) -> frozenset[str]:
    """Return the feeds of the tables whose progress some join holds for (J9)."""
    held = {operator.awaited_table for stage in plan.stages for operator in stage.operators}
    return frozenset(item.feed.name for item in plan.inputs if item.index in held)
