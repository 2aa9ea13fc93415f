"""Java's patterns of dates and times (``yyyy-MM-dd HH:mm:ss``), as strptime writes them."""

from __future__ import annotations

import re
from typing import Final

from engine.sql.tree import Node
from engine.statements.context.faults import StatementRefused, StatementUnsupported

_LETTERS: Final = {
    "yyyy": "%Y", "uuuu": "%Y", "y": "%Y", "yy": "%y", "MM": "%m", "M": "%m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "d": "%d", "DDD": "%j",
    "HH": "%H", "H": "%H", "hh": "%I", "h": "%I", "mm": "%M", "m": "%M", "ss": "%S", "s": "%S", "SSS": "%3f", "SSSSSS": "%6f",
    "SSSSSSSSS": "%9f", "a": "%p", "EEE": "%a", "EEEE": "%A", "X": "%#z", "XX": "%z", "XXX": "%:z", "Z": "%z", "ZZZZZ": "%:z",
}  # fmt: skip
_MEANINGLESS: Final = "bfijlortCIJPRTU"
_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)


def strptime_of(pattern: str, at: Node | None) -> str:
    """Return a pattern of Java's DateTimeFormatter as strptime writes it.

    Raises:
        StatementRefused: a letter that has no meaning there.
        StatementUnsupported: one that has none here.
    """
    found: list[str] = []
    for part in _PART.finditer(pattern):
        if part[1] is not None:
            found.append(part[1].replace("''", "'").replace("%", "%%") or "'")
        elif part[2] is None:
            found.append("%%" if part[0] == "%" else part[0])
        elif part[2] == "S" and part[0] not in _LETTERS and found[-1:] == ["."]:
            found[-1] = "%.f"
        elif part[0] in _LETTERS:
            found.append(_LETTERS[part[0]])
        elif part[2] in _MEANINGLESS:
            raise StatementRefused(
                "pattern_malformed", f"{part[2]} means nothing in the pattern {pattern!r}: put texts into quotes, as in 'T'", at
            )
        else:
            raise StatementUnsupported("pattern_not_supported", f"{part[0]} of the pattern {pattern!r} is not supported", at)
    return "".join(found)
