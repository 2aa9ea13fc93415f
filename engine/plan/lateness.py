"""Where a plan measures how late records come, and which setting each measure advises on.

A record would be late at a grace ``g`` where the gauge's clock has passed its event time by more than ``g`` and the gauge's own
allowance: the rest of its window, the gap of a session. So one number per record, its *lateness*, answers for every grace at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from engine.plan.model import (
    Filter,
    Input,
    Operator,
    Plan,
    SessionAggregation,
    SlidingAggregation,
    Stage,
    StreamStreamJoin,
    StreamTableJoin,
    WindowAggregation,
    WindowedAggregation,
)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a record may be behind before a grace counts.

    Attributes:
        slack_ms: of every record; of a stream-stream join that of the left side.
        right_slack_ms: of the right side of a stream-stream join, else None.
        size_ms: the record's first window lasts so long and counts from its end (W2), else None.
        advance_ms: the windows' distance.
    """

    slack_ms: int = 0
    right_slack_ms: int | None = None
    size_ms: int | None = None
    advance_ms: int = 1


@dataclass(frozen=True, slots=True)
class Gauge:
    """One measure.

    Attributes:
        name: the input's alias; ``<operator>.grace`` of what is measured before an operator.
        stage: where.
        input_index: the input whose records are measured as they enter the stage, else None.
        operator: the operator before which they are measured, else None.
        clock: the clock of an operator that runs with this input and can be ahead of it after a silence (T10), else None.
        columns: qualified columns that must not be null: such records move no clock (T6, J7).
        allowance: see there.
        grace_ms: a value the answer must be exact for beside the usual ones, None for no such.
        counts_deletes: a table's deletes are judged like its rows; a stream's are dropped (T6).
    """

    name: str
    stage: int
    input_index: int | None
    operator: str | None
    clock: str | None
    columns: tuple[str, ...] = ()
    allowance: Allowance = Allowance()
    grace_ms: int | None = None
    counts_deletes: bool = False


SettingKind = Literal["join_grace", "window_grace", "history_retention"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that a gauge advises on.

    Attributes:
        kind: which one.
        operator: the join's or the aggregation's name, where the setting is the query's.
        input: alias of the input whose records it concerns; None: of no input directly, an operator stands between.
        gauge: name of the gauge.
        current_ms: its value, None where it is not set.
        rule: rule of semantics.md that judges.
        is_exact: False: some of the records that count as late may still find an open session.
    """

    kind: SettingKind
    operator: str | None
    input: str | None
    gauge: str
    current_ms: int | None
    rule: str
    is_exact: bool = True


def gauges_of(plan: Plan) -> Iterator[Gauge]:
    """Yield a plan's gauges: one for each input, and one before each operator that judges by a time of its own."""
    for stage in plan.stages:
        for item in plan.inputs:
            if item.stage == stage.index:
                clock, grace_ms = _clock_of(item, stage)
                is_table = item.relation.kind == "table"
                yield Gauge(item.alias, stage.index, item.index, None, clock, grace_ms=grace_ms, counts_deletes=is_table)
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
            own = running if all(isinstance(each, Filter) for each in stage.operators[:place]) else None
            if isinstance(operator, StreamTableJoin):
                gauge = f"{operator.name}.grace" if _gauge_before(operator, stage, place) else str(running)
                yield Setting("join_grace", operator.name, own, gauge, operator.grace_ms, "J3")
            elif isinstance(operator, StreamStreamJoin):
                yield Setting("join_grace", operator.name, own, f"{operator.name}.grace", operator.grace_ms, "T1")
            elif isinstance(operator, WindowedAggregation):
                rule = {WindowAggregation: "W2", SessionAggregation: "W3", SlidingAggregation: "W4"}[type(operator)]
                is_exact = not isinstance(operator, SessionAggregation)
                yield Setting(
                    "window_grace", operator.name, own, f"{operator.name}.grace", operator.grace_ms, rule, is_exact=is_exact
                )
    for item in plan.inputs:
        if item.relation.history_retention_ms is not None:
            yield Setting("history_retention", None, item.alias, item.alias, item.relation.history_retention_ms, "V1")


def _clock_of(item: Input, stage: Stage) -> tuple[str | None, int | None]:
    """Return the clock that may be ahead of an input's own records, and the setting that judges them."""
    for operator in stage.operators:
        if isinstance(operator, StreamTableJoin) and operator.table_index == item.index:
            return f"{operator.name}.table", operator.history_retention_ms
    first = stage.operators[0] if stage.operators else None
    if item.index == stage.running and isinstance(first, StreamTableJoin) and first.grace_ms is not None:
        return first.name, first.grace_ms
    return None, item.relation.history_retention_ms


def _gauge_before(operator: Operator, stage: Stage, place: int) -> Gauge | None:
    name = getattr(operator, "name", "")
    if isinstance(operator, StreamTableJoin):
        if operator.grace_ms is None or (place == 0 and stage.running is not None):
            return None  # nothing is judged, or the input's own gauge measures the same
        return Gauge(f"{name}.grace", stage.index, None, name, name, operator.stream_key, grace_ms=operator.grace_ms)
    if isinstance(operator, StreamStreamJoin):
        allowance = Allowance(operator.after_ms, operator.before_ms)
        return Gauge(f"{name}.grace", stage.index, operator.stream_index, name, name, (), allowance, operator.grace_ms)
    if not isinstance(operator, WindowedAggregation):
        return None
    columns = tuple(source for _, source in operator.group)
    if isinstance(operator, WindowAggregation):
        allowance = Allowance(size_ms=operator.size_ms, advance_ms=operator.advance_ms)
    else:
        allowance = Allowance(operator.gap_ms if isinstance(operator, SessionAggregation) else operator.difference_ms)
    return Gauge(f"{name}.grace", stage.index, None, name, name, columns, allowance, operator.grace_ms)
