"""The records and windows that an edit in place would release, close or exceed at once, from the tasks' reports with their last commit. Pure.

Tasks report how much waits at which times, in a few spans (``engine.operators.pending.spans``). If the new bound cuts a span, the answer is a
range. An edit without ``?flush=now`` has the same effects with each task's next record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.plan.model import Plan
from engine.plan.operators.answers import RowBound, TimeBound, WaitingKind
from engine.plan.operators.operator import Operator

EffectKind = Literal[WaitingKind, "rows_removed", "versions_unreadable", "late_records_removed"]
Spans = Mapping[str, list[list[int]]]


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect of an edit on stored data.

    Attributes:
        pointer: the part of the definition that causes it.
        operator: its name; None: the results.
        least: least number of records, rows or windows.
        most: greatest number; equal to ``least`` if the number is exact.
        from_ms: the earliest time: event times, ends of windows, or for a hold the wall clock; None if there is none.
    """

    pointer: str
    kind: EffectKind
    operator: str | None
    least: int
    most: int
    from_ms: int | None = None
    to_ms: int | None = None


def effects_at_once(
    before: Plan, after: Plan, definition: Mapping[str, Any], detail: Mapping[str, Any], now_ms: int
) -> list[Effect]:
    """Return the effects of the new plan at once.

    Args:
        before: the plan in force.
        after: a plan that the stored state fits.
        definition: the new one, with every default.
        detail: of the query's last commit.
        now_ms: the wall clock.
    """
    joins = {join["as"]: f"/joins/{index}" for index, join in enumerate(definition["joins"])}
    effects = []
    for old_stage, new_stage in zip(before.stages, after.stages, strict=True):
        for old, new in zip(old_stage.operators, new_stage.operators, strict=True):
            times, rows = ({each.setting: each for each in old.time_bounds}, {each.setting: each for each in old.row_bounds})
            effects += [_passed(each, new, joins, detail, now_ms) for each in new.time_bounds if each != times[each.setting]]
            effects += [_overrun(each, new, joins, detail) for each in new.row_bounds if _is_lower(each, rows[each.setting])]
    return effects


def _pointer(bound: TimeBound | RowBound, operator: Operator, joins: Mapping[str, str]) -> str:
    part = joins[str(operator.name)] if operator.part == "joins" else f"/{operator.part}"
    return f"{part}{bound.setting}"


def _passed(bound: TimeBound, operator: Operator, joins: Mapping[str, str], detail: Mapping[str, Any], now_ms: int) -> Effect:
    """Count the records at or before the bound, task by task."""
    least = most = 0
    lows: list[int] = []
    highs: list[int] = []
    clocks = detail.get("clocks", {}).get(bound.clock, {})
    for task, spans in _spans(detail, bound.waiting).items():
        clock = now_ms if bound.clock is None else clocks.get(task)
        for low, high, span_least, span_most in spans if clock is not None else ():
            until = clock - bound.delay_ms
            if low > until:
                continue
            most += span_most
            least += span_least if high <= until else min(span_least, 1)
            lows.append(low)
            highs.append(min(high, until))
    pointer, from_ms, to_ms = _pointer(bound, operator, joins), min(lows, default=None), max(highs, default=None)
    return Effect(pointer, bound.kind, operator.name, least, most, from_ms, to_ms)


def _is_lower(new: RowBound, old: RowBound) -> bool:
    return new.max_rows is not None and (old.max_rows is None or new.max_rows < old.max_rows)


def _overrun(bound: RowBound, operator: Operator, joins: Mapping[str, str], detail: Mapping[str, Any]) -> Effect:
    """Count the rows above a lower bound; bounds are per task."""
    waiting = _spans(detail, bound.waiting)
    excess = sum(max(sum(span[3] for span in spans) - (bound.max_rows or 0), 0) for spans in waiting.values())
    return Effect(_pointer(bound, operator, joins), bound.kind, operator.name, excess, excess)


def _spans(detail: Mapping[str, Any], name: str) -> Spans:
    spans: Spans = detail.get("waiting", {}).get(name, {})
    return spans
