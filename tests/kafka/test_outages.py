"""Brokers that are cut off, slow, or half open: nothing is lost or repeated, reading ends in bounded time. A proxy stands before a real one.

At the reader, where patience is short, and through a whole service, which says so in its status.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from slackwater import Client

from engine.definition.sources.kafka import KafkaPlace
from engine.errors import SourceUnavailable
from engine.postgres.postgres import Connection
from engine.sources.kafka.brokers.fetching.port import RecordFields
from engine.sources.kafka.ranges import Topic
from tests.faults.proxy import Proxy, proxy_before
from tests.faults.service import service, until
from tests.kafka.broker import Broker, why_not
from tests.kafka.test_reading import NOW_MS, Source
from tests.kafka.test_service import ORDERS, PARTITIONS, PATIENT, TOTALS, connector, found, orders, totals
from tests.kafka.topics import Cluster, Sent

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

COUNT = 20_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Proxy]]:
    """A broker that is reached through a proxy alone: it says so itself."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    broker = Broker(tmp_path_factory.mktemp("broker"))
    with proxy_before(f"host=127.0.0.1 port={broker.port}") as proxy:
        broker.advertised = int(proxy.dsn.rpartition(":")[2].partition("/")[0])
        try:
            broker.start()
            yield Cluster(f"127.0.0.1:{broker.advertised}"), proxy
        finally:
            broker.kill()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.sources.kafka.brokers.consumer_loop.SILENT_S", 3.0)
    monkeypatch.setattr("engine.sources.kafka.brokers.topic_client.ANSWER_S", 3.0)


def topic_of(connection: Connection, cluster: Cluster) -> Topic:
    source = Source(connection, cluster, columns={"v": "bigint"}, connector={"value": {"format": "json"}})
    cluster.send(source.topic, [Sent(b'{"v": %d}' % number, timestamp_ms=NOW_MS) for number in range(COUNT)])
    place = source.feed.place
    assert isinstance(place, KafkaPlace)
    return Topic(connection.info.dsn, place, RecordFields(), ("sample",))


def read_all(topic: Topic) -> list[int]:
    """Read on and on from where the last attempt ended, as queries do."""
    found: list[int] = []
    position = 0

    def attempt() -> bool:
        nonlocal position
        try:
            for part in topic.parts(0, position, COUNT, []):
                found.extend(part.records.offsets.tolist())
                position = part.stop
        except SourceUnavailable:
            return False
        return position == COUNT

    until("everything is read", attempt, 90)
    return found


def test_a_slow_broker_is_read(connection: Connection, cluster: tuple[Cluster, Proxy]) -> None:
    kafka, proxy = cluster
    topic = topic_of(connection, kafka)
    proxy.slow(0.3)  # for each 64 KB: what is asked for at first does not come before it is given up
    try:
        assert read_all(topic) == list(range(COUNT))
    finally:
        proxy.slow(0.0)


def test_a_broker_that_is_cut_off_again_and_again_is_read(connection: Connection, cluster: tuple[Cluster, Proxy]) -> None:
    kafka, proxy = cluster
    topic = topic_of(connection, kafka)
    found: list[int] = []
    for start in range(0, COUNT, COUNT // 4):
        for part in topic.parts(0, start, start + COUNT // 4, []):
            found.extend(part.records.offsets.tolist())
        proxy.cut()
    assert found == list(range(COUNT))


@pytest.mark.parametrize("way", ["refuse", "swallow"])
def test_a_broker_that_is_away_is_given_up_in_time_and_read_when_it_is_back(
    way: str, connection: Connection, cluster: tuple[Cluster, Proxy]
) -> None:
    kafka, proxy = cluster
    topic = topic_of(connection, kafka)
    assert next(topic.parts(0, 0, 10, [])).stop == 10
    getattr(proxy, way)()
    try:
        began = time.monotonic()
        with pytest.raises(SourceUnavailable, match="no record comes from the broker"):
            # What was fetched ahead is there still; behind it nothing comes.
            list(topic.parts(0, COUNT, COUNT + 1, []))
        with pytest.raises(SourceUnavailable), topic.client() as client:
            client.ends([0])
        assert time.monotonic() - began < 60
    finally:
        proxy.restore()
        proxy.cut()
    assert read_all(topic) == list(range(COUNT))


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_service_reads_on_past_a_slow_and_a_half_open_broker_and_its_status_tells(cluster: tuple[Cluster, Proxy]) -> None:
    kafka, proxy = cluster
    topic = kafka.topic(PARTITIONS)
    kafka.send(topic, orders(0, 1_000))
    with service(PATIENT) as running, Client(running.url, timeout=30) as client:

        def error() -> dict[str, str]:
            return client.query("totals").status().raw["error"] or {}

        client.stream("orders").register({**ORDERS, "connector": connector(kafka, topic)})
        client.queries.put(TOTALS)
        until("what was there is counted", lambda: found(client) == totals(range(1_000)), 240)
        proxy.slow(0.3)
        try:
            kafka.send(topic, orders(1_000, COUNT))
            until("what comes slowly is counted", lambda: found(client) == totals(range(COUNT)), 240)
        finally:
            proxy.slow(0.0)
        proxy.swallow()
        try:
            until("the status tells that nothing comes from the broker", lambda: error().get("code") == "source_unavailable", 180)
            assert "broker" in error()["detail"]
            assert found(client) == totals(range(COUNT)), "results are read meanwhile"
        finally:
            proxy.restore()
            proxy.cut()
        kafka.send(topic, orders(COUNT, COUNT + 500))
        until("what came behind it is counted once", lambda: found(client) == totals(range(COUNT + 500)), 240)
        until("the trouble is over", lambda: error() == {}, 60)
        status = client.query("totals").status()
    assert (status["state"], [each for each in status["counters"] if each["reason"] == "records_lost"]) == ("running", [])
