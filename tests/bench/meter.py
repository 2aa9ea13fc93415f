"""CPU seconds and peak memory of process trees, sampled from outside, by what the processes do."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import Self

import psutil

from tests.bench.roles import role_of
from tests.bench.sampling import Sampler

SAMPLE_SECONDS = 0.25  # short-lived children that live between two samples are missed; Spark's and Postgres's live longer

Cpu = Mapping[str, float]


class TreeMeter(Sampler):
    """Sample processes and their descendants while the ``with`` block runs.

    Args:
        pids: the roots.

    Attributes:
        before: CPU seconds that the processes had spent when the block began.
        peak_bytes: greatest sum of the unique set sizes, so that shared pages count once per process at most.
    """

    def __init__(self, *pids: int) -> None:
        super().__init__(SAMPLE_SECONDS)
        self._roots = [psutil.Process(pid) for pid in pids]
        self._lock = threading.Lock()
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._roles: dict[int, str] = {}
        self.before = 0.0
        self.peak_bytes = 0

    def cpu(self) -> dict[str, float]:
        """Return user and system seconds since the block began, by role, of every process seen."""
        self.sample()
        spent: defaultdict[str, float] = defaultdict(float)
        with self._lock:
            for pid, last in self._last.items():
                spent[self._roles[pid]] += last - self._first[pid]
        return dict(spent)

    def __enter__(self) -> Self:
        self._sample(is_first=True)
        self.before = sum(self._first.values())
        return super().__enter__()

    def sample(self) -> None:
        """See ``Sampler``."""
        self._sample(is_first=False)

    def _sample(self, *, is_first: bool) -> None:
        with self._lock:
            total = 0
            for process in self._processes():
                try:
                    times = process.cpu_times()
                    total += process.memory_info().rss - getattr(process.memory_info(), "shared", 0)
                    self._roles[process.pid] = role_of(process)
                except psutil.Error:
                    continue
                spent = times.user + times.system
                self._first.setdefault(process.pid, spent if is_first else 0.0)
                self._last[process.pid] = spent
            self.peak_bytes = max(self.peak_bytes, total)

    def _processes(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for root in self._roots:
            try:
                found += [root, *root.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return found
