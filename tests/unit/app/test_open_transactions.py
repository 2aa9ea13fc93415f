"""When a query is said to wait for a transaction, and what is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.status.conditions import PATIENCE, BlockedPartition, wait_for_transaction

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)


def held(partition: int, age: timedelta, feed: str = "kafka:broker/orders") -> BlockedPartition:
    return BlockedPartition(feed, partition, 5, NOW - age, age)


def test_what_ends_in_time_is_no_reason() -> None:
    assert wait_for_transaction([]) is None
    assert wait_for_transaction([held(0, PATIENCE - timedelta(milliseconds=1))]) is None


def test_the_oldest_is_named_with_the_number_of_others() -> None:
    reason = wait_for_transaction([held(2, PATIENCE), held(1, 2 * PATIENCE), held(0, timedelta(seconds=1))])
    assert reason is not None
    assert reason.code == "waits_for_transaction"
    assert reason.fact == (
        "partition 1 of kafka:broker/orders has stood still since 2026-03-01T07:58:00Z behind a transaction that has not ended, "
        "with 5 offsets written behind it, and so has another partition"
    )
    more = wait_for_transaction([held(each, PATIENCE) for each in range(4)])
    assert more is not None
    assert more.fact.endswith("and so have 3 other partitions")
