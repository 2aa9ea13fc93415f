"""Which partitions a query with ``clock: slowest`` leaves out of its time (T12): those that have been at their end for long.

A cursor says since when each partition has been at its end, by the wall clock of the batch that read it so far; from two cursors follows what
is idle as of the batch between them.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.commit.task_states import Cursor
from engine.operators.tasks.slowest import Lane
from engine.runtime.planning.admission import FeedPartition
from engine.runtime.planning.upstream import Reached

AT_END = "at_end"
"""The cursor's field: feed → partition → wall clock."""


class PartitionEnds:
    """Follows the partitions of a launch."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[tuple[str, int], ...]] = {}
        self._moved_ms: dict[str, int] = {}

    def look(
        self,
        start: Cursor,
        ends: Mapping[FeedPartition, int],
        read: Mapping[FeedPartition, int],
        behind: Mapping[str, Reached],
        now_ms: int,
    ) -> dict[str, dict[str, int]]:
        """Return since when each partition has been at its end, with what the next batch reads; absent: it is not there.

        A derived relation is at its end when its producers have read all there is, and since their sources last brought something (P5). What
        these brought before this launch is unknown, so it counts from the launch on.

        Args:
            start: where the batch begins.
            ends: of all partitions.
            read: how far the batch reads those that it advances.
            behind: the progress of the producers of derived feeds.
            now_ms: the wall clock of the batch.
        """
        for feed, reached in behind.items():
            if self._sources.get(feed) != reached.sources:
                self._sources[feed], self._moved_ms[feed] = reached.sources, now_ms
        found: dict[str, dict[str, int]] = {}
        for (feed, partition), end in ends.items():
            position = start["feeds"].get(feed, {}).get(str(partition), 0)
            is_on_its_way = feed in behind and not behind[feed].is_at_end
            if read.get((feed, partition), position) < end or is_on_its_way:
                continue
            is_read = (feed, partition) in read
            since_ms = now_ms if is_read else start.get(AT_END, {}).get(feed, {}).get(str(partition), now_ms)
            found.setdefault(feed, {})[str(partition)] = max(since_ms, self._moved_ms.get(feed, 0))
        return found


def idle_partitions(start: Cursor, end: Cursor, after_ms: int) -> tuple[Lane, ...]:
    """Return the partitions that do not count as of a batch until their next record.

    One that was idle before stays so until its record in this batch; one with unread records counts.

    Args:
        start: where the batch begins.
        end: where it ends.
        after_ms: how long a partition has to be at its end.
    """
    found = []
    for feed, partitions in start.get(AT_END, {}).items():
        for partition, since_ms in partitions.items():
            is_read = _position(end, feed, partition) > _position(start, feed, partition)
            still_ms = end.get(AT_END, {}).get(feed, {}).get(partition)
            was_idle = start["now_ms"] - since_ms >= after_ms
            if (is_read and was_idle) or (not is_read and still_ms is not None and end["now_ms"] - still_ms >= after_ms):
                found.append((feed, int(partition)))
    return tuple(sorted(found))


def _position(cursor: Cursor, feed: str, partition: str) -> int:
    position: int = cursor["feeds"].get(feed, {}).get(partition, 0)
    return position
