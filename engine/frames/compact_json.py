"""JSON in its shortest form, as packets, manifests and commit rows hold it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
"""Made once: ``json.dumps`` makes one for each value, unless it is asked for blanks."""


def compact(value: Mapping[str, Any]) -> str:
    """Write an object without blanks."""
    return _ENCODER.encode(value)
