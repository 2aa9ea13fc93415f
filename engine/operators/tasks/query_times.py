"""The times of a query between two batches: one for its streams, one for each table (T1), and how long it has been idle (T10).

They belong to the query and not to its tasks, so they stand in its commit, and another number of tasks finds them unchanged. So do what
operators have handed on, and what has closed for good: a task that skipped batches judges as the others do, also after an edit (W6, P15).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Final, Self

from engine.frames.clocks import BEFORE_ALL_TIME, NEVER, Clock
from engine.operators.tasks.clock_waits import Moment, handed_on, handed_on_at, with_moment
from engine.operators.tasks.order import BatchOrder, LaneReading
from engine.operators.tasks.progress import FeedProgress, PartitionProgress
from engine.operators.tasks.slowest import Lane, PartitionTimes
from engine.plan.model import Plan
from engine.plan.operators.answers import ClockWait
from engine.plan.operators.operator import Operator
from engine.plan.times import first_input, name_of, triggering_inputs

STREAMS: Final = "streams"
"""Names the time of the query's streams among what something is due by; else that is an operator that waits by the wall clock."""


@dataclass(frozen=True, slots=True)
class QueryTimes:
    """What a batch begins with. Operators go by ``name_of``.

    Attributes:
        next_position: the first position of the next batch.
        now_ms: the wall clock of the last batch; it never falls (T5).
        times: the time of each source of time, by ``Input.index`` as text; absent before its first record.
        silent_since_ms: the wall clock of the last batch that brought records of the query's streams; None: none did yet.
        advanced_ms: by how much time has risen since then.
        waits: of derived inputs, by ``Input.index`` as text: how far behind its sources an input's time is at most (T1d).
        read: how far the feeds have been read that operators wait for (``FeedProgress.snapshot``).
        handed_on: the time behind each operator that waits.
        closed_ms: of each operator, what lies before has closed for good, by time less grace.
        moments: of each operator that waits by the wall clock, what it is going to hand on (T11).
        partitions: with ``clock: slowest`` those of the partitions (``PartitionTimes.snapshot``, T12).
    """

    next_position: int = 0
    now_ms: int = 0
    times: Mapping[str, int] = field(default_factory=dict)
    silent_since_ms: int | None = None
    advanced_ms: int = 0
    waits: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[str, Any] = field(default_factory=dict)
    handed_on: Mapping[str, int] = field(default_factory=dict)
    closed_ms: Mapping[str, int] = field(default_factory=dict)
    moments: Mapping[str, Sequence[Moment]] = field(default_factory=dict)
    partitions: Mapping[str, Any] | None = None

    @classmethod
    def of_snapshot(cls, state: Mapping[str, Any] | None) -> Self:
        """Return what ``snapshot`` wrote; None: of a query that never ran."""
        return cls() if state is None else cls(**state)

    def snapshot(self) -> dict[str, Any]:
        """Return the times as JSON-able values."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def at(
        self, now_ms: int, awake_ms: int | None, progress: Sequence[PartitionProgress] = (), idle: Iterable[Lane] = ()
    ) -> QueryTimes:
        """Return the times as a batch finds them.

        Args:
            now_ms: the batch's wall clock; one that went back is taken as the last one (T5).
            awake_ms: since when, by the wall clock, nothing that came was left unread: before that no silence counts; None: always.
            progress: how far it reads the partitions that some operator waits for (J9).
            idle: the partitions that do not count as of the batch (T12).
        """
        read = FeedProgress(self.read)
        read.add(progress)
        partitions = replace(PartitionTimes.of_snapshot(self.partitions), idle=frozenset(idle)).snapshot()
        found = replace(self, now_ms=max(self.now_ms, now_ms), read=read.snapshot(), partitions=partitions)
        if self.silent_since_ms is None or awake_ms is None or awake_ms <= self.silent_since_ms:
            return found
        return replace(found, silent_since_ms=awake_ms, advanced_ms=0)

    def order(self, plan: Plan, readings: Sequence[LaneReading], *, is_release: bool = False) -> BatchOrder:
        """Return the order of a batch. What silence did, it did before its records.

        Args:
            plan: the query's.
            readings: what it brings.
            is_release: what an edit has made due goes behind its records (J11).
        """
        reached_ms = self.reached_ms(plan)
        silence_ms = 0 if reached_ms is None else max(self.now_ms - reached_ms, 0)
        times = {int(source): time for source, time in self.times.items()}
        waits = {int(index): ms for index, ms in self.waits.items()}
        partitions = None if plan.slowest_after_ms is None else PartitionTimes.of_snapshot(self.partitions)
        order = BatchOrder.of(plan, readings, self.next_position, times, silence_ms, waits, partitions)
        order = replace(order, closed_ms=self.closed_ms, progress=FeedProgress(self.read).of(plan.inputs))
        return order.handed_on(plan, partial(self._handed_on, order, order.end if is_release else NEVER))

    def behind(self, plan: Plan, order: BatchOrder, readings: Sequence[LaneReading]) -> QueryTimes:
        """Return the times behind a batch."""
        ends = {str(source): clock.end for source, clock in sorted(order.clocks.items())}
        triggering = triggering_inputs(plan)
        is_active = any(
            index in triggering and times[:1].tolist() == [BEFORE_ALL_TIME]
            for reading in readings
            for index, (_, times) in reading.times.items()
        )
        streams = order.clocks[first_input(plan)]
        is_active = is_active or streams.begin == BEFORE_ALL_TIME != streams.end  # the first marks of a derived stream
        found = replace(
            self,
            next_position=order.end + 1,
            times={source: end for source, end in ends.items() if end != BEFORE_ALL_TIME},
            silent_since_ms=self.now_ms if is_active else self.silent_since_ms,
            # Marks of a derived stream may raise time in the silence, too: both together do not rise faster than the wall clock.
            advanced_ms=0 if is_active else self.advanced_ms + streams.end - streams.begin - streams.jump_ms,
            waits={str(index): ms for index, ms in sorted(order.waits.items())},
            partitions=None if order.partitions is None else order.partitions.at(self.now_ms).snapshot(),
        )
        times, closed_ms, moments = self._of_operators(plan, order)
        return replace(found, handed_on=times, closed_ms=closed_ms, moments=moments)

    def _handed_on(self, order: BatchOrder, release: int, name: str, operator: Operator, clock: Clock) -> Clock:
        """Return the time behind an operator (T1c, T11). An edit of how long it waits neither takes time back nor lets it rise at no place."""
        behind, known = clock.behind(*operator.waits), self.handed_on.get(name)
        wait = operator.clock_wait
        if wait is None:
            return behind if known is None or not operator.waits else behind.going_on(known, release)
        begin = BEFORE_ALL_TIME if known is None else known
        progress = None if wait.awaited_table is None else order.progress.get(wait.awaited_table)
        end = handed_on(self._moments(name, wait, behind), wait, self.now_ms, begin, behind, progress)
        return behind.handed_on(name, wait.limit_ms, begin, end, order.end)

    def _moments(self, name: str, wait: ClockWait, clock: Clock) -> list[Moment]:
        return with_moment([(ms, time) for ms, time in self.moments.get(name, ())], wait, self.now_ms, clock.end)

    def _of_operators(self, plan: Plan, order: BatchOrder) -> tuple[dict[str, int], dict[str, int], dict[str, list[Moment]]]:
        """Return what operators have handed on, closed, and are going to hand on behind a batch."""
        times, closed = dict(self.handed_on), dict(self.closed_ms)
        moments: dict[str, list[Moment]] = {}
        for name, operator, before, behind in _steps(plan, order):
            if (operator.waits or operator.clock_wait is not None) and behind.end != BEFORE_ALL_TIME:
                times[name] = behind.end
            if operator.closes_behind_ms is not None and before.next_place < NEVER and before.end != BEFORE_ALL_TIME:
                closed[name] = max(before.end - operator.closes_behind_ms, closed.get(name, BEFORE_ALL_TIME))
            if (wait := operator.clock_wait) is not None:
                all_moments = self._moments(name, wait, before.behind(*operator.waits))
                moments[name] = [each for each in all_moments if each[1] > behind.end]
        return times, closed, moments

    def reached_ms(self, plan: Plan) -> int | None:
        """Return the wall clock from which on time rises by itself; None where it does not."""
        if plan.idle_after_ms is None or self.silent_since_ms is None:
            return None
        return self.silent_since_ms + plan.idle_after_ms + self.advanced_ms

    def wakes_at_ms(self, plan: Plan, order: BatchOrder, dues: Iterable[Mapping[str, int]]) -> int | None:
        """Return the wall clock at which time lets something go without records; None where it does not.

        Args:
            plan: the query's.
            order: of the batch that these times are behind.
            dues: of each task: by ``STREAMS`` or an operator: the least time there at which something is due.
        """
        least: dict[str, int] = {}
        for source, time in (item for each in dues for item in each.items()):
            least[source] = min(time, least.get(source, time))
        wakes = []
        for name, operator, before, _ in reversed(_steps(plan, order)):
            wait, moments = operator.clock_wait, self.moments.get(name, ())
            if wait is None or wait.needs_records:
                continue
            due = least.get(name)
            due_at = [moment for moment in moments if due is not None and moment[1] >= due]
            # Who reads the result waits for its time, also where nothing waits here. In a silence there is a newer one at each look.
            newest = moments[-1:] if plan.idle_after_ms is None else []
            wakes += [handed_on_at(moment, wait) for moment in [*due_at[:1], *newest]]
            if due is not None and not due_at:
                source, time = before.timed_by or STREAMS, before.behind(*operator.waits).source_time(due)
                least[source] = min(time, least.get(source, time))
        reached_ms, time_ms = self.reached_ms(plan), self.times.get(str(first_input(plan)))
        if reached_ms is not None and time_ms is not None and STREAMS in least:
            wakes.append(reached_ms + max(least[STREAMS] - time_ms, 1))
        return min(wakes, default=None)


def _steps(plan: Plan, order: BatchOrder) -> list[tuple[str, Operator, Clock, Clock]]:
    """Return the operators of a plan in order: name, operator, the time before it and behind it."""
    return [
        (name_of(stage, operator.name), operator, before, behind)
        for stage, clocks in zip(plan.stages, order.between, strict=True)
        for operator, before, behind in zip(stage.operators, clocks, clocks[1:], strict=False)
    ]
