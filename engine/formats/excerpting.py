"""How messages show an unreadable payload: text unchanged, other bytes in hexadecimal; bounded."""

from __future__ import annotations

from typing import Final

from engine.records.excerpts import MAX_EXCERPT_CHARS

_SHOWN_BYTES: Final = 256


def excerpt_of_bytes(payload: bytes) -> str:
    """Show a payload."""
    try:
        text = payload[:MAX_EXCERPT_CHARS].decode()
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable():
        return text
    rest = len(payload) - _SHOWN_BYTES
    return payload[:_SHOWN_BYTES].hex() + (f"… and {rest:,} bytes" if rest > 0 else "")
