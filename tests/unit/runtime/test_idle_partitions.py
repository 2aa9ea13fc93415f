"""T12: which partitions a query with ``clock: slowest`` leaves out of its time."""

from __future__ import annotations

from typing import Any

from engine.runtime.planning.idle_partitions import AT_END, PartitionEnds, idle_partitions
from engine.runtime.planning.upstream import Reached

AFTER_MS = 1_000


class Reader:
    """A query that reads feeds of two partitions each to their ends, or leaves records unread."""

    def __init__(self) -> None:
        self.launch = PartitionEnds()
        self.cursor: dict[str, Any] = {"feeds": {}, "now_ms": 0}
        self.ends: dict[tuple[str, int], int] = {("s", 0): 0, ("s", 1): 0}
        self.behind: dict[str, Reached] = {}

    def batch(self, now_ms: int, unread: tuple[tuple[str, int], ...] = (), **records: int) -> list[int]:
        """Return the partitions that are idle as of the batch; ``p1=3`` appends three records to partition 1."""
        for name, count in records.items():
            self.ends["s", int(name[1:])] += count
        before = {lane: self.cursor["feeds"].get(lane[0], {}).get(str(lane[1]), 0) for lane in self.ends}
        read = {lane: end for lane, end in self.ends.items() if end > before[lane] and lane not in unread}
        feeds: dict[str, dict[str, int]] = {}
        for lane, position in (before | read).items():
            feeds.setdefault(lane[0], {})[str(lane[1])] = position
        at_end = self.launch.look(self.cursor, self.ends, read, self.behind, now_ms)
        start, self.cursor = self.cursor, {"feeds": feeds, "now_ms": now_ms, AT_END: at_end}
        return [partition for _, partition in idle_partitions(start, self.cursor, AFTER_MS)]


def test_a_partition_is_idle_once_it_has_been_at_its_end_for_long() -> None:
    reader = Reader()
    assert reader.batch(100, p0=1, p1=1) == []
    assert reader.batch(900, p0=1) == []
    assert reader.batch(1_099, p0=1) == []
    assert reader.batch(1_100, p0=1) == [1]


def test_an_idle_partition_is_idle_in_the_batch_of_its_next_record_and_no_longer_behind_it() -> None:
    reader = Reader()
    reader.batch(0, p0=1, p1=1)
    assert reader.batch(1_000, p0=1) == [1]
    assert reader.batch(1_500, p0=1, p1=1) == [1], "until its record, which stands in this batch"
    assert reader.batch(1_600, p0=1) == []


def test_a_partition_whose_records_come_after_a_long_sleep_of_the_service_counts() -> None:
    reader = Reader()
    reader.batch(0, p0=1, p1=1)
    assert reader.batch(5_000, p1=1) == [0], "nobody knows when this record came"


def test_a_partition_with_unread_records_counts() -> None:
    reader = Reader()
    reader.batch(0, p0=1, p1=1)
    assert reader.batch(2_000, (("s", 1),), p0=1, p1=1) == []
    assert reader.batch(3_500, p0=1) == []


def test_since_when_a_partition_is_at_its_end_survives_a_restart() -> None:
    reader = Reader()
    reader.batch(0, p0=1, p1=1)
    reader.launch = PartitionEnds()
    assert reader.batch(1_000, p0=1) == [1]


def test_a_derived_relation_is_idle_when_its_sources_are() -> None:
    reader = Reader()
    reader.ends = {("s", 0): 0, ("log:r", 0): 0}
    reader.behind = {"log:r": Reached(is_at_end=True, merged_to_ms=1, read_to_ms=1, sources=(("x", 1),))}
    reader.batch(0, p0=1)
    reader.behind = {"log:r": Reached(is_at_end=True, merged_to_ms=1, read_to_ms=1, sources=(("x", 2),))}
    assert reader.batch(900, p0=1) == [], "its source brought a record of which it made nothing"
    assert reader.batch(1_800, p0=1) == []
    assert reader.batch(1_900, p0=1) == [0]
    reader.behind = {"log:r": Reached(is_at_end=False, merged_to_ms=1, read_to_ms=1, sources=(("x", 2),))}
    assert reader.batch(5_000, p0=1) == [], "rows are on their way"
