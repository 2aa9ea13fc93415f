"""What a histogram of lateness says about a grace: the number of late records, and the cost of waiting. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from engine.operators.tasks.lateness import BOUNDS_MS, MAX_MS, Counted

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
_USUAL = frozenset(BOUNDS_MS)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Records with a lateness above the previous bucket and up to ``up_to_ms``; the last bucket may be open (None)."""

    up_to_ms: int | None
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """The lateness of records.

    Attributes:
        buckets: ascending, without empty ones.
    """

    count: int
    max_ms: int
    buckets: tuple[Bucket, ...]

    def late_above(self, grace_ms: int) -> int:
        """Count the records that would be late with a grace. If it is inside a bucket, all records of the bucket count."""
        return sum(bucket.count for bucket in self.buckets if bucket.up_to_ms is None or bucket.up_to_ms > grace_ms)

    def quantiles(self) -> dict[str, int | None]:
        """Return, for each of ``QUANTILES``, a lateness that this share of records does not exceed: the end of their bucket."""
        return {name: self._quantile(share) for name, share in QUANTILES}

    def _quantile(self, share: float) -> int | None:
        needed, total = ceil(self.count * share), 0
        for bucket in self.buckets:
            total += bucket.count
            if bucket.count and total >= needed:
                return self.max_ms if bucket.up_to_ms is None else min(bucket.up_to_ms, self.max_ms)
        return None


@dataclass(frozen=True, slots=True)
class Advice:
    """The effect that one value of a setting would have had on the records measured so far.

    Attributes:
        late_count: records that would have been late.
        late_share: of all records measured.
        added_wait_ms: additional wait of a result compared with 0, in event time.
        is_exact: False: the count is an upper bound.
    """

    value_ms: int
    late_count: int
    late_share: float
    added_wait_ms: int
    is_exact: bool
    is_current: bool


def histogram_of(counted: Counted | None) -> Histogram:
    """Return the histogram that the sink stores; None: nothing was measured yet."""
    if counted is None:
        return Histogram(0, 0, ())
    buckets = sorted((int(bound), count) for bound, count in counted["buckets"].items())
    return Histogram(
        counted["count"], counted["max_ms"], tuple(Bucket(None if bound == MAX_MS else bound, count) for bound, count in buckets)
    )


def advise(histogram: Histogram, current_ms: int | None, *, waits: bool = True) -> list[Advice]:
    """Return the effect of values from 0 up to the first with no late record, and of the current value.

    Args:
        histogram: of the records that the setting applies to.
        current_ms: the current value, None for none.
        waits: a larger value makes results wait; False for a history retention, which only keeps more history.
    """
    extra = {bucket.up_to_ms for bucket in histogram.buckets} - _USUAL - {None}
    enough = next((bound for bound in BOUNDS_MS if bound >= histogram.max_ms), MAX_MS)
    values = {bound for bound in BOUNDS_MS if bound <= enough and bound != MAX_MS} | (
        {current_ms} if current_ms is not None else set()
    )
    return [
        Advice(
            value_ms=value,
            late_count=(late := histogram.late_above(value)),
            late_share=late / histogram.count if histogram.count else 0.0,
            added_wait_ms=value if waits else 0,
            # A count inside a bucket is unknown, unless the bucket is empty; values of earlier definitions split buckets.
            is_exact=late == 0 or value in _USUAL or extra == {value},
            is_current=value == current_ms,
        )
        for value in sorted(values)
    ]


def shown_buckets(histogram: Histogram) -> list[Bucket]:
    return [bucket for bucket in histogram.buckets if bucket.count]


def histograms_of(detail: Mapping[str, object] | None) -> dict[str, Counted]:
    by_gauge = (detail or {}).get("lateness", {})
    return dict(by_gauge) if isinstance(by_gauge, Mapping) else {}
