"""The broker of these tests does what they build on."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from tests.kafka.broker import Broker
from tests.kafka.topics import Cluster, Sent


def values(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests", "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, 20.0)]
    finally:
        consumer.close()


def test_the_mock_cluster_keeps_what_is_sent(mock: Cluster) -> None:
    topic = mock.topic()
    mock.send(topic, [Sent(b"1"), Sent(None, key=b"k")])
    assert values(mock.bootstrap, topic, 2) == [b"1", None]


def test_a_broker_that_is_killed_has_what_it_acknowledged(own_broker: Broker) -> None:
    cluster = Cluster(own_broker.bootstrap)
    topic = cluster.topic(flush_messages="1")
    cluster.send(topic, [Sent(b"1")])
    own_broker.kill()
    own_broker.start()
    cluster.commit(topic, [Sent(b"lost")], aborts=True)
    cluster.commit(topic, [Sent(b"2")])
    assert values(own_broker.bootstrap, topic, 2) == [b"1", b"2"]
