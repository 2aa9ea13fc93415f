"""T12, ``clock: slowest``: time is the least, over the partitions that count, of the greatest event time read of each.

A partition counts from its first record on that moves time. One that has been at its end for a while does not count until its next record;
the planner decides that (``engine.runtime.planning.idle_partitions``). A derived relation is one partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

import numpy as np

from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64, Clock, Rises

Lane = tuple[str, int]
"""Name of a feed, and the partition."""

_BEGIN: Final = -1
"""The place of what holds before the batch."""


@dataclass(frozen=True, slots=True)
class Slowest:
    """The partition that holds time back.

    Attributes:
        since_ms: the wall clock of the batch since which it is the slowest one.
    """

    feed: str
    partition: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class PartitionTimes:
    """What the time of the slowest partition is made of, between two batches.

    Attributes:
        reached: the greatest event time read of each lane.
        idle: the lanes that do not count until their next record.
        set_back: feed → by how much less than others it has waited (T1d); absent: by nothing.
        slowest: the lane that holds time back; None: none does.
    """

    reached: Mapping[Lane, int] = field(default_factory=dict)
    idle: frozenset[Lane] = frozenset()
    set_back: Mapping[str, int] = field(default_factory=dict)
    slowest: Slowest | None = None

    @classmethod
    def of_snapshot(cls, state: Mapping[str, Any] | None) -> Self:
        """Return what ``snapshot`` wrote; None: nothing is known."""
        if state is None:
            return cls()
        reached = {(feed, int(each)): time for feed, times in state["reached"].items() for each, time in times.items()}
        slowest = None if state["slowest"] is None else Slowest(**state["slowest"])
        return cls(reached, frozenset((feed, partition) for feed, partition in state["idle"]), slowest=slowest)

    def snapshot(self) -> dict[str, Any]:
        """Return the times as JSON-able values."""
        reached: dict[str, dict[str, int]] = {}
        for (feed, partition), time in sorted(self.reached.items()):
            reached.setdefault(feed, {})[str(partition)] = time
        slowest = None if self.slowest is None else asdict(self.slowest)
        return {"reached": reached, "idle": [list(lane) for lane in sorted(self.idle)], "slowest": slowest}

    @property
    def counting(self) -> dict[Lane, int]:
        """The times of the lanes that count."""
        return {lane: self._set_back(lane, time) for lane, time in self.reached.items() if lane not in self.idle}

    @property
    def least(self) -> int:
        """The time of the slowest lane; ``BEFORE_ALL_TIME`` if none counts."""
        return min(self.counting.values(), default=BEFORE_ALL_TIME)

    def at(self, now_ms: int) -> PartitionTimes:
        """Return the times behind a batch, and which lane then holds time back."""
        times = self.counting
        if len({*times.values()}) < 2:
            return replace(self, slowest=None)
        feed, partition = min(times, key=lambda lane: (times[lane], lane))
        before = self.slowest
        is_same = before is not None and (before.feed, before.partition) == (feed, partition)
        return self if is_same else replace(self, slowest=Slowest(feed, partition, now_ms))

    def moved(self, clock: Clock, read: Mapping[Lane, Rises]) -> Clock:
        """Let a clock rise with the records of a batch.

        Args:
            clock: of the query's streams, which may begin with a jump.
            read: what was read of each lane, in any order.
        """
        lanes = [self._steps(lane, *read.get(lane, _NOTHING)) for lane in sorted({*self.reached, *read})]
        places, times = _least(lanes) if lanes else _NOTHING
        times = np.where(times == AFTER_ALL_TIME, BEFORE_ALL_TIME, times)
        at = np.where(places == _BEGIN, clock.first + clock.silence_ms, places)
        return clock.rising(at, times, clock.start + clock.silence_ms)

    def behind(self, read: Mapping[Lane, Rises]) -> PartitionTimes:
        """Return what holds behind a batch."""
        reached = dict(self.reached)
        for lane, (_, times) in read.items():
            newest = max(int(times.max(initial=BEFORE_ALL_TIME)), reached.get(lane, BEFORE_ALL_TIME))
            if newest > BEFORE_ALL_TIME:
                reached[lane] = newest
        woken = {lane for lane, (_, times) in read.items() if bool((times == BEFORE_ALL_TIME).any())}
        return replace(self, reached=reached, idle=self.idle - woken)

    def _set_back(self, lane: Lane, time: int) -> int:
        return time - self.set_back.get(lane[0], 0)

    def _steps(self, lane: Lane, places: I64, times: I64) -> Rises:
        """Return a lane's time from each of these places on; ``AFTER_ALL_TIME`` where it does not count."""
        order = np.argsort(places, kind="stable")
        places, times = np.append(_BEGIN, places[order]), np.append(self.reached.get(lane, BEFORE_ALL_TIME), times[order])
        is_record = times == BEFORE_ALL_TIME
        times = np.maximum.accumulate(times)
        is_out = times == BEFORE_ALL_TIME
        if lane in self.idle:
            is_record[0] = False
            is_out |= ~np.logical_or.accumulate(is_record)
        return places, np.where(is_out, AFTER_ALL_TIME, times - self.set_back.get(lane[0], 0))


_NOTHING: Final[Rises] = (np.empty(0, np.int64), np.empty(0, np.int64))


def _least(lanes: Sequence[Rises]) -> Rises:
    """Return the least of step functions, joined in pairs: each round halves their number."""
    while len(lanes) > 1:
        pairs = zip(lanes[::2], lanes[1::2], strict=False)
        lanes = [*(_lesser(*pair) for pair in pairs), *(lanes[-1:] if len(lanes) % 2 else [])]
    return lanes[0]


def _lesser(one: Rises, other: Rises) -> Rises:
    places = np.union1d(one[0], other[0])
    ours, theirs = (times[np.searchsorted(own, places, "right") - 1] for own, times in (one, other))
    times = np.minimum(ours, theirs)
    is_changed = np.append(True, times[1:] != times[:-1])
    return places[is_changed], times[is_changed]
