"""The plan in a form for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.text import Text

from slackwater.answers.answer_list import EditEffect
from slackwater.cli.definitions.plan import Action, Plan, Step
from slackwater.cli.options.output import Output, event_time
from slackwater.displays.style import range_text
from slackwater.parameters import json_text

LOOK: Final[Mapping[Action, tuple[str, str, str]]] = {
    "create": ("+", "green", "create"),
    "in_place": ("~", "yellow", "edit in place"),
    "repartition": ("~", "yellow", "edit in place; the state is distributed among other tasks"),
    "needs_new_state": ("!", "bold red", "needs new state"),
    "delete": ("-", "red", "delete"),
    "refused": ("✗", "bold red", "refused"),
    "no_op": ("=", "dim", "no change"),
}
"""Sign, style and words of each action."""

EFFECTS: Final[Mapping[str, str]] = {
    "records_let_go": "records that wait are released",
    "windows_closed": "windows close",
    "updates_let_go": "suppressed updates are released",
    "buffer_overrun": "rows are beyond the new bound",
    "rows_removed": "rows are removed",
    "versions_unreadable": "versions can no longer be read",
    "late_records_removed": "late records are removed",
}
_LONGEST: Final = 60


def show(output: Output, plan: Plan, *, shows_all: bool = False) -> None:
    """Print a plan; unchanged items are only counted, unless ``shows_all``."""
    for step in plan.steps:
        if step.action == "no_op" and not shows_all:
            continue
        sign, style, words = LOOK[step.action]
        line = Text(f"{sign} {step.kind} {step.name}", style=style)
        line.append(f"  {words}", style="not bold")
        if step.wanted is not None:
            line.append(f"  {step.wanted.place}", style="dim not bold")
        output.out.print(line, soft_wrap=True)
        for detail, detail_style in _details(step):
            output.out.print(Text(f"    {detail}", style=detail_style), soft_wrap=True)
    output.out.print(Text(summary(plan), style="bold"), soft_wrap=True)


def _details(step: Step) -> Iterator[tuple[str, str]]:
    for problem in step.problems:
        yield problem, "red"
    if step.action == "needs_new_state":
        yield "what it keeps and has written is thrown away, and it starts from scratch", "red"
    if step.action == "delete":
        yield ("its state and all its rows go with it" if step.kind == "query" else "all its records go with it"), "red"
    item = step.item
    if item is None:
        return
    for change in item.changes:
        before, after = value_at(step.before or {}, change.pointer), value_at(item.definition or {}, change.pointer)
        yield f"{change.pointer}: {_short(before)} → {_short(after)}", ""
        yield f"  {change.reason}", "dim"
    for effect in item.effects:
        yield f"{_effect(effect)}", "yellow"
    for warning in item.warnings:
        yield f"warning {warning.code} {warning.pointer}: {warning.detail}; {warning.cure}", "yellow"


def _effect(effect: EditEffect) -> str:
    where = "" if effect.operator is None else f" at {effect.operator}"
    times = "" if effect.from_ms is None else f", {event_time(effect.from_ms)} to {event_time(effect.to_ms)}"
    return f"{range_text(effect.at_least, effect.at_most)} {EFFECTS.get(effect.effect, effect.effect)}{where}{times}"


def _short(value: Any) -> str:
    text = "-" if value is None else json_text(value) if not isinstance(value, str) else value
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def value_at(definition: Mapping[str, Any], pointer: str) -> Any:
    """Return the value at a JSON pointer; None if it does not exist."""
    value: Any = definition
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list | tuple) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def summary(plan: Plan) -> str:
    """Return the plan as a sentence."""
    counts = [
        (len(plan.of("create")), "to create"),
        (len(plan.of("in_place", "repartition")), "to edit in place"),
        (len(plan.of("needs_new_state")), "to start from scratch"),
        (len(plan.of("delete")), "to delete"),
        (len(plan.of("refused")), "refused"),
    ]
    parts = [f"{count} {words}" for count, words in counts if count]
    unchanged = len(plan.of("no_op"))
    if not parts:
        return f"No change: the service has all {unchanged} definitions as they are."
    return f"Plan: {', '.join(parts)}, {unchanged} unchanged."
