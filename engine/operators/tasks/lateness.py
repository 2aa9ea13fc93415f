"""How late records come, measured where they are judged: one histogram per gauge of the plan (``engine.plan.lateness``).

A task keeps the clocks; what a batch counted leaves with its emission and is added up where the batch is committed, so that every
record counts exactly once. The cost is that of the records that are behind, and of a few dozen numbers per gauge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl

from engine.frames.clocks import I64, LAST_EVENT_TIME_MS, clock_value, running_clock
from engine.frames.frames import KEY_HASH, OP, POS, TS
from engine.operators.operators import Operator
from engine.plan.operators.answers import Allowance, Gauge

_S, _M, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000

MAX_MS: Final = LAST_EVENT_TIME_MS
"""No record can be later (T8)."""

BOUNDS_MS: Final = (
    0, 1, 2, 5, 10, 20, 50, 100, 200, 500,
    *(n * _S for n in (1, 2, 5, 10, 20, 30)), *(n * _M for n in (1, 2, 3, 5, 10, 20, 30)), *(n * _H for n in (1, 2, 3, 6, 12)),
    *(n * _D for n in (1, 2, 3, 7, 14, 30, 90, 365)), MAX_MS,
)  # fmt: skip
"""Upper ends of the buckets, about exponential and all of them durations a person would choose: there the counts are exact."""

NEAR_MS: Final = 8_191
"""Up to here lateness is counted by the millisecond before it is put into buckets: 64 KiB of counts fit a core's cache."""

FEW: Final = 1_024
"""Up to so many records are looked up one by one: counting by the millisecond costs as much as that, whatever their number."""

Counted = dict[str, Any]
"""``count``, ``max_ms`` and ``buckets``: upper end as text → records with a lateness up to there, above the next smaller end."""


@dataclass(slots=True)
class _Tally:
    """What one gauge counted since it was last asked."""

    bounds: I64
    counts: I64
    max_ms: int = 0

    def counted(self, grace_ms: int | None) -> Counted:
        buckets = {
            str(bound): count
            for bound, count in zip(self.bounds.tolist(), self.counts.tolist(), strict=True)
            if count or bound == grace_ms
        }
        return {"count": int(self.counts.sum()), "max_ms": self.max_ms, "buckets": buckets}


@dataclass(slots=True)
class LatenessMeter:
    """The gauges of one task.

    Attributes:
        gauges: those of its stage.
        clocks: greatest event time that each input's gauge has met.
    """

    gauges: Sequence[Gauge]
    clocks: dict[str, int] = field(default_factory=dict)
    _tallies: dict[str, _Tally] = field(default_factory=dict)

    def enter(self, frames: Mapping[int, pl.DataFrame], chain: Sequence[Operator]) -> None:
        """Measure the records of the stage's inputs, before any operator handles them.

        Args:
            frames: input index → records in processing order.
            chain: the operators, whose clocks silence may have moved (T10).
        """
        for gauge in self.gauges:
            frame = None if gauge.operator is not None or gauge.input_index is None else frames.get(gauge.input_index)
            if frame is not None and frame.height:
                times = _measured_times(frame, (KEY_HASH,), counts_deletes=gauge.counts_deletes)
                clock = self.clocks.get(gauge.name)
                ahead = None if gauge.clock is None else _clock(chain, gauge.clock)
                before, after = running_clock(ahead if clock is None else max(clock, clock_value(ahead)), times)
                if len(after):
                    self.clocks[gauge.name] = int(after[-1])
                self._count(gauge, before - times)

    def reach(self, operator: Operator, frame: pl.DataFrame, frames: Mapping[int, pl.DataFrame]) -> None:
        """Measure the rows that an operator is about to judge."""
        for gauge in self.gauges:
            if gauge.operator is None or gauge.operator != operator.name:
                continue
            clock = operator.clocks.get(gauge.operator)
            if gauge.allowance.right_slack_ms is not None:
                other = frame.clear() if gauge.input_index is None else frames.get(gauge.input_index, frame.clear())
                self._count(gauge, _of_both(frame, other, clock, gauge.allowance))
            elif frame.height:
                times = _measured_times(frame, gauge.columns)
                before, _ = running_clock(clock, times)
                self._count(gauge, _behind(before, times, gauge.allowance))

    def take(self) -> dict[str, Counted]:
        """Return what was counted since the last call, by gauge."""
        graces = {gauge.name: gauge.grace_ms for gauge in self.gauges}
        counted = {name: tally.counted(graces[name]) for name, tally in self._tallies.items()}
        self._tallies = {}
        return counted

    def snapshot(self) -> dict[str, int]:
        """State as JSON-able values."""
        return dict(self.clocks)

    def _count(self, gauge: Gauge, lateness: I64) -> None:
        if not len(lateness):
            return
        tally = self._tallies.get(gauge.name)
        if tally is None:
            bounds = np.unique(np.array([*BOUNDS_MS, *([] if gauge.grace_ms is None else [gauge.grace_ms])], np.int64))
            tally = self._tallies[gauge.name] = _Tally(bounds, np.zeros(len(bounds), np.int64))
        top = int(lateness.max())
        if top <= 0:
            tally.counts[0] += len(lateness)
            return
        tally.max_ms = max(tally.max_ms, top)
        if len(lateness) <= FEW:
            found = np.searchsorted(tally.bounds, np.maximum(lateness, 0))
            tally.counts += np.bincount(found, minlength=len(tally.bounds))
            return
        # Counting by the millisecond first leaves few values to look up: most records are a little late.
        near = np.bincount(np.clip(lateness, 0, NEAR_MS + 1), minlength=NEAR_MS + 2)[: NEAR_MS + 1]
        values = np.flatnonzero(near)
        np.add.at(tally.counts, np.searchsorted(tally.bounds, values), near[values])
        if top > NEAR_MS:
            far = np.searchsorted(tally.bounds, lateness[lateness > NEAR_MS])
            tally.counts += np.bincount(far, minlength=len(tally.bounds))


