"""The entry of Kafka's topics among the connectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.connectors.connector import Connector
from engine.connectors.feeds import FeedReader
from engine.connectors.kafka.control import KafkaControl
from engine.connectors.kafka.reader import KafkaReader
from engine.plan.model import Feed, RelationSchema


def _open(dsn: str, feed: Feed, relations: Sequence[RelationSchema]) -> FeedReader:
    return KafkaReader(dsn, feed, tuple(relations))


KAFKA: Final = Connector(_open, KafkaControl())
"""Topics as a connector of sources: the database holds how far they were found to reach, nothing of what is in them."""
