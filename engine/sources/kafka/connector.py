"""The entry of Kafka's topics among the connectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.plan.model import Feed, RelationSchema
from engine.sources.control import Connector
from engine.sources.feeds import FeedReader
from engine.sources.kafka.control import KafkaControl
from engine.sources.kafka.reader import KafkaReader


def _open(dsn: str, feed: Feed, relations: Sequence[RelationSchema]) -> FeedReader:
    return KafkaReader(dsn, feed, tuple(relations))


KAFKA: Final = Connector(_open, KafkaControl())
"""Topics as a connector of sources. The database holds the known ends of their partitions, but no content."""
