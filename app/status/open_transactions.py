"""Records of a topic that wait for a transaction to end. Pure.

A query reads a transactional topic up to the first open transaction. If the writer of a transaction is gone, it ends at its own timeout. A
hanging transaction holds the partition back for ever, while no record before it is unread: without this, the query would look idle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.catalog.reasons import Reason

WAITS_FOR_TRANSACTION: Final = "waits_for_transaction"

PATIENCE: Final = timedelta(seconds=60)
"""Default duration limit of a transaction (`transaction.timeout.ms`)."""


@dataclass(frozen=True, slots=True)
class BlockedPartition:
    """A partition whose end an open transaction holds back.

    Attributes:
        feed: its name in answers.
        records: offsets behind the end.
        since: when the end was first seen there.
        age: time since then.
    """

    feed: str
    partition: int
    records: int
    since: datetime
    age: timedelta


def wait_for_transaction(partitions: Iterable[BlockedPartition]) -> Reason | None:
    """Return the transaction that a running query waits for; None if none is open longer than ``PATIENCE``."""
    lasting = sorted(
        (each for each in partitions if each.age >= PATIENCE), key=lambda each: (each.since, each.feed, each.partition)
    )
    if not lasting:
        return None
    first, *others = lasting
    more = (
        f", and so have {len(others)} other partitions" if len(others) > 1 else ", and so has another partition" if others else ""
    )
    fact = (
        f"partition {first.partition} of {first.feed} has stood still since {first.since:%Y-%m-%dT%H:%M:%SZ} behind a transaction that has not "
        f"ended, with {first.records} offsets written behind it{more}"
    )
    return Reason(
        WAITS_FOR_TRANSACTION,
        fact,
        "they are read when it ends: `kafka-transactions.sh --bootstrap-server … find-hanging --topic …` of Kafka names its writer where it "
        "hangs, and `abort` ends it",
    )
