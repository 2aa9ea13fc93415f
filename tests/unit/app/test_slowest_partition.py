"""What a status says of the partition that holds time back (T12)."""

from __future__ import annotations

from datetime import UTC, datetime

from app.status.routes import slowest_partition_of
from engine.operators.tasks.slowest import PartitionTimes, Slowest
from engine.plan.model import Feed

FEED = Feed("log:visits", "log", "visits")


def test_a_status_names_the_partition_that_holds_time_back_and_since_when() -> None:
    times = PartitionTimes({("log:visits", 0): 9_000, ("log:visits", 1): 4_000}).at(60_000).at(90_000)
    found = slowest_partition_of({"times": {"partitions": times.snapshot()}}, {FEED: ["visits"]})
    assert found is not None
    assert (found.feed, found.relations, found.partition) == ("log:visits", ["visits"], 1)
    assert (found.stream_time_ms, found.behind_ms) == (4_000, 5_000)
    assert found.since == datetime.fromtimestamp(60, UTC), "the same partition has been the slowest since the batch before"


def test_nothing_holds_time_back_if_all_partitions_have_come_as_far_or_time_is_that_of_the_fastest() -> None:
    even = PartitionTimes({("log:visits", 0): 9, ("log:visits", 1): 9}, slowest=Slowest("log:visits", 1, 5)).at(60)
    assert slowest_partition_of({"times": {"partitions": even.snapshot()}}, {FEED: ["visits"]}) is None
    assert slowest_partition_of({"times": {"partitions": None}}, {FEED: ["visits"]}) is None
    assert slowest_partition_of({}, {}) is None


def test_a_partition_that_does_not_count_holds_nothing_back() -> None:
    times = PartitionTimes({("s", 0): 9, ("s", 1): 4, ("s", 2): 6}, frozenset({("s", 1)})).at(60)
    found = slowest_partition_of({"times": {"partitions": times.snapshot()}}, {})
    assert found is not None
    assert (found.partition, found.behind_ms) == (2, 3)
