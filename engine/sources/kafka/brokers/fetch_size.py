"""How many bytes one answer of a broker may hold. Pure: knows no clients and reads no clock.

An answer must come within the client's timeout, so a slow link gets smaller requests. A slow link and an outage look the same while they
last. So requests shrink after each failure, and grow again after a time of success. After failed growth the next attempt comes later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_BYTES: Final = 4 << 20
LEAST_BYTES: Final = 64 << 10
STEP: Final = 8
"""A failure divides the size by this factor, growth multiplies it."""

FIRST_GROWTH_S: Final = 10.0
"""After an outage, two growths restore the full size."""

LONGEST_GROWTH_S: Final = 600.0
"""On a link that is always slow, a failed growth costs about 20 s of reading."""


@dataclass(slots=True)
class FetchSize:
    """The size for new clients of one topic. Times are monotonic seconds.

    Attributes:
        size_bytes: of one answer.
        changed_at_s: time of the last change; None: never.
        growth_s: time without a failure after which it grows.
        has_grown: the last change was a growth.
    """

    size_bytes: int = MOST_BYTES
    changed_at_s: float | None = None
    growth_s: float = FIRST_GROWTH_S
    has_grown: bool = False

    def now(self, now_s: float) -> int:
        """Return the size to fetch with, after growing it if growth is due."""
        if self.changed_at_s is None or now_s - self.changed_at_s < self.growth_s:
            return self.size_bytes
        if self.has_grown:
            self.growth_s = FIRST_GROWTH_S  # the size before this one worked
        if self.size_bytes == MOST_BYTES:
            self.changed_at_s, self.has_grown = None, False
            return self.size_bytes
        self.size_bytes, self.changed_at_s, self.has_grown = self.size_bytes * STEP, now_s, True
        return self.size_bytes

    def failed(self, used_bytes: int, now_s: float) -> None:
        """Record that a client with this size got no answer."""
        if used_bytes > self.size_bytes:
            return  # a client from before the last failure
        if self.has_grown:
            self.growth_s = min(2 * self.growth_s, LONGEST_GROWTH_S)
        self.size_bytes = max(used_bytes // STEP, LEAST_BYTES)
        self.changed_at_s, self.has_grown = now_s, False
