"""CPU seconds and peak memory of a process tree, sampled from outside."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import psutil

SAMPLE_SECONDS = 0.25  # short-lived children that live between two samples are missed; Spark's and Postgres's live longer


class TreeMeter:
    """Sample a process and its descendants while the ``with`` block runs.

    Attributes:
        cpu_seconds: user and system time spent inside the block by every process seen.
        peak_bytes: greatest sum of the unique set sizes, so that shared pages count once per process at most.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peak_bytes = 0

    @property
    def cpu_seconds(self) -> float:
        return sum(last - self._first[pid] for pid, last in self._last.items())

    def __enter__(self) -> Self:
        self._sample(is_first=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._sample(is_first=False)

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._sample(is_first=False)

    def _sample(self, *, is_first: bool) -> None:
        total = 0
        try:
            processes = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in processes:
            try:
                times = process.cpu_times()
                total += process.memory_info().rss - getattr(process.memory_info(), "shared", 0)
            except psutil.Error:
                continue
            spent = times.user + times.system
            self._first.setdefault(process.pid, spent if is_first else 0.0)
            self._last[process.pid] = spent
        self.peak_bytes = max(self.peak_bytes, total)
