"""Places in a script: by line and column, as people look for them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

from engine.sql.lexing.splitting import Filled
from engine.sql.tree import Span

_SHOWN_CHARS: Final = 100
"""Of a line: longer ones are shown in part, around the place."""


@dataclass(frozen=True, slots=True)
class TextPosition:
    """A place in a script: line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Passage:
    """Part of a script.

    Attributes:
        place: where it begins.
        line: of the script, as it is written, in which it begins.
        length: of its characters in this line; 0 where something is missing.
    """

    place: TextPosition
    line: str
    length: int

    @property
    def marked(self) -> str:
        """The line with a mark below the passage; of a long line the part around it."""
        at = self.place.column - 1
        begin = max(0, min(at - _SHOWN_CHARS // 2, len(self.line) - _SHOWN_CHARS))
        shown = self.line[begin : begin + _SHOWN_CHARS].replace("\t", " ")
        left = "…" if begin else ""
        right = "…" if begin + _SHOWN_CHARS < len(self.line) else ""
        mark = "^" * max(1, min(self.length, begin + _SHOWN_CHARS - at))
        return f"{left}{shown}{right}\n{' ' * (len(left) + at - begin)}{mark}"


class Lines:
    """The lines of a script."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def place(self, at: int) -> TextPosition:
        """Return where a character stands."""
        line = bisect_right(self._starts, at)
        return TextPosition(line, at - self._starts[line - 1] + 1)

    def passage(self, start: int, end: int) -> Passage:
        """Return the passage from one character to before another one."""
        place = self.place(start)
        begin = self._starts[place.line - 1]
        newline = self._text.find("\n", begin)
        stop = len(self._text) if newline < 0 else newline
        return Passage(place, self._text[begin:stop].rstrip("\r"), max(0, min(end, stop) - start))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the text of a statement comes from: its script, and which variables got their values in it."""

    lines: Lines = field(repr=False)
    start: int
    filled: Filled

    def passage(self, span: Span) -> Passage:
        """Return the passage of the script that part of the statement's text comes from."""
        return self.lines.passage(*(self.start + self.filled.written(at) for at in span))
