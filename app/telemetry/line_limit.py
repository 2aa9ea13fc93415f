"""A bound for log lines that strangers cause: whoever reaches a port could otherwise fill the disk with them. Metrics count everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import structlog

log = structlog.stdlib.get_logger(__name__)

LINES_PER_S: Final = 5
"""Of one event and reason, and one port. Lines of 250 bytes without end are then 110 MB a day."""


class Timer(Protocol):
    """The part of an event loop that is needed."""

    def time(self) -> float:
        """Return monotonic seconds."""

    def call_later(self, delay: float, callback: Callable[[], object], *, context: Context | None = None) -> object:
        """Call something after ``delay`` seconds."""


@dataclass(slots=True)
class _Second:
    """A second of an event and a reason; it begins with its first line."""

    ends_s: float
    lines: int = 0
    left_out: int = 0


class LineLimit:
    """The log lines of one port. It counts the lines beyond a few a second, and one line says how many were left out.

    Args:
        port: what the lines call it.
        timer: None: the running event loop.
    """

    def __init__(self, port: str, timer: Timer | None = None) -> None:
        self._port = port
        self._timer = timer
        self._seconds: dict[tuple[str, str], _Second] = {}

    def admits(self, event: str, reason: str) -> bool:
        """Return whether a line may be written; call it once for each line.

        Args:
            event: of the line.
            reason: one of a few, never a client's own text: each has a bound of its own.
        """
        timer = self._timer or asyncio.get_running_loop()
        now_s = timer.time()
        second = self._seconds.get((event, reason))
        if second is None or now_s >= second.ends_s:
            self._report(event, reason)
            second = self._seconds[event, reason] = _Second(now_s + 1.0)
        if second.lines < LINES_PER_S:
            second.lines += 1
            return True
        if not second.left_out:  # without the context of a request, which has an id of its own
            timer.call_later(second.ends_s - now_s, partial(self._report, event, reason), context=Context())
        second.left_out += 1
        return False

    def _report(self, event: str, reason: str) -> None:
        second = self._seconds.get((event, reason))
        if second is not None and second.left_out:
            log.warning("log_lines_suppressed", port=self._port, of=event, reason=reason, count=second.left_out)
            second.left_out = 0
