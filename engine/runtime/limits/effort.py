"""What a query's time goes into: the measured parts of its batches of the last seconds. Pure.

``reading``: its records are read, judged and shared out. ``tasks``: its tasks work. ``commit``: its results are written. ``round``: what else
its carrier does before its next batch can begin, its neighbours' batches and what Spark does for each batch. What is left of the time it waits
for input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

WINDOW_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class BatchEffort:
    """Milliseconds of one batch.

    Attributes:
        part_ms: reading and the tasks' work one after the other, where one worker has done both; None: several have.
        tasks_ms: the tasks' work, one after the other or side by side as it was done.
        commit_ms: until its results were committed.
        busiest: share of its busiest task in the work of all; None where fewer than two had work.
    """

    part_ms: int | None
    tasks_ms: int
    commit_ms: int
    busiest: float | None


class Effort:
    """The batches of the last ``WINDOW_S`` of one launch.

    Args:
        now_s: monotonic seconds.
    """

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._done: deque[tuple[float, dict[str, float], float | None]] = deque()
        self._newest: tuple[float, BatchEffort] | None = None

    def after(self, batch: BatchEffort, phases_ms: Mapping[str, int], now_s: float) -> None:
        """Take note of a batch.

        Args:
            batch: what it took.
            phases_ms: what Spark tells of the round that its batch before was in (``engine.spark.streams.reports``); empty without one.
            now_s: monotonic seconds.
        """
        if self._newest is not None:
            ended_s, before = self._newest
            self._done.append((ended_s, _parts(before, phases_ms), before.busiest))
        self._newest = now_s, batch

    def measured(self, now_s: float) -> dict[str, Any]:
        """Return each part's share of the time, and ``busiest_task``: its share in all tasks' work, absent where that is not known."""
        while self._done and self._done[0][0] < now_s - WINDOW_S:
            self._done.popleft()
        window_ms = max(min(WINDOW_S, now_s - self._began_s), 0.001) * 1_000
        shares: dict[str, Any] = {
            name: round(min(sum(parts[name] for _, parts, _ in self._done) / window_ms, 1.0), 3) for name in PARTS
        }
        weights = [(parts["tasks"], busiest) for _, parts, busiest in self._done if busiest is not None]
        if (total := sum(weight for weight, _ in weights)) > 0:
            shares["busiest_task"] = round(sum(weight * busiest for weight, busiest in weights) / total, 3)
        return shares


PARTS: Final = ("reading", "tasks", "commit", "round")


def _parts(batch: BatchEffort, phases_ms: Mapping[str, int]) -> dict[str, float]:
    in_workers_ms = batch.part_ms
    if in_workers_ms is None:
        in_workers_ms = max(phases_ms.get("spark_add_batch", 0) - batch.commit_ms, batch.tasks_ms)
    own_ms = in_workers_ms + batch.commit_ms
    return {
        "reading": max(in_workers_ms - batch.tasks_ms, 0),
        "tasks": batch.tasks_ms,
        "commit": batch.commit_ms,
        "round": max(phases_ms.get("spark_trigger", 0) - own_ms, 0),
    }
