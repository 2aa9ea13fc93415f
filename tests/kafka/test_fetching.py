"""What is fetched through librdkafka itself is what ``confluent_kafka`` fetches: the same cases for both, on the mock and on a real broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import KafkaError

from engine.definition.sources.kafka import KafkaPlace
from engine.errors import SourceUnavailable
from engine.sources.kafka.brokers import client
from engine.sources.kafka.brokers.broker_errors import BrokerErrors, OffsetOutOfRange
from engine.sources.kafka.brokers.client import FIRST_GROWTH_S, LEAST_BYTES, MOST_BYTES
from engine.sources.kafka.brokers.consumer_loop import ConsumerLoop
from engine.sources.kafka.brokers.fetching.library import OFF, library
from engine.sources.kafka.brokers.fetching.native import NativeFetcher
from engine.sources.kafka.brokers.fetching.plain import PlainFetcher
from engine.sources.kafka.brokers.fetching.port import NO_TIMESTAMP_MS, Fetched, RecordFields
from tests.kafka.topics import MOCK_PARTITIONS, Cluster, Sent

Open = Callable[[Cluster, str, RecordFields], ConsumerLoop]
EVERYTHING = RecordFields(has_headers=True)
RECORDS = [
    Sent(b"", b"", 1_000),
    Sent(b"x", None, 2_000, headers=[("a", b"1"), ("b", None), ("a", b"2")]),
    Sent(b"twelve bytes", b"twelve bytes", 3_000),
    Sent(b"thirteen byte", b"thirteen byte", 4_000, headers=[("name", b"")]),
    Sent(None, b"tombstone", 5_000),
    Sent(b"a" * 100_000, b"k" * 1_000, 6_000),
    *(Sent(b'{"n":%d}' % number, b"%d" % number, 7_000 + number) for number in range(2_000)),
]


@pytest.fixture(params=["native", "plain"])
def opening(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    library.cache_clear()
    monkeypatch.setenv(OFF, "1" if request.param == "plain" else "0")
    opened: list[ConsumerLoop] = []

    def opening(cluster: Cluster, topic: str, wanted: RecordFields) -> ConsumerLoop:
        troubles = BrokerErrors(topic)
        fetcher = client.fetcher_of({"bootstrap.servers": cluster.bootstrap}, topic, wanted, troubles)
        assert isinstance(fetcher, PlainFetcher if request.param == "plain" else NativeFetcher)
        opened.append(ConsumerLoop(fetcher, troubles, MOST_BYTES))
        return opened[-1]

    yield opening
    for each in opened:
        each.close()
    library.cache_clear()


@pytest.fixture(params=["mock", pytest.param("kafka", marks=pytest.mark.kafka)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


def read(taker: ConsumerLoop, partition: int, start: int, end: int) -> Fetched:
    parts = []
    while start < end:
        taken = taker.take(partition, start, end, 700)
        parts.append(taken.records)
        start = taken.position
    return Fetched.joined(parts)


def test_every_part_of_a_record_is_fetched(opening: Open, cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.send(topic, RECORDS)
    found = read(opening(cluster, topic, EVERYTHING), 0, 0, len(RECORDS))
    assert found.offsets.tolist() == list(range(len(RECORDS)))
    assert found.values.to_list() == [each.value for each in RECORDS]
    assert found.keys.to_list() == [each.key for each in RECORDS]
    assert found.timestamps.tolist() == [each.timestamp_ms for each in RECORDS]
    assert found.headers is not None
    headers = [{each["key"]: each["value"] for each in of} for of in found.headers.to_list()]
    assert headers == [dict(each.headers) for each in RECORDS]


def test_what_nobody_wants_is_left_out(opening: Open, mock: Cluster) -> None:
    topic = mock.topic()
    mock.send(topic, RECORDS[:5])
    found = read(opening(mock, topic, RecordFields(has_keys=False, has_values=False, has_times=False)), 0, 0, 5)
    assert found.keys.to_list() == [None] * 5
    assert found.values.to_list() == [b"", b"", b"", b"", None]
    assert found.timestamps.tolist() == [NO_TIMESTAMP_MS] * 5
    assert found.headers is None


def test_partitions_are_read_in_turns_and_from_anywhere(opening: Open, mock: Cluster) -> None:
    topic = mock.topic()
    for partition in range(MOCK_PARTITIONS):
        mock.send(topic, [Sent(b"%d.%d" % (partition, number), partition=partition) for number in range(100)])
    taker = opening(mock, topic, RecordFields())
    for start in (0, 50, 20):
        for partition in range(MOCK_PARTITIONS):
            found = read(taker, partition, start, start + 30)
            assert found.values.to_list() == [b"%d.%d" % (partition, number) for number in range(start, start + 30)]


def test_a_gap_ends_where_the_partition_does(opening: Open, kafka: Cluster) -> None:
    topic = kafka.topic()
    kafka.send(topic, RECORDS[:3])
    kafka.commit(topic, [Sent(b"lost")] * 3, aborts=True)
    taker = opening(kafka, topic, RecordFields())
    assert read(taker, 0, 0, 7).values.to_list() == [each.value for each in RECORDS[:3]]
    kafka.send(topic, RECORDS[3:5])
    assert read(taker, 0, 7, 9).values.to_list() == [each.value for each in RECORDS[3:5]]


def test_an_offset_that_is_not_there_is_out_of_range(opening: Open, cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.send(topic, RECORDS[:3])
    taker = opening(cluster, topic, RecordFields())
    with pytest.raises(OffsetOutOfRange):
        taker.take(0, 10, 20, 100)
    assert len(taker.take(0, 0, 3, 100).records) > 0


def test_compressed_batches_are_read(opening: Open, kafka: Cluster) -> None:
    topic = kafka.topic()
    for compression in ("gzip", "snappy", "lz4", "zstd"):
        kafka.send(topic, RECORDS, **{"compression.type": compression})
    found = read(opening(kafka, topic, RecordFields()), 0, 0, 4 * len(RECORDS))
    assert found.values.to_list() == [each.value for each in RECORDS] * 4


def test_a_broker_that_is_away_is_told(opening: Open, mock: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.sources.kafka.brokers.consumer_loop.SILENT_S", 1.0)
    topic = mock.topic()
    taker = opening(mock, topic, RecordFields())
    mock.end()
    with pytest.raises(Exception, match="no record comes from the broker") as caught:
        taker.take(0, 0, 5, 100)
    assert "refused" in str(caught.value).lower()


def test_the_library_says_no_where_it_cannot_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    library.cache_clear()
    assert library() is not None
    for name, value in (("_path", lambda: None), ("_path", lambda: "/nowhere/librdkafka.so"), ("_can_gather", lambda: False)):
        library.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(f"engine.sources.kafka.brokers.fetching.library.{name}", value)
            assert library() is None
    library.cache_clear()


def test_errors_say_what_they_mean() -> None:
    troubles = BrokerErrors("t", lambda text: text.replace("hunter2", "***"))
    troubles.note(KafkaError(KafkaError._AUTHENTICATION, "wrong password hunter2"))
    assert "***" in str(troubles.silent("it cannot be asked"))
    assert "hunter2" not in str(troubles.silent("it cannot be asked"))


def test_after_an_outage_clients_soon_fetch_as_much_as_before(mock: Cluster) -> None:
    place = KafkaPlace(mock.topic(), None, mock.bootstrap, None, None, ())
    lent = partial(client.consumer_loop, "", place, RecordFields(), 0, 0)
    for _ in range(3):
        with pytest.raises(SourceUnavailable), lent():
            raise SourceUnavailable("the broker is away")
    with lent() as small:
        assert small.fetch_bytes == LEAST_BYTES
    size = client._KEPT[os.getpid(), "", place].fetch_size
    for _ in range(2):
        assert size.changed_at_s is not None
        size.changed_at_s -= FIRST_GROWTH_S
        with lent() as taker:
            assert taker is not small
    assert taker.fetch_bytes == MOST_BYTES
