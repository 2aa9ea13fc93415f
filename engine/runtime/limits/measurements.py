"""Measurements of a query's batches and their results: the next batch's size, whether the query is heavy, the parts of its time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from engine.commit.sink_batch import ClockReading, Committed
from engine.runtime.limits.batch_size import BatchLimit, BatchSize
from engine.runtime.limits.load import Weight
from engine.runtime.limits.time_breakdown import BatchEffort, Effort


class Measured:
    """The batches of one launch."""

    def __init__(self) -> None:
        self.size = BatchSize()
        self._weight = Weight()
        self._effort = Effort(time.monotonic())

    def after(self, done: Committed, spent: ClockReading, together: int, phases_ms: Mapping[str, int]) -> bool:
        """Record a committed batch; called before ``resized``. Return whether the query is heavy.

        Args:
            done: the batch.
            spent: on its commit, with the batches of the same transaction.
            together: how many batches these were: each counts a share.
            phases_ms: see ``Effort.after``.
        """
        now_s = time.monotonic()
        # A batch that was reduced for what it emits shows no backlog.
        is_full = self.size.rows is None and bool((done.cursor or {}).get("is_full"))
        commit_ms = spent.wall_ns // together // 1_000_000
        self._effort.after(_effort_of(done, commit_ms), phases_ms, now_s)
        work_ms = spent.cpu_ns // together // 1_000_000 + done.cpu_ms
        return self._weight.after(done.rows, work_ms, now_s, wall_ms=done.wall_ms, is_full=is_full)

    def resized(self, done: Committed, limit: BatchLimit, most_bytes: int) -> bool:
        """Whether the next batch gets another bound; see ``BatchSize.after``."""
        return self.size.after(done.rows, done.emitted_bytes, limit, most_bytes)

    @property
    def is_heavy(self) -> bool:
        """The result after the last batch."""
        return self._weight.is_heavy

    def is_light(self) -> bool:
        """Whether it has had little work for a while."""
        return not self._weight.after(0, 0, time.monotonic())

    def as_status(self, under_way: Committed) -> dict[str, Any]:
        """Return these measurements for the status, with the batch that is about to be committed."""
        now_s = time.monotonic()
        share, heaviest = self._weight.measured(now_s)
        return {
            "cpu_share": round(share, 4),
            "largest_batch": heaviest,
            "max_rows": self.size.rows,
            "shares": self._effort.measured(now_s, _effort_of(under_way, 0)),
        }


def _effort_of(batch: Committed, commit_ms: int) -> BatchEffort:
    return BatchEffort(batch.part_ms, batch.process_ms, commit_ms, batch.busiest, batch.function_ms, batch.read_ms)
