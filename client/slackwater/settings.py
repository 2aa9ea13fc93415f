"""Defaults of the client."""

from __future__ import annotations

from typing import Final

URL_VARIABLE: Final = "SLACKWATER_URL"
API_KEY_VARIABLE: Final = "SLACKWATER_API_KEY"
CONTEXT_VARIABLE: Final = "SLACKWATER_CONTEXT"
VARIABLES: Final = (URL_VARIABLE, API_KEY_VARIABLE, CONTEXT_VARIABLE)
"""Environment variables of the client and its command line; the service's settings have other names."""

DEFAULT_URL: Final = "http://127.0.0.1:8080"
TIMEOUT_SECONDS: Final = 90.0
"""Longer than the longest poll of the service (60 s)."""

LOOPBACK: Final = ("all://localhost", "all://127.0.0.1", "all://[::1]")
"""Hosts for which no proxy of the environment is used: it would receive the key, and reach another machine's loopback."""


def authorization(key: str) -> str:
    """Return the header with a key.

    Raises:
        ValueError: the key is invalid. The message does not repeat it, because the fault is often in the text around it.
    """
    if not key.isascii() or not key.isprintable() or key != key.strip():
        raise ValueError("the API key has spaces around it, line ends, or characters beyond ASCII, and can be none")
    return f"Bearer {key}"
