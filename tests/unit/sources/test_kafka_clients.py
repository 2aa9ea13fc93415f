"""Which clients of brokers a process keeps (``engine.sources.kafka.brokers.client``). Nobody listens where they would connect."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from engine.definition.sources.kafka import KafkaPlace
from engine.errors import SourceUnavailable
from engine.sources.kafka.brokers import client as kafka_client
from engine.sources.kafka.brokers import topic_client
from engine.sources.kafka.brokers.broker_errors import AWAY, BEING_ELECTED, BrokerErrors, TopicDenied
from engine.sources.kafka.brokers.client import asking, consumer_loop
from engine.sources.kafka.brokers.consumer_loop import RESTING_S, ConsumerLoop
from engine.sources.kafka.brokers.fetching.library import Library, library
from engine.sources.kafka.brokers.fetching.native import NativeFetcher
from engine.sources.kafka.brokers.fetching.port import Fault, Fetched, Polled, RecordFields
from engine.sources.kafka.brokers.topic_client import TopicClient
from engine.sources.kafka.brokers.unreachable import BrokersAway

DSN = "postgresql://nobody"
AWAY_DSN = "postgresql://away"


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


def test_a_call_that_is_refused_while_brokers_are_away_makes_and_drops_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Counted(AdminClient):
        def __init__(self, *given: Any, **options: Any) -> None:
            made.append(id(self))
            super().__init__(*given, **options)

    monkeypatch.setattr(topic_client, "AdminClient", Counted)
    monkeypatch.setattr(topic_client, "ANSWER_S", 0.5)
    with asking(AWAY_DSN, place("read before")) as client:
        pass
    is_there = weakref.ref(client)
    del client
    with pytest.raises(BrokersAway), asking(AWAY_DSN, place("fails")) as client:
        client.partitions()
    assert len(made) == 2
    for topic in ("fails", "new", "read before"):
        with pytest.raises(SourceUnavailable, match="asked again in"), asking(AWAY_DSN, place(topic)):
            pass
    assert len(made) == 2
    assert is_there() is not None


def test_a_topics_id_that_does_not_come_in_time_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = TopicClient({"bootstrap.servers": "127.0.0.1:1"}, "t")
    monkeypatch.setattr(topic_client, "ANSWER_S", 0.05)
    with pytest.raises(SourceUnavailable, match="topic 't': its id cannot be asked for: no answer"):
        client.topic_id()


def test_a_broker_that_is_away_is_told_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    client = TopicClient({"bootstrap.servers": "127.0.0.1:1"}, "t")
    monkeypatch.setattr(topic_client, "ANSWER_S", 0.5)
    with pytest.raises(SourceUnavailable, match="topic 't': its partitions cannot be asked for: no broker can be reached"):
        client.partitions()


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_fetcher_in_use_while_its_connection_changes_is_closed_and_else_kept(*, is_changed: bool) -> None:
    at = place(f"changes {is_changed}")
    clients = kafka_client._clients(DSN, at)
    assert clients.reached_by(b"before") == []
    with consumer_loop(DSN, at, RecordFields(), 0, 0) as taker:
        taker._fetcher.close()  # librdkafka's own; the next one tells what becomes of it
        taker._fetcher = fetcher = Answers()
        assert clients.reached_by(b"after" if is_changed else b"before") == []
    assert fetcher.is_closed == is_changed
    assert clients.fetching.get(RecordFields(), []) == ([] if is_changed else [taker])


class Counting:
    """librdkafka, which counts clients that were made and not ended."""

    def __init__(self, library: Library) -> None:
        self._library, self.clients = library, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def new(self, *given: Any) -> Any:
        client = self._library.new(*given)
        self.clients += bool(client)
        return client

    def destroy_flags(self, *given: Any) -> None:
        self._library.destroy_flags(*given)
        self.clients -= 1


def test_a_fetcher_that_cannot_be_made_leaves_no_client_behind() -> None:
    loaded = library()
    assert loaded is not None
    counting = Counting(loaded)
    options = {"bootstrap.servers": "127.0.0.1:1"}
    fetcher = NativeFetcher(cast("Library", counting), options, "t", RecordFields(), lambda _: None)
    assert counting.clients == 1
    fetcher.close()
    assert counting.clients == 0
    with pytest.raises(SourceUnavailable, match="cannot be read: Local: Invalid argument"):
        NativeFetcher(cast("Library", counting), options, "t" * 600, RecordFields(), lambda _: None)
    assert counting.clients == 0


class Admin:
    """A broker, as a client that asks sees it: what it answers to one question after the other."""

    def __init__(
        self, troubles: BrokerErrors, *answers: KafkaError, noted: KafkaError | None = None, answer_s: float = 0.0
    ) -> None:
        self._troubles, self._answers, self._noted, self._answer_s = troubles, [*answers], noted, answer_s
        self.asked = 0
        self.waited_s: list[float] = []

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        self.asked += 1
        self.waited_s.append(timeout)
        if timeout < self._answer_s:
            raise KafkaException(SILENT)
        error = self._answers.pop(0) if self._answers else None
        if error is not None and error.code() in AWAY:
            raise KafkaException(error)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions={0: None, 1: None})})

    def list_offsets(self, asked: Any, **_more: Any) -> dict[Any, Future[Any]]:
        self.asked += 1
        found: dict[Any, Future[Any]] = {}
        error = self._answers.pop(0) if self._answers else None
        for place in asked:
            found[place] = Future()
            if error is None:
                found[place].set_result(SimpleNamespace(offset=7, leader_epoch=2))
            elif error.code() not in AWAY:
                found[place].set_exception(KafkaException(error))
        return found

    def poll(self, _timeout: float) -> None:
        if self._noted is not None:
            self._troubles.note(self._noted)


REFUSED = KafkaError(KafkaError._AUTHENTICATION, "invalid credentials")
SILENT = KafkaError(KafkaError._TRANSPORT)


def client_of(*answers: KafkaError, noted: KafkaError | None = None, answer_s: float = 0.0) -> tuple[TopicClient, Admin]:
    client = TopicClient({"bootstrap.servers": "127.0.0.1:1"}, "t")
    admin = Admin(client._troubles, *answers, noted=noted, answer_s=answer_s)
    client._admin = admin  # type: ignore[assignment]
    return client, admin


def test_a_broker_that_refuses_who_asks_is_not_waited_for() -> None:
    client, admin = client_of(SILENT, SILENT, noted=REFUSED)
    with pytest.raises(TopicDenied, match="invalid credentials"):
        client.partitions()
    assert admin.asked == 1
    with pytest.raises(TopicDenied, match="invalid credentials"):
        client.ends([0, 1])
    assert admin.asked == 2


@pytest.mark.parametrize(("answer_s", "waited_s"), [(0.4, [0.5]), (0.7, [0.5, 1]), (1.5, [0.5, 1, 2]), (3.5, [0.5, 1, 2, 4])])
def test_a_broker_that_answers_slowly_is_asked_with_more_time(answer_s: float, waited_s: list[float]) -> None:
    client, admin = client_of(answer_s=answer_s)
    assert client.partitions() == [0, 1]
    assert admin.waited_s == waited_s


def test_a_slow_broker_is_given_no_more_time_than_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_client, "ANSWER_S", 0.8)
    client, admin = client_of(answer_s=60.0)
    with pytest.raises(SourceUnavailable):
        client.partitions()
    assert admin.waited_s[0] == 0.5
    assert max(admin.waited_s) <= 0.8


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.LEADER_NOT_AVAILABLE])
def test_a_partition_whose_leader_is_not_known_yet_is_asked_for_again(code: int) -> None:
    client, _ = client_of(KafkaError(code), KafkaError(code))
    assert client.partitions() == [0, 1]
    client, _ = client_of(KafkaError(code), KafkaError(code))
    assert client.ends([0, 1]) == {0: 7, 1: 7}


class Answers:
    """A fetcher that brings what it is given."""

    def __init__(self, *polled: Polled) -> None:
        self.polled = [*polled]
        self.is_closed = False

    def begin(self, partition: int, offset: int) -> None: ...

    def poll(self, partition: int, most: int, wait_s: float) -> Polled:
        return self.polled.pop(0)

    def end(self, partition: int) -> None: ...

    def close(self) -> None:
        self.is_closed = True


NOTHING = Polled(Fetched.nothing(RecordFields()))


@pytest.mark.parametrize("code", sorted(BEING_ELECTED))
def test_reading_goes_on_where_a_partition_has_got_another_leader(code: int) -> None:
    records = Fetched(pl.Series([b"k"]), pl.Series([b"v"]), np.array([5]), np.array([0]))
    answers = Answers(Polled(Fetched.nothing(RecordFields()), (Fault(KafkaError(code), 5),)), NOTHING, Polled(records))
    assert ConsumerLoop(answers, BrokerErrors("t"), 1).take(0, 5, 6, 10).position == 6


def test_reading_from_a_broker_that_refuses_who_asks_ends_at_once() -> None:
    troubles = BrokerErrors("t")

    class Refused(Answers):
        def poll(self, partition: int, most: int, wait_s: float) -> Polled:
            troubles.note(REFUSED)
            return super().poll(partition, most, wait_s)

    with pytest.raises(TopicDenied, match="invalid credentials"):
        ConsumerLoop(Refused(NOTHING), troubles, 1).take(0, 5, 6, 10)
