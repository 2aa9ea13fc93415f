"""The times of a query between two batches: one for its streams, one for each table (T1), and how long it has been idle (T10).

They belong to the query and not to its tasks, so they stand in its commit, and another number of tasks finds them unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from engine.frames.clocks import BEFORE_ALL_TIME
from engine.operators.tasks.order import BatchOrder, LaneReading
from engine.plan.model import Plan
from engine.plan.times import first_input, triggering_inputs


@dataclass(frozen=True, slots=True)
class QueryTimes:
    """What a batch begins with.

    Attributes:
        next_position: the first position of the next batch.
        now_ms: the wall clock of the last batch; it never falls (T5).
        times: the time of each source of time, by ``Input.index`` as text; absent before its first record.
        silent_since_ms: the wall clock of the last batch that brought records of the query's streams; None: none did yet.
        advanced_ms: by how much time has risen in the silence since then.
        waits: of derived streams, by ``Input.index`` as text: how far behind its sources a stream's time is at most (T1d).
    """

    next_position: int = 0
    now_ms: int = 0
    times: Mapping[str, int] = field(default_factory=dict)
    silent_since_ms: int | None = None
    advanced_ms: int = 0
    waits: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_snapshot(cls, state: Mapping[str, Any] | None) -> Self:
        """Return what ``snapshot`` wrote; None: of a query that never ran."""
        return cls() if state is None else cls(**state)

    def snapshot(self) -> dict[str, Any]:
        """Return the times as JSON-able values."""
        return {
            "next_position": self.next_position,
            "now_ms": self.now_ms,
            "times": dict(self.times),
            "silent_since_ms": self.silent_since_ms,
            "advanced_ms": self.advanced_ms,
            "waits": dict(self.waits),
        }

    def at(self, now_ms: int, awake_ms: int | None) -> QueryTimes:
        """Return the times as a batch finds them.

        Args:
            now_ms: the batch's wall clock; one that went back is taken as the last one (T5).
            awake_ms: since when, by the wall clock, nothing that came was left unread: before that no silence counts; None: always.
        """
        now_ms = max(self.now_ms, now_ms)
        if self.silent_since_ms is None or awake_ms is None or awake_ms <= self.silent_since_ms:
            return replace(self, now_ms=now_ms)
        return replace(self, now_ms=now_ms, silent_since_ms=awake_ms, advanced_ms=0)

    def order(self, plan: Plan, readings: Sequence[LaneReading]) -> BatchOrder:
        """Return the order of a batch that brings what these readings say. What silence did, it did before its records."""
        reached_ms = self.reached_ms(plan)
        silence_ms = 0 if reached_ms is None else max(self.now_ms - reached_ms, 0)
        times = {int(source): time for source, time in self.times.items()}
        waits = {int(index): ms for index, ms in self.waits.items()}
        return BatchOrder.of(plan, readings, self.next_position, times, silence_ms, waits)

    def behind(self, plan: Plan, order: BatchOrder, readings: Sequence[LaneReading]) -> QueryTimes:
        """Return the times behind a batch."""
        ends = {str(source): clock.end for source, clock in sorted(order.clocks.items())}
        triggering = triggering_inputs(plan)
        is_active = any(index in triggering for reading in readings if len(reading.heads[0]) for index in reading.times)
        return replace(
            self,
            next_position=order.end + 1,
            times={source: end for source, end in ends.items() if end != BEFORE_ALL_TIME},
            silent_since_ms=self.now_ms if is_active else self.silent_since_ms,
            advanced_ms=0 if is_active else self.advanced_ms + order.silence_ms,
            waits={str(index): ms for index, ms in sorted(order.waits.items())},
        )

    def reached_ms(self, plan: Plan) -> int | None:
        """Return the wall clock from which on time rises by itself; None where it does not."""
        if plan.idle_after_ms is None or self.silent_since_ms is None:
            return None
        return self.silent_since_ms + plan.idle_after_ms + self.advanced_ms

    def wakes_at_ms(self, plan: Plan, due_ms: int | None) -> int | None:
        """Return the wall clock at which silence lets something go; None where it does not.

        Args:
            plan: the query's.
            due_ms: the least time of the query's streams at which something is due; None: nothing waits.
        """
        reached_ms = self.reached_ms(plan)
        time_ms = self.times.get(str(first_input(plan)))
        return None if reached_ms is None or time_ms is None or due_ms is None else reached_ms + max(due_ms - time_ms, 1)
