"""The content of the screen, from two readings: rates, an order, and the text of each line. Knows no terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from slackwater.cli.options.output import event_time, length
from slackwater.cli.top.reading import Row, Snapshot

ATTENTION: Final = ("failed", "backoff", "starting", "stopping", "running", "paused", "stopped")
"""States in order; those that need attention first."""

HEAD: Final = ("QUERY", "STATE", "READ/S", "WRITTEN/S", "BEHIND", "WAITING", "LATE", "BATCH", "COMMIT", "STREAM TIME")
_NUMBERS: Final = range(2, 9)
_STYLES: Final[Mapping[str, str]] = {
    "failed": "class:failed", "backoff": "class:warning", "starting": "class:warning", "stopping": "class:warning", "running": "class:running",
    "paused": "class:paused", "stopped": "class:quiet",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """One query with its rates; None: unknown yet."""

    row: Row
    read_per_s: float | None
    emitted_per_s: float | None


_Key = Callable[[Line], Any]


def _greatest(value: Callable[[Line], float | None]) -> _Key:
    return lambda line: (-(value(line) or 0.0), line.row.name)


ORDERS: Final[Mapping[str, tuple[str, _Key]]] = MappingProxyType({
    "a": ("what needs attention", lambda line: (ATTENTION.index(line.row.state), -(line.row.lag or 0.0), line.row.name)),
    "n": ("name", lambda line: line.row.name),
    "r": ("read per second", _greatest(lambda line: line.read_per_s)),
    "b": ("behind", _greatest(lambda line: line.row.lag)),
    "w": ("waiting", _greatest(lambda line: line.row.waiting)),
    "l": ("late", _greatest(lambda line: line.row.counted)),
})  # fmt: skip
"""Key on the keyboard → order of the rows."""


@dataclass(slots=True)
class View:
    """The content of the screen.

    Attributes:
        order: one of ``ORDERS``.
        selected: name of the selected query; None: the first.
        trouble: why there is no newer reading; empty: there is one.
        is_held: the numbers are frozen.
    """

    service: str
    before: Snapshot | None = None
    now: Snapshot | None = None
    order: str = "a"
    selected: str | None = None
    detail: Sequence[tuple[str, str]] = field(default_factory=tuple)
    trouble: str = ""
    is_held: bool = False

    def take(self, snapshot: Snapshot) -> None:
        """Show a newer reading."""
        self.before, self.now, self.trouble = self.now, snapshot, ""

    @property
    def lines(self) -> list[Line]:
        """The queries in their order."""
        if self.now is None:
            return []
        found = [_line(row, self.before, self.now) for row in self.now.rows.values()]
        return sorted(found, key=ORDERS[self.order][1])

    def move(self, by: int) -> None:
        """Select the query this many lines below."""
        names = [line.row.name for line in self.lines]
        if names:
            place = names.index(self.selected) if self.selected in names else 0
            self.selected = names[max(0, min(len(names) - 1, place + by))]


def _line(row: Row, before: Snapshot | None, now: Snapshot) -> Line:
    earlier = None if before is None else before.rows.get(row.name)
    seconds = 0.0 if before is None else now.at_s - before.at_s
    if earlier is None or seconds <= 0:
        return Line(row, None, None)
    # A query that started from scratch counts from 0 again.
    rates = [max(0.0, after - first) / seconds for first, after in (
        (earlier.read_rows, row.read_rows), (earlier.emitted_rows, row.emitted_rows),
    )]  # fmt: skip
    return Line(row, rates[0], rates[1])


def cells_of(line: Line) -> tuple[str, ...]:
    """Return the texts of a line."""
    row = line.row
    batch = "-" if row.batch_s is None else f"{row.batch_s * 1000:,.0f}ms"
    commit = "-" if row.commit_age_s is None else length(int(row.commit_age_s) * 1000)
    return (
        row.name, row.state, _number(line.read_per_s), _number(line.emitted_per_s), _number(row.lag), _number(row.waiting),
        _number(row.counted), batch, commit, event_time(row.stream_time_ms),
    )  # fmt: skip


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if value >= size * 10:
            return f"{value / size:,.1f}{unit}"
    return f"{value:,.0f}"


def frame(view: View, width: int, height: int) -> list[tuple[str, str]]:
    """Return the screen as fragments of style and text."""
    lines = view.lines
    texts = [cells_of(line) for line in lines]
    widths = [max(len(head), *(len(text[place]) for text in texts), 0) for place, head in enumerate(HEAD)]
    detail = list(view.detail)[: max(0, height // 3)]
    room = max(1, height - 4 - len(detail) - bool(detail))
    first = _first_shown([line.row.name for line in lines], view.selected, room)
    pieces = [*_head(view, lines, width), ("class:head", _joined(HEAD, widths, width)), ("", "\n")]
    for line, text in list(zip(lines, texts, strict=True))[first : first + room]:
        style = _STYLES.get(line.row.state, "")
        is_selected = line.row.name == (view.selected or lines[0].row.name)
        pieces += [(f"{style} class:selected" if is_selected else style, _joined(text, widths, width)), ("", "\n")]
    pieces += [("", "\n")] * max(0, room - len(lines))
    if detail:
        pieces.append(("class:quiet", "─" * width + "\n"))
        for name, value in detail:
            pieces += [("class:head", f"{name}: "), ("", value[: max(0, width - len(name) - 2)]), ("", "\n")]
    keys = "  ".join(f"{key} {words}" for key, (words, _) in ORDERS.items())
    pieces.append(("class:keys", f" ↑↓ select   by: {keys}   space holds   q leaves"[:width]))
    return pieces


def _head(view: View, lines: Sequence[Line], width: int) -> list[tuple[str, str]]:
    states = Counter(line.row.state for line in lines)
    counts = ", ".join(f"{states[state]} {state}" for state in ATTENTION if states[state]) or "no queries yet"
    left_out = view.now.left_out if view.now is not None else 0
    more = f", {left_out} more are not shown" if left_out else ""
    held = "   held" if view.is_held else ""
    title = f"slackwater top   {view.service}   {counts}{more}   by {ORDERS[view.order][0]}{held}"
    second = view.trouble[:width] if view.trouble else ""
    return [("class:title", title[:width].ljust(width)), ("", "\n"), ("class:failed", second), ("", "\n")]


def _joined(cells: Sequence[str], widths: Sequence[int], width: int) -> str:
    parts = [
        cell.rjust(wide) if place in _NUMBERS else cell.ljust(wide)
        for place, (cell, wide) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(parts)[:width].ljust(width)


def _first_shown(names: Sequence[str], selected: str | None, room: int) -> int:
    """Return the first visible line, so that the selected line is visible."""
    place = names.index(selected) if selected in names else 0
    return max(0, min(place - room // 2, len(names) - room))
