"""Whether a query's work is so large that other queries should not wait for it. Pure."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, NamedTuple

HEAVY_ROWS: Final = 10_000
"""A batch of this many records, half of a shared slot's bound, is work for a slot of its own."""

WINDOW_S: Final = 10.0

HEAVY_SHARE: Final = 0.15
"""Share of one core over the last ``WINDOW_S``: above it a query is heavy."""

LIGHT_SHARE: Final = 0.05
"""Share of one core: below it for ``LIGHT_AFTER_S``, and without large batches, a query is light again."""

LIGHT_AFTER_S: Final = 30.0

HEAVY_WALL_SHARE: Final = 0.3
"""Share of the last ``WINDOW_S``: above it a query is heavy whatever CPU it takes, because the other queries of its slot wait a third of their
time for it. A Python function works, or waits, in its own process. Twice ``HEAVY_SHARE``: on a busy machine a batch takes longer than its CPU.
One run beside a function that sleeps 1 s a batch: a light query had its result after up to 1,133 ms until the other query was moved out. Then
it took 112 ms in the median and up to 179 (106 and 150 beside a function that does not sleep).
The shares at which a move begins to pay are not measured."""

LIGHT_WALL_SHARE: Final = 0.1
"""To be light again, a query must also be below this share, which relates to ``HEAVY_WALL_SHARE`` as the shares of CPU do."""


class _Batch(NamedTuple):
    """A batch: its end (monotonic seconds), its records, its CPU time of one core, its time in the stream."""

    at_s: float
    rows: int
    work_ms: int
    wall_ms: int


class Weight:
    """A query's recent work. A heavy query is light again only after some time of little work.

    Commits and the slot manager call it in different threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: deque[_Batch] = deque()
        self._is_heavy = False
        self._light_since: float | None = None

    def after(self, rows: int, work_ms: int, now_s: float, *, wall_ms: int = 0, is_full: bool = False) -> bool:
        """Record a batch; return whether the query is heavy.

        Args:
            rows: its records.
            work_ms: its CPU time of one core.
            now_s: monotonic seconds.
            wall_ms: its time in the stream.
            is_full: its bound left records unread. The records of such a batch depend on how its feeds are cut: a megabyte of a file
                is read or not.
        """
        with self._lock:
            self._done.append(_Batch(now_s, rows, work_ms, wall_ms))
            share, _ = self._measured(now_s)
            wall_share = sum(each.wall_ms for each in self._done) / 1_000 / WINDOW_S
            if is_full or rows >= HEAVY_ROWS or share > HEAVY_SHARE or wall_share > HEAVY_WALL_SHARE:
                self._is_heavy, self._light_since = True, None
            elif share > LIGHT_SHARE or wall_share > LIGHT_WALL_SHARE:
                self._light_since = None
            elif self._is_heavy:
                self._light_since = now_s if self._light_since is None else self._light_since
                self._is_heavy = now_s - self._light_since < LIGHT_AFTER_S
            return self._is_heavy

    @property
    def is_heavy(self) -> bool:
        """The result after the last batch."""
        return self._is_heavy

    def measured(self, now_s: float) -> tuple[float, int]:
        """Return the share of a core over the last ``WINDOW_S``, and the records of the largest batch in that time."""
        with self._lock:
            return self._measured(now_s)

    def _measured(self, now_s: float) -> tuple[float, int]:
        while self._done and self._done[0].at_s < now_s - WINDOW_S:
            self._done.popleft()
        return sum(each.work_ms for each in self._done) / 1_000 / WINDOW_S, max((each.rows for each in self._done), default=0)
