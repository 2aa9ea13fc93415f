"""The newest records of a topic as they are: for trying a format, and for proposing columns."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Message

from engine.connectors.kafka.client import OffsetOutOfRange, TopicClient, lent
from engine.connectors.kafka.definition import KafkaPlace
from engine.connectors.kafka.records import Records

LOOKED_AT: Final = 100
"""Offsets that are looked back per record that is wanted: compaction and transactions leave gaps."""


def newest_records(dsn: str, place: KafkaPlace, count: int, most_s: float = 10.0) -> Records:
    """Return up to so many of the newest records, of all partitions, those of each in their order.

    Args:
        dsn: of the database with the connections.
        place: the topic (``KafkaConnector.location(…).place``).
        count: how many.
        most_s: after this time what was found so far is returned.

    Raises:
        TopicMissing, TopicDenied: the broker has no such topic, or does not let it be read.
        SourceUnavailable: the broker cannot be asked now.
    """
    with lent(dsn, place) as client:
        return newest_of(client, count, most_s)


def newest_of(client: TopicClient, count: int, most_s: float) -> Records:
    """See ``newest_records``."""
    end_at = time.monotonic() + most_s
    partitions = client.partitions()
    lows, ends = client.lows(partitions), client.ends(partitions)
    holding = [each for each in partitions if ends[each] > lows[each]]
    messages = []
    for partition in holding:
        wanted = -(-count // len(holding))
        back = wanted
        while time.monotonic() < end_at:
            start = max(lows[partition], ends[partition] - back)
            found: list[Message] = []
            position = start
            while position < ends[partition] and time.monotonic() < end_at:
                try:
                    taken = client.take(partition, position, ends[partition])
                except OffsetOutOfRange:
                    break  # retention was quicker
                found += taken.messages
                position = taken.position
            if len(found) >= wanted or start == lows[partition] or back >= wanted * LOOKED_AT:
                messages += found[-wanted:]
                break
            back *= 10
    return Records.of(messages[-count:], has_keys=True, has_values=True, has_headers=True)
