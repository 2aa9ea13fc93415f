"""Records of a topic that wait for a transaction to end. Pure.

Of a topic that is written by transactions a query reads up to the first that has not ended. One whose writer is gone ends at its own timeout;
one that nobody ends any more holds the partition back for ever, while nothing before it is unread: the query would look as if nothing came.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.catalog.reasons import Reason

WAITS_FOR_TRANSACTION: Final = "waits_for_transaction"

PATIENCE: Final = timedelta(seconds=60)
"""As long as a transaction may last where its writer says nothing else (`transaction.timeout.ms`)."""


@dataclass(frozen=True, slots=True)
class BlockedPartition:
    """A partition whose end stands still for an open transaction.

    Attributes:
        feed: which, as answers name it.
        records: offsets behind the end.
        since: when the end was first found to stand there.
        age: how long ago that is.
    """

    feed: str
    partition: int
    records: int
    since: datetime
    age: timedelta


def wait_for_transaction(partitions: Iterable[BlockedPartition]) -> Reason | None:
    """Say for which transaction a running query waits; None where none has lasted beyond ``PATIENCE``."""
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
