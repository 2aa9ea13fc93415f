"""Ids of segments: when one was written, something random, and the CRC-32 of what it holds.

``<seconds since 1970, 12 digits>-<8 hex digits>-<checksum>``.
"""

from __future__ import annotations

import secrets
import time
import zlib
from typing import Final

_CHECKSUM_AT: Final = len("000000000000-00000000-")


def new_id(content: bytes | memoryview) -> str:
    """Return an id for a segment that nobody has used."""
    return f"{int(time.time()):012d}-{secrets.token_hex(4)}-{zlib.crc32(content):08x}"


def checksum_of(segment_id: str) -> str:
    """Return the checksum that an id says."""
    return segment_id[_CHECKSUM_AT:]
