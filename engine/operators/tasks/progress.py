"""How far a query has read each partition of a feed: what holds are decided on (J9).

The greatest event time that was seen at all is no progress: newer rows can overtake a backlog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME
from engine.operators.operators import TableProgress
from engine.plan.model import Input


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """What a batch read of one partition.

    Attributes:
        feed: ``Feed.name``.
        max_ts: greatest event time read in this batch, None where nothing was.
        is_at_end: nothing was left when the batch was planned.
    """

    feed: str
    partition: int
    max_ts: int | None
    is_at_end: bool


State = dict[str, dict[str, list[int | bool]]]


class FeedProgress:
    """Progress of every feed that was heard of.

    Args:
        state: what ``snapshot`` returned, or None.
    """

    def __init__(self, state: Mapping[str, Any] | None) -> None:
        self._read: dict[str, dict[int, tuple[int, bool]]] = {
            feed: {int(partition): (int(ts), bool(is_at_end)) for partition, (ts, is_at_end) in partitions.items()}
            for feed, partitions in (state or {}).items()
        }

    def snapshot(self) -> State:
        """State as JSON-able values."""
        return {
            feed: {str(partition): [ts, is_at_end] for partition, (ts, is_at_end) in sorted(partitions.items())}
            for feed, partitions in sorted(self._read.items())
        }

    def add(self, readings: Sequence[PartitionProgress]) -> None:
        """Take over what a batch read."""
        for reading in readings:
            partitions = self._read.setdefault(reading.feed, {})
            known, _ = partitions.get(reading.partition, (BEFORE_ALL_TIME, False))
            partitions[reading.partition] = (
                max(known, BEFORE_ALL_TIME if reading.max_ts is None else reading.max_ts),
                reading.is_at_end,
            )

    def of(self, inputs: Sequence[Input]) -> Mapping[int, TableProgress]:
        """Return the progress of each input whose feed was heard of, by its index."""
        return {item.index: _progress(self._read[item.feed.name]) for item in inputs if item.feed.name in self._read}


def _progress(partitions: Mapping[int, tuple[int, bool]]) -> TableProgress:
    return TableProgress(
        min(ts for ts, _ in partitions.values()),
        min((ts for ts, is_at_end in partitions.values() if not is_at_end), default=AFTER_ALL_TIME),
    )
