"""Where a plan measures how late records come, and which setting each measure advises on.

A record would be late at a grace ``g`` where the gauge's clock has passed its event time by more than ``g`` and the gauge's own
allowance: the rest of its window, the gap of a session. So one number per record, its *lateness*, answers for every grace at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.plan.model import Input, Plan, Stage
from engine.plan.operators.answers import Gauge, LatenessClock, Setting
from engine.plan.operators.operator import Operator


def gauges_of(plan: Plan) -> Iterator[Gauge]:
    """Yield a plan's gauges: one for each input, and one before each operator that judges by a time of its own."""
    for stage in plan.stages:
        for item in plan.whole_inputs:
            if item.stage == stage.index:
                clock = _clock_of(item, stage)
                name, grace_ms = (None, item.relation.history_retention_ms) if clock is None else (clock.name, clock.setting_ms)
                is_table = item.relation.kind == "table"
                yield Gauge(item.alias, stage.index, item.index, None, name, grace_ms=grace_ms, counts_deletes=is_table)
        for place, operator in enumerate(stage.operators):
            gauge = _gauge_before(operator, stage, place)
            if gauge is not None:
                yield gauge


def settings_of(plan: Plan) -> Iterator[Setting]:
    """Yield the settings on which the gauges advise."""
    inputs = {item.index: item for item in plan.inputs}
    for stage in plan.stages:
        running = inputs[stage.running].alias if stage.running is not None else None
        for place, operator in enumerate(stage.operators):
            source = running if all(each.passes_records for each in stage.operators[:place]) else None
            gauge = _gauge_before(operator, stage, place)
            setting = operator.setting(source, str(running) if gauge is None else gauge.name)
            if setting is not None:
                yield setting
    for item in plan.whole_inputs:
        if item.relation.history_retention_ms is not None:
            yield Setting("history_retention", None, item.alias, item.alias, item.relation.history_retention_ms, "V1")


def _clock_of(item: Input, stage: Stage) -> LatenessClock | None:
    """Return the clock that may be ahead of an input's own records."""
    for operator in stage.operators:
        clock = operator.side_clock(item.index)
        if clock is not None:
            return clock
    return stage.operators[0].entry_clock if item.index == stage.running and stage.operators else None


def _gauge_before(operator: Operator, stage: Stage, place: int) -> Gauge | None:
    is_measured = place == 0 and stage.running is not None and operator.entry_clock is not None
    return None if is_measured else operator.gauge(stage.index)
