"""The parts of a query's time: measurements of its batches in the last seconds. Pure.

``reading``: records are read, validated and distributed. ``tasks``: its tasks work. ``commit``: its results are written. ``other_queries``: the
slot's other work before the query's next batch can begin: batches of its neighbours, and Spark's work for each batch. In the rest of the
time the query waits for input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

WINDOW_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class BatchEffort:
    """Milliseconds of one batch.

    Attributes:
        part_ms: reading plus the tasks' work in a shared slot; None: its slot is not shared.
        tasks_ms: the tasks' work, in sequence or in parallel, as it ran.
        commit_ms: until its results were committed.
        busiest: share of its busiest task in the work of all; None if fewer than two had work.
        function_ms: how long its readers and tasks waited for each Python function; a part of ``tasks_ms`` and of reading.
        read_ms: reading, as its readers measured it.
    """

    part_ms: int | None
    tasks_ms: int
    commit_ms: int
    busiest: float | None
    function_ms: Mapping[str, int] = field(default_factory=dict)
    read_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Done:
    """A finished batch.

    Attributes:
        ended_s: its end, in monotonic seconds.
        parts: milliseconds of each of ``PARTS``.
    """

    ended_s: float
    parts: Mapping[str, float]
    batch: BatchEffort

    def within(self, since_s: float) -> float:
        """Return the share of its time after a moment."""
        took_s = sum(self.parts.values()) / 1_000
        after_s = max(self.ended_s - since_s, 0.0)
        return 1.0 if took_s <= after_s else after_s / took_s


class Effort:
    """The batches of one launch in the last ``WINDOW_S``."""

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._done: deque[_Done] = deque()
        self._newest: tuple[float, BatchEffort] | None = None

    def after(self, batch: BatchEffort, phases_ms: Mapping[str, int], now_s: float) -> None:
        """Record a batch.

        Args:
            batch: its times.
            phases_ms: Spark's report on the cycle of the batch before it (``engine.spark.streams.stopping``); empty if there is none.
            now_s: monotonic seconds.
        """
        if self._newest is not None:
            ended_s, before = self._newest
            self._done.append(_Done(ended_s, _parts(before, phases_ms), before))
        self._newest = now_s, batch

    def measured(self, now_s: float, batch: BatchEffort | None = None) -> dict[str, Any]:
        """Return each part's share of the time.

        ``busiest_task`` is that task's share in all tasks' work, ``functions`` the share of time of each function. Unknown values are absent.

        Args:
            now_s: monotonic seconds.
            batch: the batch about to be committed: without it a query with batches of seconds would seem to wait for input.
        """
        while self._done and self._done[0].ended_s < now_s - WINDOW_S:
            self._done.popleft()
        window_s = max(min(WINDOW_S, now_s - self._began_s), 0.001)
        known = list(self._done)
        if batch is not None:
            if self._newest is not None:
                ended_s, before = self._newest
                known.append(_Done(ended_s, _parts(before, {}), before))
            known.append(_Done(now_s, _parts(batch, {}), batch))
        within = [each.within(now_s - window_s) for each in known]

        def share(spent_ms: Iterable[float]) -> float:
            inside_ms = sum(ms * part for ms, part in zip(spent_ms, within, strict=True))
            return round(min(inside_ms / 1_000 / window_s, 1.0), 3)

        shares: dict[str, Any] = {name: share(each.parts[name] for each in known) for name in PARTS}
        if names := sorted({name for each in known for name in each.batch.function_ms}):
            shares["functions"] = {name: share(each.batch.function_ms.get(name, 0) for each in known) for name in names}
        weights = [(each.parts["tasks"], each.batch.busiest) for each in known if each.batch.busiest is not None]
        if (total := sum(weight for weight, _ in weights)) > 0:
            shares["busiest_task"] = round(sum(weight * busiest for weight, busiest in weights) / total, 3)
        return shares


PARTS: Final = ("reading", "tasks", "commit", "other_queries")


def _parts(batch: BatchEffort, phases_ms: Mapping[str, int]) -> dict[str, float]:
    in_workers_ms = batch.part_ms
    if in_workers_ms is None:
        # Spark's report on a batch comes after the next commit; until then the time that its readers measured counts.
        in_workers_ms = max(phases_ms.get("spark_add_batch", 0) - batch.commit_ms, batch.tasks_ms + batch.read_ms)
    own_ms = in_workers_ms + batch.commit_ms
    return {
        "reading": max(in_workers_ms - batch.tasks_ms, 0),
        "tasks": batch.tasks_ms,
        "commit": batch.commit_ms,
        "other_queries": max(phases_ms.get("spark_trigger", 0) - own_ms, 0),
    }
