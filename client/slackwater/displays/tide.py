"""The tide chart: stream time and boundary of each operator with a grace.

Event time goes from left to right. Right of the boundary (stream time less grace) is water: records that wait there are not final, drawn as a
histogram. Left of it is land: final; records that come there are late, and are counted at the end of the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from math import floor as floor_of
from typing import TYPE_CHECKING

from slackwater.displays.style import CLOCK, LAND, LATE, WATER, box, label, line, moment_text, range_text, shown, span_text, svg

if TYPE_CHECKING:
    from slackwater.answers.answer_list import LatenessAnswer, StatusAnswer, WaitingSpan

WIDTH = 720
LEFT, RIGHT, ROW, TOP = 110, 130, 46, 48
BARS = 60
LATE_REASONS = ("late", "closed", "expired")


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator with a grace: where its time is, and what waits in all its tasks."""

    name: str
    clock: int
    grace_ms: int
    buffered: int
    waiting: list[WaitingSpan]

    @property
    def boundary(self) -> int:
        return self.clock - self.grace_ms


def tide_chart(status: StatusAnswer, lateness: LatenessAnswer) -> str:
    """Return the picture; a sentence if no operator has a clock yet."""
    graces = {
        setting.operator: setting.current_ms or 0 for setting in lateness.settings if setting.operator and not setting.relation
    }
    operators = [_operator(status, name, grace_ms) for name, grace_ms in graces.items() if name in status.clocks]
    if not operators:
        why = "no operator with a grace has read a record yet" if graces else "nothing in it has a grace"
        return f"<div>{shown(status.name)}: {why}</div>"
    low, high = _bounds(operators)
    late = _late_by_operator(status)
    height = TOP + ROW * len(operators) + 34
    title = f"{status.name}: event time"
    parts = [label(8, 16, title, size=12), *_legend()]
    for number, operator in enumerate(operators):
        parts.append(_row(operator, TOP + ROW * number, low, high))
        count = late.get(operator.name, 0)
        count_text = f"{count:,} late" if count else "none late"
        colour = LATE if count else "currentColor"
        parts.append(label(WIDTH - RIGHT + 8, TOP + ROW * number + 20, count_text, colour=colour))
    floor = TOP + ROW * len(operators) + 2
    parts.append(line(LEFT, floor, WIDTH - RIGHT, floor, more='stroke-opacity=".4"'))
    parts.append(label(LEFT, floor + 16, moment_text(low)))
    parts.append(label(WIDTH - RIGHT, floor + 16, moment_text(high), anchor="end"))
    return svg(WIDTH, height, title, "".join(parts))


def _operator(status: StatusAnswer, name: str, grace_ms: int) -> _Operator:
    waiting = [span for task in status.tasks or () if task.operator == name for span in task.waiting]
    return _Operator(name, status.clocks[name], grace_ms, status.buffered.get(name, 0), waiting)


def _bounds(operators: list[_Operator]) -> tuple[int, int]:
    """Return the range of event time to show: all waiting records, clocks and boundaries, and a margin on both sides."""
    times = [at for operator in operators for span in operator.waiting for at in (span.from_ms, span.to_ms)]
    times += [at for operator in operators for at in (operator.clock, operator.boundary)]
    margin = max((max(times) - min(times)) // 20, 1_000)
    return min(times) - margin, max(times) + margin


def _late_by_operator(status: StatusAnswer) -> dict[str, int]:
    counts: dict[str, int] = {}
    for counter in status.counters:
        if any(word in counter.reason for word in LATE_REASONS):
            counts[counter.input] = counts.get(counter.input, 0) + counter.count
    return counts


def _row(operator: _Operator, top: float, low: int, high: int) -> str:
    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - low) / (high - low)

    clock, boundary, floor = operator.clock, operator.boundary, top + ROW - 10
    behind = f"{span_text(operator.grace_ms)} behind"
    tooltip = f"stream time {moment_text(clock)}, boundary {moment_text(boundary)} ({behind}), {operator.buffered:,} waiting"
    parts = [
        label(LEFT - 8, floor - 10, operator.name, anchor="end"),
        label(LEFT - 8, floor + 2, f"{operator.buffered:,} waiting", anchor="end", size=10),
        box(LEFT, top, x(boundary) - LEFT, ROW - 10, colour=LAND, opacity=0.18, title=tooltip),
        box(x(boundary), top, x(clock) - x(boundary), ROW - 10, colour=WATER, opacity=0.16, title=tooltip),
    ]
    counts = _histogram(operator.waiting, low, high)
    first, last = (
        min((span.from_ms for span in operator.waiting), default=low),
        max((span.to_ms for span in operator.waiting), default=high),
    )
    for bar, (least, most) in sorted(counts.items()):
        begin, end = (min(max(low + (high - low) * edge // BARS, first), last) for edge in (bar, bar + 1))
        size = max(most / max(each for _, each in counts.values()) * (ROW - 16), 2.0)
        named = f"{range_text(floor_of(least), ceil(most))} wait, {moment_text(begin)} to {moment_text(end)}"
        parts.append(box(x(begin), floor - size, max(x(end) - x(begin), 2.0), size, colour=WATER, opacity=0.75, title=named))
    parts.append(line(x(boundary), top, x(boundary), floor, colour=LAND, more='stroke-width="2"'))
    parts.append(line(x(clock), top - 3, x(clock), floor, colour=CLOCK, more='stroke-width="2"'))
    return "".join(parts)


def _histogram(spans: list[WaitingSpan], low: int, high: int) -> dict[int, tuple[float, float]]:
    """Return how many records wait at least and at most in each bar of the picture that has some, each span evenly over its time."""
    counts: dict[int, tuple[float, float]] = {}
    for span in spans:
        first, last = (min((at - low) * BARS // (high - low), BARS - 1) for at in (span.from_ms, span.to_ms))
        for bar in range(first, last + 1):
            least, most = counts.get(bar, (0.0, 0.0))
            counts[bar] = (least + span.at_least / (last + 1 - first), most + span.at_most / (last + 1 - first))
    return counts


def _legend() -> list[str]:
    names = (("settled", LAND, 0.35), ("waiting", WATER, 0.75), ("boundary", LAND, 1.0), ("stream time", CLOCK, 1.0))
    parts = []
    for number, (name, colour, opacity) in enumerate(names):
        x = LEFT + number * 110
        parts += [box(x, 26, 10, 10, colour=colour, opacity=opacity), label(x + 15, 35, name)]
    return parts
