"""Output of commands: tables for people, JSON for programs; and the forms of numbers, times and names in both."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from io import StringIO
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from slackwater.parameters import json_text

WIDE: Final = 100_000
"""Width of a table in a file or a pipe: nothing is cut there."""

_GAP: Final = 2
"""Blanks between two columns."""

_NARROWEST: Final = 20
"""Minimum width of a column in a terminal that is far too narrow: a time fits; lines may be longer than the terminal."""

STYLES: Final[Mapping[str, str]] = {
    "running": "green", "starting": "yellow", "stopping": "yellow", "backoff": "yellow", "failed": "bold red", "paused": "cyan",
    "stopped": "dim",
}  # fmt: skip


_HARMLESS: Final = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
"""Control characters of terminals, and the signs printed instead."""


class PlainConsole(Console):
    """A console that prints no control characters: data of others could have an escape sequence that rewrites the screen."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See ``Console``."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else text.translate(_HARMLESS), style, control)


class Output:
    """Standard output and standard error of commands."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.out = PlainConsole(highlight=False)
        self.err = PlainConsole(stderr=True, highlight=False)

    @property
    def is_terminal(self) -> bool:
        """Whether standard output is a terminal."""
        return self.out.is_terminal

    def json(self, value: Any) -> None:
        """Print a value as JSON."""
        sys.stdout.write(json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n")

    def line(self, value: Any) -> None:
        """Print a value as one line of JSON, at once."""
        sys.stdout.write(json_text(plain(value)) + "\n")
        sys.stdout.flush()

    def say(self, text: str | Text, style: str | None = None) -> None:
        """Print a sentence; with ``--json`` nothing."""
        if not self.as_json:
            self.out.print(Text(text, style=style or "") if isinstance(text, str) else text, soft_wrap=True)

    def note(self, text: str, style: str | None = "dim") -> None:
        """Print a remark to stderr, beside the answer."""
        self.err.print(Text(text, style=style or ""), soft_wrap=True)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "") -> None:
        """Print rows in columns, as wide as the terminal; in a pipe nothing is cut.

        Args:
            head: names of the columns.
            rows: cells; a word that is a state has its colour, a ``Text`` its own.
            empty: printed if there are no rows.
        """
        listed = list(rows)
        if not listed:
            if empty:
                self.note(empty)
            return
        self.out.print(
            columns(head, listed, self.out.width if self.is_terminal else WIDE, is_coloured=self.is_terminal), soft_wrap=True
        )

    def facts(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Print names and values below each other, without empty values."""
        listed = [(name, value) for name, value in pairs if value not in (None, "", [], {}, ())]
        width = max((len(name) for name, _ in listed), default=0)
        for name, value in listed:
            first, *rest = (value.plain if isinstance(value, Text) else str(value)).split("\n")
            line = Text(f"{name.ljust(width)}  ", style="bold" if self.is_terminal else "")
            self.out.print(line + Text(first, style=STYLES.get(first.partition(" ")[0], "not bold")), soft_wrap=True)
            for further in rest:
                self.out.print(Text(" " * (width + 2) + further), soft_wrap=True)


def columns(
    head: Sequence[str], rows: Sequence[Sequence[Any]], width: int, *, is_coloured: bool, right: Set[int] = frozenset()
) -> Text:
    """Return rows in columns.

    Args:
        head: names of the columns.
        rows: cells.
        width: of the terminal. If rows are wider, texts of the widest columns continue on the next lines; short columns stay whole.
        is_coloured: whether to print colours.
        right: indexes of columns to align right, as columns of numbers are.
    """
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([cell_len(name), *(_width(row[place]) for row in cells)]) for place, name in enumerate(head)]
    widest = _widest(widths, width - _GAP * (len(head) - 1))
    for place, name in enumerate(head):
        is_number = place in right or all(isinstance(row[place], int | float) or row[place] is None for row in rows)
        table.add_column(
            Text(name), justify="right" if is_number else "left", overflow="fold", min_width=min(widths[place], widest),
            max_width=widest,
        )  # fmt: skip
    for row in cells:
        table.add_row(*row)
    console = PlainConsole(
        file=StringIO(),
        width=max(width, sum(min(each, widest) for each in widths) + _GAP * len(head)),
        force_terminal=is_coloured,
        highlight=False,
        color_system="standard" if is_coloured else None,
    )
    with console.capture() as captured:
        console.print(table)
    lines = [Text.from_ansi(line) for line in captured.get().splitlines()]
    for line in lines:
        line.rstrip()
    return Text("\n").join(lines)


def _width(cell: Text) -> int:
    return max(map(cell_len, cell.plain.split("\n")))


def _widest(widths: Sequence[int], room: int) -> int:
    """Return the maximum width of a column so that all columns fit into the room; at least ``_NARROWEST``."""
    left, columns_left = room, len(widths)
    for each in sorted(widths):
        if each * columns_left > left:
            return max(_NARROWEST, left // columns_left)
        left -= each
        columns_left -= 1
    return max(widths, default=_NARROWEST)


def _cell(value: Any) -> Text:
    if isinstance(value, Text):
        value.plain = value.plain.translate(_HARMLESS)  # before columns are measured
        return value
    text = shown(value).translate(_HARMLESS)
    return Text(text, style=STYLES.get(text, ""))


def shown(value: Any) -> str:
    """Return a value in a form for people."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        case dict() | list() | tuple():
            return json_text(value)
    return str(value)


def event_time(ms: int | None) -> str:
    """Return an event time; ``-`` if there is none."""
    if ms is None:
        return "-"
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{ms % 1000:03d}Z" if ms % 1000 else "Z")


_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))


def length(ms: int | None) -> str:
    """Return a duration in its two greatest units; ``-`` if there is none."""
    if ms is None:
        return "-"
    parts, rest = [], ms
    for unit, size in _UNITS:
        if rest >= size:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return " ".join(parts[:2]) or (f"{rest}ms" if rest else "0s")


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """Return the time since a moment."""
    if moment is None:
        return "-"
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    return length(max(0, int(seconds)) * 1000)


def plain(value: Any) -> Any:
    """Return answers of the client as JSON values."""
    raw = getattr(value, "raw", None)
    if isinstance(raw, dict):
        return raw
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
