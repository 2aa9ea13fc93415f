"""What was most likely meant by a name that is none."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from engine.expressions.limits import MAX_LOOKED_AT_CHARS, MAX_NAMES_LOOKED_AT

MAX_LISTED = 20
"""Names that a message lists where none is near."""


def meant(given: str, known: Iterable[str]) -> str | None:
    """Return the known name that a given one looks most like; None where none is near, or to look would take long.

    >>> meant("windw", ["window", "where"]), meant("desired_state", ["state"]), meant("x", ["window"])
    ('window', 'state', None)
    """
    names = {name.lower(): name for name in known}
    if len(names) > MAX_NAMES_LOOKED_AT or len(given) > MAX_LOOKED_AT_CHARS:
        return None
    near = difflib.get_close_matches(given.lower(), names, n=1)
    if near:
        return names[near[0]]
    parts = [name for name in names if len(name) > 3 and (name in given.lower() or (len(given) > 3 and given.lower() in name))]
    return names[max(parts, key=len)] if parts else None


def hint(given: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: what was meant, else what there is."""
    names = list(known)
    near = meant(given, names)
    if near is not None:
        return f"; did you mean {near}?"
    if not names:
        return ""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"; there are {', '.join(names[:MAX_LISTED])}{more}" if len(names) > 1 else f"; there is {names[0]}"
