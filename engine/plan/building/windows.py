"""Checks a window's sizes: which ones its type takes, and how they limit each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.definition.problems import Problems
from engine.definition.queries import DAY_MS, Window
from engine.expressions.durations import format_duration

DEFAULT_RETENTION_MS = 7 * DAY_MS

_SIZES: dict[str, tuple[str, ...]] = {
    "tumbling": ("size",), "hopping": ("size", "advance"), "sliding": ("difference",), "session": ("gap",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """A window's checked sizes.

    Attributes:
        type: tumbling is hopping that advances by its size.
        length_ms: size, difference or gap.
        advance_ms: from one start to the next; of hopping windows alone, else 0.
    """

    type: Literal["hopping", "sliding", "session"]
    length_ms: int
    advance_ms: int
    grace_ms: int


def length_of(window: Window) -> int | None:
    """Return a window's size, difference or gap in ms, whichever its type has; None where it was not given."""
    length: int | None = getattr(window, _SIZES[window.type][0])
    return length


def open_for(window: Window) -> int | None:
    """Return for how long after its start (a session: after its last record) a window may still change, in ms."""
    length = length_of(window)
    return None if length is None else length + window.grace


def default_retention(window: Window) -> int | None:
    """Return for how long closed windows stay readable by default: the larger of a week and what a window is open for."""
    least = open_for(window)
    return None if least is None else max(DEFAULT_RETENTION_MS, least)


MAX_WINDOWS_PER_RECORD = 10_000
"""A record becomes a change of each of its windows: more of them than this in memory at once is a slip."""


def check_sizes(window: Window, problems: Problems) -> Sizes | None:
    """Check a window; None after adding problems. A difference or a gap of nothing joins records of one instant (STRICT 19)."""
    before = len(problems.found)
    wanted = _SIZES[window.type]
    for name in ("size", "advance", "difference", "gap"):
        value = getattr(window, name)
        pointer = f"/window/{name}"
        if name in wanted and value is None:
            problems.add(pointer, "field_missing", f"a {window.type} window needs `{name}`")
        elif name in wanted and name in ("size", "advance") and value == 0:
            problems.add(pointer, "invalid_value", f"`{name}` must be longer than 0s")
        elif name not in wanted and value is not None:
            problems.add(pointer, "unknown_field", f"a {window.type} window has no `{name}`")
    length, least = length_of(window), open_for(window)
    if len(problems.found) > before or length is None or least is None:
        return None
    advance = length if window.advance is None else window.advance
    if advance > length:
        problems.add("/window/advance", "advance_exceeds_size", "windows would leave gaps and lose records; `size` is the most")
    elif advance * MAX_WINDOWS_PER_RECORD < length:
        problems.add(
            "/window/advance", "advance_too_small",
            f"each record would be in {length // advance:,} windows; {MAX_WINDOWS_PER_RECORD:,} is the most: advance by at least "
            f"{format_duration(-(-length // MAX_WINDOWS_PER_RECORD))}",
        )  # fmt: skip
    if window.retention is not None and window.retention < least:
        problems.add(
            "/window/retention", "retention_below_size_plus_grace",
            f"a window must stay readable at least while it may change, {format_duration(least)}; raise `retention` or leave it out",
        )  # fmt: skip
    if window.type in ("tumbling", "hopping"):
        return Sizes("hopping", length, advance, window.grace)
    return Sizes("sliding" if window.type == "sliding" else "session", length, 0, window.grace)
