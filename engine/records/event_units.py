"""Event times that are whole numbers: their units since 1970, and their conversion to milliseconds."""

from __future__ import annotations

from typing import Final

import polars as pl

from engine.definition.relations import EventTimeUnit

_MS_PER_SECOND = 1_000
_PER_MS: Final[dict[EventTimeUnit, int]] = {"us": 1_000, "ns": 1_000_000}

_MOST_SECONDS = ((1 << 63) - 1) // _MS_PER_SECOND
"""More would not fit into 64 bits as milliseconds. It is far after the year 9999 (T8), so values cut to it stay out of range."""


def in_ms(counted: pl.Series, unit: EventTimeUnit) -> pl.Series:
    """Return whole numbers (64 bits) in milliseconds, rounded down: times before 1970 stay before it."""
    if unit == "s":
        return counted.clip(-_MOST_SECONDS, _MOST_SECONDS) * _MS_PER_SECOND
    return counted if unit == "ms" else counted // _PER_MS[unit]
