"""Misspelt words of one statement: each is read as the word that was meant, so that those behind it show as well."""

from __future__ import annotations

import re
from typing import Final

from engine.sql.bounds import Bounds
from engine.sql.faults import SyntaxFault
from engine.sql.statements.statements import parse_statement

_MOST: Final = 5
"""Misspelt words that are reported of one statement; each takes another reading."""


def with_other_typos(fault: SyntaxFault, text: str, bounds: Bounds) -> list[SyntaxFault]:
    """Return a fault, and where it is a misspelt word the further misspelt words of the statement.

    What is wrong in another way behind a misspelt word is not reported: it may be a consequence.

    Args:
        fault: what reading the statement ended with.
        text: the statement.
        bounds: it was read with.
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
