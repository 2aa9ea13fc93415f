"""Which clients of brokers a process keeps (``engine.connectors.kafka.client``). Nobody listens where they would connect."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from engine.connectors.kafka import client as clients
from engine.connectors.kafka.client import TopicClient, asking
from engine.connectors.kafka.definition import KafkaPlace
from engine.connectors.kafka.fetching.library import library
from engine.connectors.kafka.fetching.native import NativeFetcher
from engine.connectors.kafka.fetching.port import Wanted
from engine.connectors.kafka.taking import RESTING_S
from engine.errors import SourceUnavailable

DSN = "postgresql://nobody"
THREADS = Path("/proc/self/task")


def place(topic: str) -> KafkaPlace:
    return KafkaPlace(topic, None, "127.0.0.1:1", None, None, ())


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


def test_a_topics_id_that_does_not_come_in_time_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = TopicClient({"bootstrap.servers": "127.0.0.1:1"}, "t")
    monkeypatch.setattr(clients, "ANSWER_S", 0.05)
    with pytest.raises(SourceUnavailable, match="topic 't': its id cannot be asked for: no answer"):
        client.topic_id()


def test_a_broker_that_is_away_is_told_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    client = TopicClient({"bootstrap.servers": "127.0.0.1:1"}, "t")
    monkeypatch.setattr(clients, "ANSWER_S", 0.5)
    with pytest.raises(SourceUnavailable, match="topic 't': its partitions cannot be asked for: no broker can be reached"):
        client.partitions()


def test_a_fetcher_that_cannot_be_made_leaves_no_client_behind() -> None:
    found = library()
    assert found is not None
    before = {*THREADS.iterdir()}
    with pytest.raises(SourceUnavailable, match="cannot be read: Local: Invalid argument"):
        NativeFetcher(found, {"bootstrap.servers": "127.0.0.1:1"}, "t" * 600, Wanted(), lambda _: None)
    assert {*THREADS.iterdir()} <= before
