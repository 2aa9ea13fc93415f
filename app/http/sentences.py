"""Times and durations in a form for people."""

from __future__ import annotations

from app.http.values import MAX_INSTANT_MS, instant
from engine.expressions.durations import format_duration


def shown(ms: int | None) -> str:
    """Return an event time as RFC 3339, with milliseconds only if they are not 0."""
    if ms is None:
        return "nothing yet"
    if not 0 <= ms <= MAX_INSTANT_MS:
        return f"{ms} ms"
    text = instant(ms).isoformat(timespec="milliseconds" if ms % 1000 else "seconds")
    return text.replace("+00:00", "Z")


def lasting(ms: int) -> str:
    """Return a duration in the form of definitions."""
    return format_duration(ms)
