"""Colours and texts of all pictures.

Colours with a meaning are visible on white and on black; everything else has the notebook's own text colour (``currentColor``).
"""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import Final

WATER: Final = "#2f7fc4"
"""Waiting: event time that is not final."""

LAND: Final = "#3a9a6b"
"""Final results."""

LATE: Final = "#c8553d"
"""Late records."""

CLOCK: Final = "#b8860b"
"""Stream time."""

FONT: Final = "font-family:system-ui,sans-serif;font-size:12px"


def shown(value: object) -> str:
    """Return a value as escaped text for HTML; None is empty."""
    if value is None:
        return '<span style="opacity:.5">null</span>'
    return escape(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))


def moment_text(ms: int | float) -> str:
    """Return an event time in a form for people, in UTC."""
    at = datetime.fromtimestamp(ms / 1000, UTC)
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return text if at.microsecond == 0 else f"{text}.{at.microsecond // 1000:03d}"


def span_text(ms: int | float) -> str:
    """Return a duration in its largest fitting unit."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.0f} ms"


def range_text(least: int, most: int) -> str:
    """Return a number that is known by its bounds."""
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def svg(width: int, height: int, title: str, body: str) -> str:
    """Return a picture that shrinks to its place and has a name for screen readers."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title, quote=True)}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" style="max-width:100%;height:auto;color:inherit;{FONT}" fill="currentColor">'
        f"<title>{escape(title)}</title>{body}</svg>"
    )


def label(x: float, y: float, text: str, *, anchor: str = "start", colour: str = "currentColor", size: int = 11) -> str:
    """Return a text in a picture."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{escape(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, *, colour: str = "currentColor", more: str = "") -> str:
    """Return a line in a picture."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" {more}/>'


def box(x: float, y: float, width: float, height: float, *, colour: str, opacity: float = 1.0, title: str = "") -> str:
    """Return a rectangle in a picture, with a tooltip."""
    named = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" fill="{colour}" '
        f'fill-opacity="{opacity:g}">{named}</rect>'
    )
