"""How late records come, measured where they are judged: one histogram per gauge of the plan (``engine.plan.lateness``).

What a batch counted leaves with its emission and is added up where the batch is committed, so that every
record counts exactly once. The cost is that of the records that are behind, and of a few dozen numbers per gauge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl

from engine.frames.clocks import I64, LAST_EVENT_TIME_MS
from engine.frames.frames import KEY_HASH, OP, TS
from engine.operators.operators import BatchTime, Operator
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
    """

    gauges: Sequence[Gauge]
    _tallies: dict[str, _Tally] = field(default_factory=dict)

    def enter(self, frames: Mapping[int, pl.DataFrame], moment: BatchTime) -> None:
        """Measure the records of the stage's inputs, before any operator handles them.

        Args:
            frames: input index → records in processing order.
            moment: when; with the times of the inputs.
        """
        for gauge in self.gauges:
            frame = None if gauge.operator is not None or gauge.input_index is None else frames.get(gauge.input_index)
            if frame is not None and gauge.input_index is not None and frame.height:
                own = _measured(frame, (KEY_HASH,), counts_deletes=gauge.counts_deletes)
                self._count(gauge, moment.table_before(gauge.input_index, own) - own.get_column(TS).to_numpy())

    def reach(self, operator: Operator, frame: pl.DataFrame, frames: Mapping[int, pl.DataFrame], moment: BatchTime) -> None:
        """Measure the rows that an operator is about to judge."""
        for gauge in self.gauges:
            if gauge.operator is None or gauge.operator != operator.name:
                continue
            sides = [(frame, gauge.allowance)]
            right = None if gauge.input_index is None else frames.get(gauge.input_index)
            if gauge.allowance.right_slack_ms is not None and right is not None:
                sides.append((right, Allowance(gauge.allowance.right_slack_ms)))
            for rows, allowance in sides:
                if rows.height:
                    own = _measured(rows, gauge.columns)
                    self._count(gauge, _behind(moment.before(own), own.get_column(TS).to_numpy(), allowance))

    def take(self) -> dict[str, Counted]:
        """Return what was counted since the last call, by gauge."""
        graces = {gauge.name: gauge.grace_ms for gauge in self.gauges}
        counted = {name: tally.counted(graces[name]) for name, tally in self._tallies.items()}
        self._tallies = {}
        return counted

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


def _measured(frame: pl.DataFrame, columns: Sequence[str], *, counts_deletes: bool = False) -> pl.DataFrame:
    """Return the rows that are judged: those without null values and null keys (T6, J7)."""
    is_out = [frame.get_column(name).is_null().to_numpy() for name in columns if frame.get_column(name).null_count()]
    ops = frame.get_column(OP).to_numpy()
    if not counts_deletes and ops.any():
        is_out.append(ops != 0)
    return frame[np.flatnonzero(~np.logical_or.reduce(is_out))] if is_out else frame


def _behind(before: I64, times: I64, allowance: Allowance) -> I64:
    """Return the least grace at which each record is not late; below 0 for those that need none."""
    if allowance.size_ms is None:
        return before - times - allowance.slack_ms
    starts = np.maximum((times - allowance.size_ms) // allowance.advance_ms + 1, 0) * allowance.advance_ms
    # A window is closed where end + grace <= stream time: at the end itself a grace of 1 ms is needed.
    needed: I64 = before - (starts + allowance.size_ms) + 1
    return needed
