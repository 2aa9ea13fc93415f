"""What is meant where a caller says nothing."""

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
