"""Results in a topic: by librdkafka's mock cluster, and by a real broker what only that has (transactions that count)."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import nullcontext
from typing import Any

import polars as pl
import psycopg
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from psycopg.types.json import Jsonb

from engine.connections.secret_sources import SecretSources
from engine.definition.deliveries.kafka import KafkaDelivery
from engine.deliveries.deliveries import DeliveryContext, DeliveryStopped, TargetUnavailable
from engine.deliveries.kafka.delivery import KAFKA_DELIVERY, KafkaDeliverer, RepeatingKafkaDeliverer
from engine.errors import DefinitionInvalid
from engine.formats.port import NO_REGISTRY
from tests.faults.service import until
from tests.kafka.broker import running, why_not
from tests.kafka.topics import WAIT_S, Cluster, Sent
from tests.unit.deliveries.results import result, rows


def delivery(cluster: Cluster, topic: str, *, is_table: bool = False, **fields: Any) -> KafkaDeliverer:
    definition = KafkaDelivery.model_validate({"type": "kafka", "connection": "c", "topic": topic, **fields})
    kind = KafkaDeliverer if definition.guarantee == "exactly_once" else RepeatingKafkaDeliverer
    return kind(definition, result(is_table=is_table), {"bootstrap.servers": cluster.bootstrap}, NO_REGISTRY)


def taken(cluster: Cluster, topic: str, count: int, seconds: float = 20.0) -> list[Message]:
    """Read a topic with ``read_committed`` until it has ``count`` records and a second brings no more."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap, "group.id": f"reader-{time.monotonic_ns()}", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 0,
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    found: list[Message] = []
    end, quiet = time.monotonic() + seconds, 0
    try:
        while time.monotonic() < end and quiet < 5:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message)
            quiet = quiet + 1 if message is None and len(found) >= count else 0
    finally:
        consumer.close()
    return found


def test_records_have_key_value_and_event_time(mock: Cluster) -> None:
    topic = mock.topic()
    target = delivery(mock, topic)
    target.position()
    target.deliver(rows(0, 4), 0, 4)
    target.close()
    found = sorted(taken(mock, topic, 4), key=lambda each: (each.value() or b"")[-2:])
    assert [each.value() for each in found] == [b'{"item":"i%d","price":%d}' % (n % 3, n) for n in range(4)]
    assert [each.key() for each in found] == [b'{"item":"i%d"}' % (n % 3) for n in range(4)]
    # 0 would mean "now" to librdkafka.
    assert [each.timestamp()[1] for each in found] == [1, 3_600_000, 7_200_000, 10_800_000]


def test_a_deleted_row_is_a_record_without_a_value(mock: Cluster) -> None:
    topic = mock.topic()
    target = delivery(mock, topic, is_table=True, key={"format": "string"}, value={"format": "json", "has_key": False})
    target.position()
    target.deliver(rows(0, 3, deleted=(1,)), 0, 3)
    target.close()
    found = {each.key(): each.value() for each in taken(mock, topic, 3)}
    assert found == {b"i0": b'{"price":0}', b"i1": None, b"i2": b'{"price":2}'}


def test_at_least_once_has_headers(mock: Cluster) -> None:
    topic = mock.topic()
    target = delivery(mock, topic, guarantee="at_least_once")
    assert target.position() is None
    target.deliver(rows(0, 2), 0, 2)
    target.close()
    headers = [dict(each.headers() or ()) for each in taken(mock, topic, 2)]
    assert {each["slackwater-sequence"] for each in headers} == {b"0", b"1"}
    assert {each["slackwater-query"] for each in headers} == {b"priced"}


def test_a_record_may_be_as_large_as_the_topic_takes(mock: Cluster) -> None:
    topic, text = mock.topic(), "x" * 3_000_000
    target = delivery(mock, topic, guarantee="at_least_once")
    target.position()
    target.deliver(rows(0, 1).with_columns(pl.lit(text).alias("item")), 0, 1)
    target.close()
    assert [len(each.value() or b"") > len(text) for each in taken(mock, topic, 1)] == [True]


