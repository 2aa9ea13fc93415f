"""What is meant where a caller says nothing."""

from __future__ import annotations

from typing import Final

API_KEY_VARIABLE: Final = "SLACKWATER_API_KEY"
TIMEOUT_SECONDS: Final = 90.0
"""Longer than the longest poll of the service (60 s)."""