def summed(known: Mapping[str, Counted], new: Mapping[str, Counted]) -> dict[str, Counted]:
    """Add up two histograms of every gauge."""
    total = dict(known)
    for name, counted in new.items():
        before = total.get(name, {"count": 0, "max_ms": 0, "buckets": {}})
        buckets = dict(before["buckets"])
        for bound, count in counted["buckets"].items():
            buckets[bound] = buckets.get(bound, 0) + count
        total[name] = {
            "count": before["count"] + counted["count"],
            "max_ms": max(before["max_ms"], counted["max_ms"]),
            "buckets": buckets,
        }
    return total


def _measured_times(frame: pl.DataFrame, columns: Sequence[str], *, counts_deletes: bool = False) -> I64:
    """Return the event times of the rows that are judged: null values and null keys move no clock (T6, J7)."""
    is_out = [frame.get_column(name).is_null() for name in columns if frame.get_column(name).null_count()]
    ops = frame.get_column(OP).to_numpy()
    times: I64 = frame.get_column(TS).to_numpy()
    if not is_out and (counts_deletes or not ops.any()):
        return times
    is_left_out = [each.to_numpy() for each in is_out]
    kept: I64 = times[~np.logical_or.reduce(is_left_out if counts_deletes else [*is_left_out, ops != 0])]
    return kept


def _behind(before: I64, times: I64, allowance: Allowance) -> I64:
    """Return the least grace at which each record is not late; below 0 for those that need none."""
    if allowance.size_ms is None:
        return before - times - allowance.slack_ms
    starts = np.maximum((times - allowance.size_ms) // allowance.advance_ms + 1, 0) * allowance.advance_ms
    # A window is closed where end + grace <= stream time: at the end itself a grace of 1 ms is needed.
    needed: I64 = before - (starts + allowance.size_ms) + 1
    return needed


def _of_both(left: pl.DataFrame, right: pl.DataFrame, clock: int | None, allowance: Allowance) -> I64:
    """Measure both sides of a stream-stream join, which have one stream time."""
    left, right = (frame if (frame.get_column(OP) == 0).all() else frame.filter(pl.col(OP) == 0) for frame in (left, right))
    sides = [(frame.get_column(POS).to_numpy(), frame.get_column(TS).to_numpy()) for frame in (left, right)]
    positions, times = (np.concatenate(parts) for parts in zip(*sides, strict=True))
    slack = np.repeat([allowance.slack_ms, allowance.right_slack_ms or 0], [left.height, right.height])
    order = np.argsort(positions, kind="stable")
    before, _ = running_clock(clock, times[order])
    behind: I64 = before - times[order] - slack[order]
    return behind


def _clock(chain: Sequence[Operator], name: str) -> int | None:
    return next((clock for operator in chain for own, clock in operator.clocks.items() if own == name), None)