@pytest.mark.parametrize("create", [None, {"partitions": 3, "replication": 1}])
def test_a_look_at_a_topic_does_not_make_it(mock: Cluster, dsn: str, create: dict[str, int] | None) -> None:
    named, topic = f"c{time.monotonic_ns()}", f"t{time.monotonic_ns()}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO slackwater.connection (name, type, definition, secrets) VALUES (%s, 'kafka', %s, '{}')",
            (named, Jsonb({"type": "kafka", "bootstrap": mock.bootstrap})),
        )
    definition = KafkaDelivery.model_validate({"type": "kafka", "connection": named, "topic": topic, "create": create})
    with nullcontext() if create else pytest.raises(DefinitionInvalid, match="the topic is not there"):
        KAFKA_DELIVERY.check(definition, result(), DeliveryContext(dsn, None, SecretSources()))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM slackwater.connection WHERE name = %s", (named,))
    assert topic not in mock.admin.list_topics(timeout=WAIT_S).topics


def test_position_is_kept_with_the_records(kafka: Cluster) -> None:
    topic = kafka.topic(3)
    first = delivery(kafka, topic)
    assert first.position() is None
    first.deliver(rows(0, 5), 0, 5)
    first.deliver(rows(5, 6), 5, 6)
    first.close()
    second = delivery(kafka, topic)
    assert second.position() == 6
    second.close()
    assert len(taken(kafka, topic, 6)) == 6


def test_an_older_process_is_fenced(kafka: Cluster) -> None:
    topic = kafka.topic()
    older, newer = delivery(kafka, topic), delivery(kafka, topic)
    older.position()
    newer.position()
    with pytest.raises(TargetUnavailable):
        older.deliver(rows(0, 3), 0, 3)
    newer.deliver(rows(0, 3), 0, 3)
    newer.close()
    assert len(taken(kafka, topic, 3)) == 3


def test_a_failed_transaction_is_ended_at_once_and_not_by_the_brokers_timeout(kafka: Cluster) -> None:
    """While it is open, readers with ``read_committed`` see nothing of what others write behind it."""
    topic = kafka.topic(max_message_bytes="2000")
    target = delivery(kafka, topic)
    target.position()
    noise = pl.Series("item", [secrets.token_hex(8), secrets.token_hex(8), secrets.token_hex(8_000)])  # cannot be compressed
    with pytest.raises(DeliveryStopped, match=r"raise max\.message\.bytes"):
        target.deliver(rows(0, 3).with_columns(noise), 0, 3)
    kafka.send(topic, [Sent(b"behind it")])
    assert [each.value() for each in taken(kafka, topic, 1)] == [b"behind it"]


class Hanging(Producer):
    """Waits for ever where librdkafka does once a group's coordinator went down in the wrong moment."""

    is_over = threading.Event()

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        self.is_over.wait()
        super().send_offsets_to_transaction(*arguments)


