"""A topic's newest records, unparsed: for trying a format, and for proposing columns."""

from __future__ import annotations

import time
from typing import Final

from engine.definition.sources.kafka import KafkaPlace
from engine.sources.kafka.brokers.broker_errors import OffsetOutOfRange
from engine.sources.kafka.brokers.client import asking, consumer_loop
from engine.sources.kafka.brokers.consumer_loop import ConsumerLoop
from engine.sources.kafka.brokers.fetching.port import Fetched, RecordFields

LOOKED_AT: Final = 100
"""Offsets to go back for each requested record: compaction and transactions leave gaps."""

ALL: Final = RecordFields(has_headers=True)


def newest_records(dsn: str, place: KafkaPlace, count: int, most_s: float = 10.0) -> Fetched:
    """Return up to ``count`` of the newest records of all partitions, those of each in their order.

    Args:
        dsn: of the database with the connections.
        place: the topic (``KafkaConnector.location(…).place``).
        count: how many.
        most_s: after this time the records found so far are returned.

    Raises:
        TopicMissing, TopicDenied: the broker has no such topic, or forbids reading it.
        SourceUnavailable: the broker cannot be asked now.
    """
    end_at = time.monotonic() + most_s
    with asking(dsn, place) as client:
        partitions = client.partitions()
        lows, ends = client.lows(partitions), client.ends(partitions)
    holding = [each for each in partitions if ends[each] > lows[each]]
    if not count or not holding:
        return Fetched.nothing(ALL)
    found = []
    for partition in holding:
        with consumer_loop(dsn, place, ALL, partition, lows[partition]) as taker:
            found.append(_newest_of(taker, partition, lows[partition], ends[partition], -(-count // len(holding)), end_at))
    newest = Fetched.joined(found)
    return newest.part(max(0, len(newest) - count), len(newest))


def _newest_of(taker: ConsumerLoop, partition: int, low: int, end: int, wanted: int, end_at: float) -> Fetched:
    back = wanted
    while time.monotonic() < end_at:
        start = position = max(low, end - back)
        found = [Fetched.nothing(ALL)]
        while position < end and time.monotonic() < end_at:
            try:
                taken = taker.take(partition, position, end, end - position)
            except OffsetOutOfRange:
                break  # retention was faster
            found.append(taken.records)
            position = taken.position
        records = Fetched.joined(found)
        if len(records) >= wanted or start == low or back >= wanted * LOOKED_AT:
            return records.part(max(0, len(records) - wanted), len(records))
        back *= 10
    return Fetched.nothing(ALL)
