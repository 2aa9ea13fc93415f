"""What an edit in place would let go, close or overrun at once, from what tasks reported with their last commit. Pure.

Tasks report how much waits at which times, in a few spans (``engine.core.structures.spans``). A span that the new boundary cuts makes the
answer a range. An edit without ``?release=now`` does the same with each task's next record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.plan.model import (
    Operator,
    Plan,
    SessionAggregation,
    SlidingAggregation,
    StreamStreamJoin,
    StreamTableJoin,
    SuppressBuffer,
    TimeLimitSuppression,
    WallClockSuppression,
    WindowAggregation,
)

EffectKind = Literal[
    "records_let_go", "windows_closed", "updates_let_go", "buffer_overrun", "rows_removed", "versions_unreadable", "late_records_removed"
]  # fmt: skip
Spans = Mapping[str, list[list[int]]]


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that the edit does to what is there.

    Attributes:
        pointer: the part of the definition that causes it.
        kind: what happens.
        operator: where; None: to results.
        least: to how many at least.
        most: to how many at most; equal to ``least`` where the number is exact.
        from_ms: the earliest time concerned: event times, ends of windows, or for a hold the wall clock; None for none.
        to_ms: the latest.
    """

    pointer: str
    kind: EffectKind
    operator: str | None
    least: int
    most: int
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Boundary:
    """What is at or before ``clock - delay_ms`` of its task goes; ``clock`` None: the wall clock."""

    pointer: str
    kind: EffectKind
    waiting: str
    clock: str | None
    delay_ms: int


def effects_at_once(
    before: Plan, after: Plan, definition: Mapping[str, Any], detail: Mapping[str, Any], now_ms: int
) -> list[Effect]:
    """Return what the new plan would do at once.

    Args:
        before: the plan in force.
        after: one that the kept state fits.
        definition: the wanted one, every default spelled out.
        detail: of the query's last commit.
        now_ms: the wall clock.
    """
    joins = {join["as"]: f"/joins/{index}" for index, join in enumerate(definition["joins"])}
    effects = []
    for old_stage, new_stage in zip(before.stages, after.stages, strict=True):
        for old, new in zip(old_stage.operators, new_stage.operators, strict=True):
            effects += [_passed(boundary, detail, now_ms) for boundary in _boundaries(old, new, joins)]
            effects += _overruns(old, new, joins, detail)
    return effects


def _boundaries(old: Operator, new: Operator, joins: Mapping[str, str]) -> Iterator[_Boundary]:
    match old, new:
        case StreamTableJoin(), StreamTableJoin():
            yield from _join_boundaries(old, new, joins[new.name])
        case StreamStreamJoin(), StreamStreamJoin() if new.grace_ms != old.grace_ms:
            yield _Boundary(f"{joins[new.name]}/within/grace", "records_let_go", new.name, new.name, new.grace_ms + 1)
        case WindowAggregation(), WindowAggregation() if new.grace_ms != old.grace_ms:
            yield _Boundary("/window/grace", "windows_closed", new.name, new.name, new.grace_ms)
        case SessionAggregation(), SessionAggregation() if new.grace_ms != old.grace_ms:
            yield _Boundary("/window/grace", "windows_closed", new.name, new.name, new.gap_ms + new.grace_ms + 1)
        case SlidingAggregation(), SlidingAggregation() if new.grace_ms != old.grace_ms:
            yield _Boundary("/window/grace", "windows_closed", new.name, new.name, new.grace_ms + 1)
        case TimeLimitSuppression(), TimeLimitSuppression() if new.limit_ms != old.limit_ms:
            yield _Boundary("/suppress/limit", "updates_let_go", new.name, new.name, new.limit_ms)
        case _:
            pass


def _join_boundaries(old: StreamTableJoin, new: StreamTableJoin, pointer: str) -> Iterator[_Boundary]:
    if new.grace_ms is not None and new.grace_ms != old.grace_ms:
        yield _Boundary(f"{pointer}/grace", "records_let_go", new.name, new.name, new.grace_ms)
    if new.hold is not None and old.hold is not None and new.hold.at_most_ms != old.hold.at_most_ms:
        yield _Boundary(f"{pointer}/hold/at_most", "records_let_go", f"{new.name}.hold", None, new.hold.at_most_ms)


def _passed(boundary: _Boundary, detail: Mapping[str, Any], now_ms: int) -> Effect:
    """Count what is at or before the boundary, task by task."""
    least = most = 0
    lows: list[int] = []
    highs: list[int] = []
    clocks = detail.get("clocks", {}).get(boundary.clock, {})
    for task, spans in _spans(detail, boundary.waiting).items():
        clock = now_ms if boundary.clock is None else clocks.get(task)
        for low, high, span_least, span_most in spans if clock is not None else ():
            until = clock - boundary.delay_ms
            if low > until:
                continue
            most += span_most
            least += span_least if high <= until else min(span_least, 1)
            lows.append(low)
            highs.append(min(high, until))
    operator = boundary.waiting.removesuffix(".hold")
    return Effect(boundary.pointer, boundary.kind, operator, least, most, min(lows, default=None), max(highs, default=None))


def _overruns(old: Operator, new: Operator, joins: Mapping[str, str], detail: Mapping[str, Any]) -> Iterator[Effect]:
    """Count what is above a lower bound of rows; bounds are per task."""
    match old, new:
        case StreamTableJoin(hold=was), StreamTableJoin(hold=now) if was is not None and now is not None and was != now:
            pointer, name, bound, kind = f"{joins[new.name]}/hold/max_rows", f"{new.name}.hold", now.max_rows, "records_let_go"
            is_lower = now.max_rows < was.max_rows
        case (TimeLimitSuppression() | WallClockSuppression(), TimeLimitSuppression() | WallClockSuppression()):
            pointer, name, bound = "/suppress/buffer", new.name, _rows_of(new.buffer)
            is_lower = bound < _rows_of(old.buffer)
            is_early = new.buffer is not None and new.buffer.when_full == "emit_early"
            kind = "updates_let_go" if is_early else "buffer_overrun"
        case _:
            return
    if is_lower:
        over = sum(max(sum(span[3] for span in spans) - bound, 0) for spans in _spans(detail, name).values())
        yield Effect(pointer, kind, new.name, over, over)  # type: ignore[arg-type]  # one of its literals


_NO_BOUND = 1 << 62


def _rows_of(buffer: SuppressBuffer | None) -> int:
    return _NO_BOUND if buffer is None or buffer.max_rows is None else buffer.max_rows


def _spans(detail: Mapping[str, Any], name: str) -> Spans:
    spans: Spans = detail.get("waiting", {}).get(name, {})
    return spans
