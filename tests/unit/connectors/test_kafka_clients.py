"""Which clients of brokers a process keeps (``engine.connectors.kafka.client``). Nobody listens where they would connect."""

from __future__ import annotations

import gc
import weakref

from engine.connectors.kafka.client import asking
from engine.connectors.kafka.definition import KafkaPlace
from engine.connectors.kafka.taking import RESTING_S

DSN = "postgresql://nobody"


def place(topic: str) -> KafkaPlace:
    return KafkaPlace(topic, None, "127.0.0.1:1", None, None, (), is_skipping=False)


def test_who_asks_about_a_topic_is_kept_while_somebody_asks() -> None:
    with asking(DSN, place("kept")) as client:
        pass
    with asking(DSN, place("kept")) as again:
        assert again is client


def test_a_topic_that_nobody_asks_about_any_more_holds_no_client() -> None:
    with asking(DSN, place("tried once")) as client:
        pass
    client.used_at -= RESTING_S + 1
    is_there = weakref.ref(client)
    del client
    with asking(DSN, place("another")):
        pass
    gc.collect()
    assert is_there() is None
