"""The tide chart: stream time and boundary of each task of each operator with a grace.

Event time goes from left to right. Right of the boundary (stream time less grace) is water: records that wait there are not final, drawn as a
histogram. Left of it is land: final; records that come there are late, and are counted at the end of the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.displays.style import CLOCK, LAND, LATE, WATER, box, label, line, moment_text, range_text, shown, span_text, svg

if TYPE_CHECKING:
    from slackwater.answers.answer_list import LatenessAnswer, StatusAnswer, TaskStatus

WIDTH = 720
LEFT, RIGHT, ROW, TOP = 110, 130, 46, 48
LATE_REASONS = ("late", "closed", "expired")


def tide_chart(status: StatusAnswer, lateness: LatenessAnswer) -> str:
    """Return the picture; a sentence if no task has a clock yet."""
    graces = {
        setting.operator: setting.current_ms or 0 for setting in lateness.settings if setting.operator and not setting.relation
    }
    tasks = [task for task in status.tasks or () if task.stream_time_ms is not None and task.operator in graces]
    if not tasks:
        why = "no operator with a grace has read a record yet" if graces else "nothing in it has a grace"
        return f"<div>{shown(status.name)}: {why}</div>"
    low, high = _bounds(tasks, graces)
    late = _late_by_operator(status)
    height = TOP + ROW * len(tasks) + 34
    title = f"{status.name}: event time by task"
    parts = [label(8, 16, title, size=12), *_legend()]
    for number, task in enumerate(tasks):
        parts.append(_row(task, graces[task.operator], TOP + ROW * number, low, high))
        if number == 0 or tasks[number - 1].operator != task.operator:
            count = late.get(task.operator, 0)
            count_text = f"{count:,} late" if count else "none late"
            colour = LATE if count else "currentColor"
            parts.append(label(WIDTH - RIGHT + 8, TOP + ROW * number + 20, count_text, colour=colour))
    floor = TOP + ROW * len(tasks) + 2
    parts.append(line(LEFT, floor, WIDTH - RIGHT, floor, more='stroke-opacity=".4"'))
    parts.append(label(LEFT, floor + 16, moment_text(low)))
    parts.append(label(WIDTH - RIGHT, floor + 16, moment_text(high), anchor="end"))
    return svg(WIDTH, height, title, "".join(parts))


def _bounds(tasks: list[TaskStatus], graces: dict[str, int]) -> tuple[int, int]:
    """Return the range of event time to show: all waiting records, clocks and boundaries, and a margin on both sides."""
    times = [at for task in tasks for span in task.waiting for at in (span.from_ms, span.to_ms)]
    for task in tasks:
        clock = task.stream_time_ms or 0
        times += [clock, clock - graces[task.operator]]
    margin = max((max(times) - min(times)) // 20, 1_000)
    return min(times) - margin, max(times) + margin


def _late_by_operator(status: StatusAnswer) -> dict[str, int]:
    counts: dict[str, int] = {}
    for counter in status.counters:
        if any(word in counter.reason for word in LATE_REASONS):
            counts[counter.input] = counts.get(counter.input, 0) + counter.count
    return counts


def _row(task: TaskStatus, grace_ms: int, top: float, low: int, high: int) -> str:
    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - low) / (high - low)

    clock = task.stream_time_ms or 0
    boundary, floor = clock - grace_ms, top + ROW - 10
    tooltip = f"stream time {moment_text(clock)}, boundary {moment_text(boundary)} ({span_text(grace_ms)} behind), {task.buffered:,} waiting"
    parts = [
        label(LEFT - 8, floor - 10, f"{task.operator}, task {task.task}", anchor="end"),
        label(LEFT - 8, floor + 2, f"{task.buffered:,} waiting", anchor="end", size=10),
        box(LEFT, top, x(boundary) - LEFT, ROW - 10, colour=LAND, opacity=0.18, title=tooltip),
        box(x(boundary), top, x(clock) - x(boundary), ROW - 10, colour=WATER, opacity=0.16, title=tooltip),
    ]
    densest = max((_density(span.at_most, span.to_ms - span.from_ms, high - low) for span in task.waiting), default=1.0)
    for span in task.waiting:
        size = _density(span.at_most, span.to_ms - span.from_ms, high - low) / densest * (ROW - 16)
        width = max(x(span.to_ms) - x(span.from_ms), 2.0)
        named = f"{range_text(span.at_least, span.at_most)} wait, {moment_text(span.from_ms)} to {moment_text(span.to_ms)}"
        parts.append(box(x(span.from_ms), floor - size, width, size, colour=WATER, opacity=0.75, title=named))
    parts.append(line(x(boundary), top, x(boundary), floor, colour=LAND, more='stroke-width="2"'))
    parts.append(line(x(clock), top - 3, x(clock), floor, colour=CLOCK, more='stroke-width="2"'))
    return "".join(parts)


def _density(count: int, span_ms: int, whole_ms: int) -> float:
    """Return the number of records per unit of width; a span without width counts as a hundredth of the picture."""
    return count / max(span_ms, whole_ms / 100)


def _legend() -> list[str]:
    names = (("settled", LAND, 0.35), ("waiting", WATER, 0.75), ("boundary", LAND, 1.0), ("stream time", CLOCK, 1.0))
    parts = []
    for number, (name, colour, opacity) in enumerate(names):
        x = LEFT + number * 110
        parts += [box(x, 26, 10, 10, colour=colour, opacity=opacity), label(x + 15, 35, name)]
    return parts
