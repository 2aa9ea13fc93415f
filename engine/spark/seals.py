"""Checksums of what a checkpoint says in JSON: one flipped digit of a position or of a number of tasks would give wrong rows."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

SEAL = "crc"


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value with the checksum of what else is in it."""
    return {**value, SEAL: _checksum(value)}


def is_whole(value: Mapping[str, Any]) -> bool:
    """Whether a value is as it was sealed; of one without a seal, from an earlier version, nothing can be said."""
    return SEAL not in value or value[SEAL] == _checksum(value)


def _checksum(value: Mapping[str, Any]) -> int:
    content = {name: each for name, each in value.items() if name != SEAL}
    return zlib.crc32(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
