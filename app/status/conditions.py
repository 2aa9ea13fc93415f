"""Why a query is not in its desired state, and conditions that its state alone does not show. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.catalog.warned import Reason
from app.status.models import Reason as ReasonAnswer
from app.status.sql import Status


def reason_of(status: Status, waits: Reason | None) -> ReasonAnswer | None:
    """Return why the query is not in its desired state: its own error first, then why it waits."""
    # An error stays while the query is launched again, so that the reason does not come and go with each attempt.
    if status.error is not None and status.state in ("failed", "backoff", "stopping", "starting"):
        return ReasonAnswer(code=status.error["code"], detail=status.error["detail"])
    return None if waits is None else ReasonAnswer(code=waits.code, detail=waits.detail)


def conditions_of(status: Status, waits: Reason | None) -> list[str]:
    """Return conditions that a query's state alone does not show."""
    conditions = ["unreachable"] if status.is_unreachable else []
    if status.is_unplaced and not status.is_unreachable:
        conditions.append("unplaced")
    if status.state != "running" or status.is_unreachable:
        return [*conditions, "stale"]
    return [*conditions, waits.code] if waits is not None else conditions


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
