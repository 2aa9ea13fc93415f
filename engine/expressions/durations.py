"""Durations as users write them: ``500ms``, ``10s``, ``5m``, ``2h``, ``1d``, together (``1h30m``), or ISO 8601 (``PT10S``)."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
MAX_MS = 100 * 365 * 86_400_000
"""A century: longer ones are slips, and event times plus durations stay far from the 64-bit limit."""

_PART = re.compile(r"([0-9]+)\s*(ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:[0-9]{1,15}\s*(?:ms|s|m|h|d)\s*)+")
_ISO = re.compile(
    r"P(?!$)(?:(?P<w>[0-9]{1,6})W)?(?:(?P<d>[0-9]{1,6})D)?"
    r"(?:T(?=[0-9])(?:(?P<h>[0-9]{1,9})H)?(?:(?P<m>[0-9]{1,9})M)?(?:(?P<s>[0-9]{1,12}(?:\.[0-9]{1,9})?)S)?)?"
)
"""Without years and months: they have no fixed length."""
_ISO_MS = {"w": 7 * UNITS_MS["d"], **UNITS_MS}
_HINT = "write a duration such as 500ms, 10s, 5m, 2h, 1d or PT10S"


def parse_duration(text: str) -> int:
    """Return the duration in milliseconds.

    Raises:
        ValueError: the text is no duration, or one longer than a century.
    """
    stripped = text.strip()
    if _WHOLE.fullmatch(stripped):
        total = sum(int(count) * UNITS_MS[unit] for count, unit in _PART.findall(stripped))
    elif iso := _ISO.fullmatch(stripped):
        exact = sum(Decimal(count) * _ISO_MS[unit] for unit, count in iso.groupdict().items() if count is not None)
        total = int(exact)
        if total != exact:
            raise ValueError(f"{text!r} is no duration: time is counted in whole milliseconds")
    else:
        raise ValueError(f"{text[:40]!r} is no duration; {_HINT}")
    if total > MAX_MS:
        raise ValueError(f"{text[:40]!r} is no duration: the longest is 100 years")
    return total


def format_duration(ms: int) -> str:
    """Return the canonical text: the largest unit that divides it (``90s``, ``2h``), ``0s`` for nothing."""
    if ms == 0:
        return "0s"
    unit = next(unit for unit, size in UNITS_MS.items() if ms % size == 0)
    return f"{ms // UNITS_MS[unit]}{unit}"


def _validated(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(_HINT)  # noqa: TRY004 - pydantic turns ValueError into a problem of the field
    if isinstance(value, int):
        raise ValueError(f"{value} has no unit; {_HINT}")  # noqa: TRY004
    return parse_duration(value)


Duration = Annotated[
    int,
    BeforeValidator(_validated),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {"type": "string", "examples": ["10s", "1h", "PT5M"], "description": "A duration: 500ms, 10s, 5m, 2h, 1d or ISO 8601."}
    ),
]
"""Milliseconds inside, text outside."""
