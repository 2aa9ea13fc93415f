"""Wall time that this process waits for users' Python functions: their own processes do the work, or sleep. Safe for threads.

A worker does one thing for one query at a time. So the time between two calls of ``taken_function_ms`` belongs to one query, whichever of
Polars's threads makes the calls.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_NS_PER_MS: Final = 1_000_000


class FunctionTimes:
    """Time by function. Calls of one function that overlap, in several threads, count once: only one of them is at work."""

    def __init__(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now_ns = now_ns
        os.register_at_fork(after_in_child=self._reset)
        self._reset()

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Count a block as time that is waited for a function."""
        with self._lock:
            self._count(name)
            self._calls[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._count(name)
                self._calls[name] -= 1
                if not self._calls[name]:
                    del self._calls[name], self._counted_to_ns[name]

    def taken_ms(self) -> dict[str, int]:
        """Return by function how many milliseconds were waited for it since this was asked last."""
        with self._lock:
            for name in self._calls:
                self._count(name)
            taken = {name: round(ns / _NS_PER_MS) for name, ns in self._waited_ns.items()}
            self._waited_ns.clear()
        return taken

    def _count(self, name: str) -> None:
        """Add the time since this was done last, if a call of the function is under way."""
        now_ns = self._now_ns()
        if name in self._calls:
            self._waited_ns[name] += now_ns - self._counted_to_ns[name]
        self._counted_to_ns[name] = now_ns

    def _reset(self) -> None:
        """Begin, also in a fork: another thread of the parent may have been at it."""
        self._lock = threading.Lock()
        self._waited_ns: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._counted_to_ns: dict[str, int] = {}


_TIMES: Final = FunctionTimes()
function_time: Final = _TIMES.measured
taken_function_ms: Final = _TIMES.taken_ms