def test_a_call_that_never_answers_is_left_behind_and_commits_nothing_later(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    target = delivery(kafka, topic)
    monkeypatch.setattr("engine.deliveries.kafka.delivery.END_S", 0.5)
    with monkeypatch.context() as patched:
        patched.setattr("engine.deliveries.kafka.delivery.Producer", Hanging)
        assert target.position() is None
        with pytest.raises(TargetUnavailable, match="no answer"):
            target.deliver(rows(0, 2), 0, 2)
    monkeypatch.setattr("engine.deliveries.kafka.delivery.END_S", 30.0)
    assert target.position() is None
    target.deliver(rows(0, 2), 0, 2)
    Hanging.is_over.set()
    target.deliver(rows(2, 3), 2, 3)
    assert target.position() == 3
    target.close()
    assert len(taken(kafka, topic, 3)) == 3


def test_a_position_that_the_broker_would_forget_is_committed_anew(kafka: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = kafka.topic()
    first = delivery(kafka, topic)
    assert first.position() is None
    first.deliver(rows(0, 5), 0, 5)
    group = f"slackwater-{result().delivery}"
    kafka.admin.delete_consumer_groups([group])[group].result(WAIT_S)  # as ``offsets.retention.minutes`` does
    assert first.remember(5)
    assert committed(kafka, topic) is None, "an hour has not passed"
    monkeypatch.setattr("engine.deliveries.kafka.delivery.REMEMBERED_S", 0.0)
    assert first.remember(5)
    assert committed(kafka, topic) == 5
    first.close()


def test_a_position_of_an_earlier_process_is_committed_anew(kafka: Cluster) -> None:
    topic = kafka.topic()
    target = delivery(kafka, topic)
    assert target.position() is None
    assert target.remember(7)
    target.close()
    assert committed(kafka, topic) == 7


def committed(cluster: Cluster, topic: str) -> int | None:
    """Return the position that the broker has of the delivery."""
    group = {"bootstrap.servers": cluster.bootstrap, "group.id": f"slackwater-{result().delivery}", "log_level": 0}
    consumer = Consumer(group)
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
    finally:
        consumer.close()
    return found.offset if found.offset >= 0 else None


@pytest.mark.parametrize(
    ("is_table", "said", "policy"),
    [(True, {}, "compact"), (False, {}, "delete"), (True, {"cleanup_policy": "compact,delete"}, "compact,delete")],
)
def test_a_topic_is_made_when_asked_for(kafka: Cluster, is_table: bool, said: dict[str, str], policy: str) -> None:
    topic = f"made{time.monotonic_ns()}"
    target = delivery(kafka, topic, is_table=is_table, create={"partitions": 5, "replication": 1, **said})
    assert target.position() is None
    target.close()
    assert len(kafka.admin.list_topics(topic, timeout=10).topics[topic].partitions) == 5
    assert kafka.setting(topic, "cleanup.policy") == policy


@pytest.mark.kafka
def test_a_compacted_topic_is_the_table() -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with running({"log.cleaner.backoff.ms": "100"}) as broker:
        cluster, topic, delivered = Cluster(broker.bootstrap), f"table{time.monotonic_ns()}", 60
        target = delivery(cluster, topic, is_table=True, create={"partitions": 2, "replication": 1}, value={"format": "json"})
        assert target.position() is None
        assert cluster.setting(topic, "cleanup.policy") == "compact"
        cluster.configure(topic, segment_ms="100", min_cleanable_dirty_ratio="0.01", delete_retention_ms="0")
        target.deliver(rows(0, delivered), 0, delivered)

        def left() -> int:
            # Only closed segments are compacted: a further transaction closes them.
            nonlocal delivered
            target.deliver(rows(delivered, delivered + 3), delivered, delivered + 3)
            delivered += 3
            return len(taken(cluster, topic, 1))

        until("compaction has taken records", lambda: left() < 30, 60)
        target.deliver(rows(delivered, delivered + 1, deleted=(delivered,)), delivered, delivered + 1)
        target.close()
        table: dict[bytes, bytes] = {}
        for message in taken(cluster, topic, 1):
            key, value = message.key() or b"", message.value()
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
    gone = delivered % 3
    newest = [delivered - 3 + place for place in range(3)]
    assert table == {
        b'{"item":"i%d"}' % (number % 3): b'{"item":"i%d","price":%d}' % (number % 3, number)
        for number in newest
        if number % 3 != gone
    }


def test_a_missing_topic_is_told(kafka: Cluster) -> None:
    target = delivery(kafka, f"missing{time.monotonic_ns()}")
    with pytest.raises((DeliveryStopped, TargetUnavailable), match="topic"):
        _deliver_first(target)
    target.close()


def _deliver_first(target: KafkaDeliverer) -> None:
    target.position()
    target.deliver(rows(0, 1), 0, 1)
