"""Reads scripts: statements one after another, with all that is wrong in any of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.sql.bounds import Bounds
from engine.sql.faults import SyntaxFault
from engine.sql.splitting import Filled, cuts_of, filled
from engine.sql.statement_tree import Define, Statement
from engine.sql.statements import STATEMENT_BOUNDS, parse_statement

MAX_SCRIPT_CHARS: Final = 1_000_000
"""Read in a second or two, while somebody waits."""

MAX_STATEMENT_CHARS: Final = 100_000
"""Also with the values of its variables."""

MAX_STATEMENTS: Final = 1_000
"""Of one script."""

MAX_FAULTS: Final = 20
"""That are reported of one script; behind them reading ends."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a script: line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement of a script.

    Attributes:
        text: as it was written, with the values of its variables and without a semicolon. Spans of the tree are places in it.
        place: of its first character.
    """

    tree: Statement
    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class ScriptFault:
    """What is wrong with a statement of a script.

    Attributes:
        text: of the statement, with the values of its variables; the fault's places are in it.
        place: in the script.
        line: of the script, as it is written.
        length: characters of this line that do not fit; 0 where something is missing.
    """

    fault: SyntaxFault
    text: str
    place: Place
    line: str
    length: int


@dataclass(frozen=True, slots=True)
class Script:
    """A script that was read.

    Attributes:
        faults: of all statements, in the order of the text; where there are some, ``statements`` holds the others.
        variables: after the script, by name in upper case.
    """

    statements: tuple[Parsed, ...]
    faults: tuple[ScriptFault, ...]
    variables: Mapping[str, str]


def parse_script(text: str, variables: Mapping[str, str] | None = None, bounds: Bounds = STATEMENT_BOUNDS) -> Script:
    """Read a script. DEFINE and UNDEFINE count for the statements behind them.

    Args:
        text: the script.
        variables: the values of ``${name}``; letter case of names does not count.
        bounds: of each statement.
    """
    lines = _Lines(text)
    known = {name.upper(): value for name, value in (variables or {}).items()}
    if len(text) > MAX_SCRIPT_CHARS:
        return Script((), (lines.fault(SyntaxFault("script_too_long", 0, 0), "", 0, Filled("")),), known)
    statements: list[Parsed] = []
    faults: list[ScriptFault] = []
    for count, cut in enumerate(cuts_of(text)):
        written, ready = text[cut.start : cut.end], Filled("")
        try:
            if count == MAX_STATEMENTS:
                raise SyntaxFault("too_many", 0, 0)
            if len(written) > MAX_STATEMENT_CHARS:
                raise SyntaxFault("too_long", 0, 0)
            ready = filled(written, known, MAX_STATEMENT_CHARS)
            tree = parse_statement(ready.text, bounds)
        except SyntaxFault as fault:
            faults.append(lines.fault(fault, written, cut.start, ready))
            if len(faults) == MAX_FAULTS or count == MAX_STATEMENTS:
                break
            continue
        statements.append(Parsed(tree, ready.text, lines.place(cut.start)))
        if isinstance(tree, Define):
            _define(tree, known)
    return Script(tuple(statements), tuple(faults), known)


def _define(tree: Define, known: dict[str, str]) -> None:
    if tree.value is None:
        known.pop(tree.name.text.upper(), None)
    else:
        known[tree.name.text.upper()] = tree.value.value


class _Lines:
    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def place(self, at: int) -> Place:
        line = bisect_right(self._starts, at)
        return Place(line, at - self._starts[line - 1] + 1)

    def fault(self, fault: SyntaxFault, written: str, offset: int, ready: Filled) -> ScriptFault:
        start, end = offset + ready.written(fault.start), offset + ready.written(fault.end)
        place = self.place(start)
        begin = self._starts[place.line - 1]
        newline = self._text.find("\n", begin)
        stop = len(self._text) if newline < 0 else newline
        return ScriptFault(
            fault, ready.text or written, place, self._text[begin:stop].rstrip("\r"), max(0, min(end, stop) - start)
        )
