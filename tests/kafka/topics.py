"""Topics of a broker, real or librdkafka's mock: made, written to, deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

WAIT_S = 30.0
MOCK_PARTITIONS = 4

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Sent:
    """A record to be sent.

    Attributes:
        timestamp_ms: 0: the time of sending.
    """

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = 0
    partition: int = 0
    headers: list[Header] = field(default_factory=list)


@dataclass
class Cluster:
    """A broker that topics are made on.

    Attributes:
        owner: of a mock cluster, which lives as long as this producer.
    """

    bootstrap: str
    owner: Producer | None = None
    admin: AdminClient = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def topic(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        """Make a topic and wait until it is there; dots in names of settings are written as ``_``.

        A mock cluster makes topics when it is asked for them, always with ``MOCK_PARTITIONS``.
        """
        name = name or f"t{uuid4().hex[:12]}"
        if self.owner is not None:
            self.owner.list_topics(name, timeout=WAIT_S)
            return name
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(WAIT_S)
        return name

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name], operation_timeout=WAIT_S)[name].result(WAIT_S)

    def grow(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(WAIT_S)

    def configure(self, name: str, **config: str) -> None:
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def setting(self, name: str, setting: str) -> str:
        """Return what a topic is set up with, by the setting's own name."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        return str(self.admin.describe_configs([resource])[resource].result(WAIT_S)[setting].value)

    def remove(self, topic: str, partition: int, before: int) -> None:
        """Remove records from the beginning of a partition, as retention does."""
        place = TopicPartition(topic, partition, before)
        self.admin.delete_records([place])[place].result(WAIT_S)

    def count(self, topic: str) -> int:
        """Return how many records a topic has had."""
        partitions = self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        asked = {TopicPartition(topic, each): OffsetSpec.latest() for each in partitions}
        return sum(found.result(WAIT_S).offset for found in self.admin.list_offsets(asked).values())

    def end(self) -> None:
        """End a mock cluster: nobody listens any more."""
        self.owner = None

    def send(self, topic: str, records: Iterable[Sent], **options: Any) -> None:
        """Send records and wait until the broker has them."""
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0, **options})
        for each in records:
            producer.produce(
                topic, value=each.value, key=each.key, partition=each.partition, timestamp=each.timestamp_ms,
                headers=each.headers or None, on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        assert failed == []

    def commit(self, topic: str, records: Iterable[Sent], *, aborts: bool = False) -> None:
        """Send records in one transaction."""
        with self.transaction(topic, records) as producer:
            if aborts:
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)

    @contextmanager
    def transaction(self, topic: str, records: Iterable[Sent]) -> Iterator[Producer]:
        """Send records in a transaction that is still open; what is given ends it."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": uuid4().hex, "log_level": 0})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for each in records:
            producer.produce(topic, value=each.value, key=each.key, partition=each.partition, timestamp=each.timestamp_ms)
        producer.flush(WAIT_S)
        yield producer

    def is_settled(self, topic: str) -> bool:
        """Whether nothing of a topic is behind an open transaction: a commit is acknowledged before its markers are in the topic."""
        places = [TopicPartition(topic, each) for each in self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions]
        asked = {place: OffsetSpec.latest() for place in places}
        ends = [
            {
                place.partition: found.result(WAIT_S).offset
                for place, found in self.admin.list_offsets(asked, isolation_level=level).items()
            }
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        return ends[0] == ends[1]


def mock_cluster(brokers: int = 1) -> Cluster:
    """Run librdkafka's mock cluster in this process: fast, without Java, and without transactions' markers, retention and topic ids.

    It lives as long as what is returned.
    """
    owner = Producer({"test.mock.num.brokers": brokers, "bootstrap.servers": "mock", "log_level": 0})
    metadata = owner.list_topics(timeout=WAIT_S)
    servers = ",".join(f"{each.host}:{each.port}" for each in metadata.brokers.values())
    return Cluster(servers, owner)
