"""The lateness curve: the share of records that would have been late with another grace."""

from __future__ import annotations

from itertools import pairwise
from math import log10
from typing import TYPE_CHECKING

from slackwater.displays.style import CLOCK, LATE, box, label, line, shown, span_text, svg

if TYPE_CHECKING:
    from slackwater.answers.answer_list import AdviceItem, LatenessAnswer, SettingAdvice

WIDTH, HEIGHT = 560, 210
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 40, 44


def lateness_curves(lateness: LatenessAnswer) -> str:
    """Return one picture for each measured setting; a sentence if there is none."""
    measured = [setting for setting in lateness.settings if setting.count]
    if not measured:
        return f"<div>{shown(lateness.query)}: no record has been measured yet, or nothing in it has a grace</div>"
    return "".join(_curve(lateness.query, setting) for setting in measured)


def _curve(query: str, setting: SettingAdvice) -> str:
    advice = setting.advice
    most = max([item.late_share for item in advice] + [0.01])
    # Graces range from milliseconds to days: use their logarithm, beside zero, which has none.
    widest = max(_place(item.value_ms) for item in advice) or 1.0

    def x(item: AdviceItem) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * _place(item.value_ms) / widest

    def y(item: AdviceItem) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - item.late_share / most)

    floor = HEIGHT - BOTTOM
    where = setting.pointer if setting.relation is None else f"{setting.relation} {setting.pointer}"
    title = f"{query}: share of {setting.count:,} records that would have been late, by {where}"
    parts = [
        label(LEFT, 16, title, size=12),
        line(LEFT, floor, WIDTH - RIGHT, floor, more='stroke-opacity=".5"'),
        line(LEFT, TOP, LEFT, floor, more='stroke-opacity=".5"'),
        label(LEFT - 6, TOP + 4, f"{most:.1%}", anchor="end"),
        label(LEFT - 6, floor + 4, "0", anchor="end"),
    ]
    for before, item in pairwise(advice):
        parts.append(line(x(before), y(before), x(item), y(before), colour=LATE, more='stroke-width="2"'))
        parts.append(line(x(item), y(before), x(item), y(item), colour=LATE, more='stroke-width="2"'))
    free: float = LEFT
    for item in advice:
        caption = (
            f"{span_text(item.value_ms)}: {item.late_count:,} late ({item.late_share:.2%}), waits {span_text(item.added_wait_ms)}"
        )
        parts.append(box(x(item) - 3, y(item) - 3, 6, 6, colour=LATE, title=caption if item.exact else f"{caption} at most"))
        if x(item) >= free:
            parts.append(label(x(item), floor + 15, span_text(item.value_ms) if item.value_ms else "0", anchor="middle"))
            free = x(item) + 46
        if item.current:
            parts.append(line(x(item), TOP, x(item), floor, colour=CLOCK, more='stroke-dasharray="4 3" stroke-width="1.5"'))
            side = "end" if x(item) > WIDTH / 2 else "start"
            parts.append(
                label(x(item) + (-5 if side == "end" else 5), TOP + 8, f"in force: {caption}", anchor=side, colour=CLOCK)
            )
    parts.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "grace", anchor="middle"))
    return svg(WIDTH, HEIGHT, title, "".join(parts))


def _place(value_ms: int) -> float:
    return log10(value_ms) + 1 if value_ms > 0 else 0.0
