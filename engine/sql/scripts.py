"""Reads scripts: statements one after another, with all that is wrong in any of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.sql.faults import SyntaxFault
from engine.sql.lexing.cursor import Bounds
from engine.sql.lexing.places import Lines, Origin, Passage, TextPosition
from engine.sql.lexing.splitting import Filled, cuts_of, filled
from engine.sql.statement_tree import Define, Statement
from engine.sql.statements.statements import STATEMENT_BOUNDS, parse_statement
from engine.sql.tree import Span

MAX_SCRIPT_CHARS: Final = 1_000_000
"""Read in a second or two, while somebody waits. Also with the values of its variables."""

MAX_STATEMENT_CHARS: Final = 100_000
"""Also with the values of its variables."""

MAX_STATEMENTS: Final = 1_000
"""Of one script."""

MAX_FAULTS: Final = 20
"""That are reported of one script; behind them reading ends."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement of a script.

    Attributes:
        text: as it was written, with the values of its variables and without a semicolon. Spans of the tree are places in it.
        origin: in the script.
    """

    tree: Statement
    text: str
    origin: Origin = field(compare=False, repr=False)

    @property
    def place(self) -> TextPosition:
        return self.passage((0, 0)).place

    def passage(self, span: Span | None = None) -> Passage:
        """Return where part of its text stands in the script; None is all of it."""
        return self.origin.passage(span or (0, len(self.text)))


@dataclass(frozen=True, slots=True)
class ScriptFault:
    """What is wrong with a statement of a script.

    Attributes:
        text: of the statement, with the values of its variables; the fault's places are in it.
        passage: of the script, that does not fit.
    """

    fault: SyntaxFault
    text: str
    passage: Passage

    @property
    def place(self) -> TextPosition:
        return self.passage.place

    @property
    def line(self) -> str:
        """The line of the script, as it is written."""
        return self.passage.line

    @property
    def length(self) -> int:
        """Characters of this line that do not fit; 0 where something is missing."""
        return self.passage.length


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
    lines = Lines(text)
    known = {name.upper(): value for name, value in (variables or {}).items()}
    if len(text) > MAX_SCRIPT_CHARS:
        return Script((), (ScriptFault(SyntaxFault("script_too_long", 0, 0), "", lines.passage(0, 0)),), known)
    statements: list[Parsed] = []
    faults: list[ScriptFault] = []
    size = 0
    for count, cut in enumerate(cuts_of(text)):
        written = text[cut.start : cut.end]
        origin = Origin(lines, cut.start, Filled(written))
        try:
            if count == MAX_STATEMENTS:
                raise SyntaxFault("too_many", 0, 0)
            if len(written) > MAX_STATEMENT_CHARS:
                raise SyntaxFault("too_long", 0, 0)
            origin = Origin(lines, cut.start, filled(written, known, MAX_STATEMENT_CHARS))
            size += len(origin.filled.text)
            if size > MAX_SCRIPT_CHARS:
                raise SyntaxFault("script_too_long", 0, 0)
            tree = parse_statement(origin.filled.text, bounds)
        except SyntaxFault as fault:
            found = with_other_typos(fault, origin.filled.text, bounds)[: MAX_FAULTS - len(faults)]
            faults += (ScriptFault(each, origin.filled.text, origin.passage((each.start, each.end))) for each in found)
            if len(faults) == MAX_FAULTS or fault.kind in ("too_many", "script_too_long"):
                break
            continue
        statements.append(Parsed(tree, origin.filled.text, origin))
        if isinstance(tree, Define):
            _define(tree, known)
    return Script(tuple(statements), tuple(faults), known)


def _define(tree: Define, known: dict[str, str]) -> None:
    if tree.value is None:
        known.pop(tree.name.text.upper(), None)
    else:
        known[tree.name.text.upper()] = tree.value.value


_MOST: Final = 5
"""Misspelt words that are reported of one statement; each takes another reading."""


def with_other_typos(fault: SyntaxFault, text: str, bounds: Bounds) -> list[SyntaxFault]:
    """Return a fault, and where it is a misspelt word the further misspelt words of the statement.

    What is wrong in another way behind a misspelt word is not reported: it may be a consequence.
    """
    found, repaired = [fault], text
    moves: list[tuple[int, int]] = []
    latest, last = fault, -1
    while latest.misspelt is not None and len(found) < _MOST:
        at = _place(latest, repaired)
        if at is None or at == last:
            break
        last = at
        written, meant = latest.misspelt.written, latest.misspelt.meant
        repaired = f"{repaired[:at]}{meant}{repaired[at + len(written) :]}"
        moves.append((at + len(meant), len(meant) - len(written)))
        try:
            parse_statement(repaired, bounds)
        except SyntaxFault as further:
            latest = further
        else:
            break
        if latest.misspelt is not None and _place(latest, repaired) != at:
            found.append(_moved_back(latest, moves))
    return found


def _place(fault: SyntaxFault, text: str) -> int | None:
    """Return where the misspelt word of a fault stands: in it, or right before it."""
    if fault.misspelt is None:
        return None
    word = re.compile(rf"\b{re.escape(fault.misspelt.written)}\b", re.IGNORECASE)
    return max((match.start() for match in word.finditer(text, 0, max(fault.end, fault.start))), default=None)


def _moved_back(fault: SyntaxFault, moves: list[tuple[int, int]]) -> SyntaxFault:
    """Return a fault of the repaired text with the places of the written one."""
    start, end = fault.start, fault.end
    for behind, by in reversed(moves):
        start, end = (at - by if at >= behind else at for at in (start, end))
    return SyntaxFault(fault.kind, start, end, fault.expected, fault.misspelt)
