"""Results in a topic of Kafka, exactly once by transactions.

A transaction holds the records and the position after them, as a committed offset of the delivery's own consumer group
(``send_offsets_to_transaction``; KIP-98). ``init_transactions`` ends and fences an earlier process's transaction. A group's offset has no
consumer, so brokers drop it after ``offsets.retention.minutes`` (a week by default). After a pause it is committed again
before the next delivery is planned. If the group has no offset and no delivery was running, the position in the database counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias

import polars as pl
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from engine.connections.certificates import CertificateUnreadable
from engine.connections.kafka import KafkaConnection, librdkafka_options, silent_logger
from engine.connections.registry import RegistryConnection
from engine.connections.secret_sources import SecretMissing
from engine.connections.stored import Resolved, WrongConnection, load
from engine.definition.deliveries.delivery import DeliveryModel
from engine.definition.deliveries.kafka import KafkaDelivery
from engine.deliveries.deliveries import DeliveryContext, DeliveryKind, DeliveryStopped, Result, TargetUnavailable, of_kind
from engine.deliveries.kafka.delivered_records import Records
from engine.errors import DefinitionInvalid, Problem, SourceUnavailable, UserError
from engine.formats.port import NO_REGISTRY, FormatInvalid, SchemaStore
from engine.formats.registry.client import Registry
from engine.formats.registry.settings import settings_of
from engine.postgres.postgres import connect
from engine.sources.kafka.brokers.client import ends_within

ANSWER_S: Final = 30.0
"""Limit of one step; the broker keeps a transaction open for ``transaction.timeout.ms``."""
CHECK_S: Final = 8.0
TRANSACTION_S: Final = 60.0
LARGEST_BYTES: Final = 32 << 20
"""Bound of a record for librdkafka (its default refuses 1 MB): the topic decides, and its refusal names the setting to raise."""

END_S: Final = ANSWER_S + 5
"""Limit of a transaction's last two steps together. librdkafka does not always obey its time limit: if a group's coordinator fails at
the wrong moment, ``send_offsets_to_transaction`` waits for ever (its issue 5456)."""

ABORT_S: Final = 5.0
"""Limit for ending a failed transaction. A broker that gives no answer ends it itself, after ``TRANSACTION_S``."""

REMEMBERED_S: Final = 3_600.0
"""For this time a committed position is certain: brokers keep it for days, and no sensible setting is below some hours."""

_POLL_EVERY: Final = 10_000
"""Records between two checks of the broker's reports on earlier ones."""

_FENCED: Final = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}  # noqa: SLF001
_COORDINATOR: Final = {
    KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}  # fmt: skip
_REFUSED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user may not write to the topic, or not keep its position there; allow WRITE and READ on it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the user may not use the group; allow READ on groups that begin with slackwater-",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the user may not use transactions; allow WRITE and DESCRIBE on transactional ids that "
    "begin with slackwater-, or say at_least_once",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the user may not make topics; make it, or allow CREATE",
    KafkaError.MSG_SIZE_TOO_LARGE: "a record is larger than the topic takes; raise max.message.bytes",
    KafkaError.INVALID_RECORD: "the topic does not take such records; a compacted topic takes none without a key",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic is not there; make it, or say `create`",
    KafkaError._UNKNOWN_TOPIC: "the topic is not there; make it, or say `create`",  # noqa: SLF001
}

log = structlog.stdlib.get_logger(__name__)
Headers: TypeAlias = list[tuple[str, str | bytes | None]]


class KafkaDeliverer:
    """Implements ``Deliverer`` by transactions.

    Args:
        definition: of the delivery.
        result: the delivered result.
        options: of librdkafka, with secrets.
        store: the registry.
        without_secrets: removes secrets from a text.
    """

    keeps_position: ClassVar[bool] = True

    def __init__(
        self,
        definition: KafkaDelivery,
        result: Result,
        options: Mapping[str, Any],
        store: SchemaStore,
        without_secrets: Callable[[str], str] = str,
    ) -> None:
        self._definition, self._result = definition, result
        self._options, self._shown = {**_QUIET, **options}, without_secrets
        self._records = Records(definition, result, store)
        self._producer: Producer | None = None
        self._group: Any = None
        self._committed_at_s: float | None = None
        self._failed: list[KafkaError] = []

    def position(self) -> int | None:
        self.close()
        name = f"slackwater-{self._result.delivery}"
        try:
            self._make_topic()
            self._producer = self._make_producer({"transactional.id": name, "transaction.timeout.ms": int(TRANSACTION_S * 1_000)})
            self._producer.init_transactions(ANSWER_S)
            asker = Consumer(
                {**self._options, "group.id": name, "isolation.level": "read_committed", "enable.auto.commit": False},
                logger=silent_logger(),
            )
            try:
                found = self._committed(asker)
                self._group = asker.consumer_group_metadata()
            finally:
                asker.close()
        except KafkaException as error:
            raise self._error_of(error) from error
        return int(found.offset) if found.offset >= 0 else None

    def deliver(self, rows: pl.DataFrame, start: int, upto: int) -> None:  # noqa: ARG002 - the broker has it
        self._transact(upto, rows)

    def remember(self, position: int) -> bool:
        """See ``Deliverer``: commits the position again if its last commit is old, or came from an earlier process."""
        committed_at_s = self._committed_at_s
        if committed_at_s is None or time.monotonic() - committed_at_s > REMEMBERED_S:
            self._transact(position, None)
        return True

    def _transact(self, position: int, rows: pl.DataFrame | None) -> None:
        producer = self._producer
        if producer is None:
            raise TargetUnavailable("the position is not known; it is asked for again")
        try:
            producer.begin_transaction()
            if rows is not None:
                self._send(producer, rows)
            is_answered = ends_within(END_S, partial(self._end, producer, self._group, position))
        except (KafkaException, BufferError) as error:
            # The next question for the position shows whether it was committed.
            self._abort(producer)
            raise self._error_of(error) from error
        except BaseException:
            self._abort(producer)
            raise
        if not is_answered:
            # This producer gets no more calls, because they would also wait. Its successor has a newer epoch, so this one cannot commit.
            self._producer = self._committed_at_s = None
            raise TargetUnavailable(f"topic {self._definition.topic}: no answer to the end of a transaction within {END_S:.0f} s")
        self._committed_at_s = time.monotonic()

    def _end(self, producer: Producer, group: Any, position: int) -> None:
        producer.send_offsets_to_transaction([TopicPartition(self._definition.topic, 0, position)], group, ANSWER_S)
        producer.commit_transaction(ANSWER_S)

    def _abort(self, producer: Producer) -> None:
        """End a failed transaction, so that readers of the topic do not wait for it, and close."""
        try:
            producer.abort_transaction(ABORT_S)
        except KafkaException as error:
            # It is over, is being committed, or belongs to another process; else the broker ends it after ``TRANSACTION_S``.
            log.debug("transaction_not_aborted", topic=self._definition.topic, error=self._shown(str(error))[:300])
        finally:
            self.close()

    def close(self) -> None:
        producer, self._producer, self._committed_at_s = self._producer, None, None
        if producer is not None:
            producer.purge()
            producer.flush(1.0)

    def _send(self, producer: Producer, rows: pl.DataFrame, headers: Callable[[int], Headers] | None = None) -> None:
        """Produce rows and wait until they are acknowledged.

        One call a record: ``produce_batch`` of confluent-kafka 2.16 takes neither timestamps nor headers.
        """
        end = time.monotonic() + TRANSACTION_S / 2
        numbers = rows.get_column("_offset").to_list()
        produce, topic = producer.produce, self._definition.topic
        for place, (key, value, stamp) in enumerate(self._records.of(rows)):
            own = None if headers is None else headers(numbers[place])
            while True:
                try:
                    produce(topic, value=value, key=key, timestamp=stamp, headers=own)
                    break
                except BufferError:
                    producer.poll(0.05)
                    self._raise_failed()
                    if time.monotonic() > end:
                        raise
            if place % _POLL_EVERY == 0:
                producer.poll(0)
        if producer.flush(max(0.1, end - time.monotonic())):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "records are not acknowledged"))  # noqa: SLF001
        self._raise_failed()

    def _committed(self, asker: Consumer) -> TopicPartition:
        """Ask for the group's offset; repeat this while its coordinator is being found."""
        end = time.monotonic() + ANSWER_S
        while True:
            try:
                (found,) = asker.committed([TopicPartition(self._definition.topic, 0)], timeout=ANSWER_S)
                if found.error is None:
                    return found
                error = KafkaException(found.error)
            except KafkaException as raised:
                error = raised
            if error.args[0].code() not in _COORDINATOR or time.monotonic() > end:
                raise error
            time.sleep(0.2)

    def _raise_failed(self) -> None:
        if self._failed:
            raise KafkaException(self._failed[0])

    def _make_producer(self, own: Mapping[str, Any]) -> Producer:
        self._failed.clear()
        return Producer(
            {
                **self._options, "partitioner": "murmur2_random", "enable.idempotence": True, "acks": "all", "linger.ms": 5,
                "compression.type": "lz4", "queue.buffering.max.kbytes": 65_536, "message.timeout.ms": int(ANSWER_S * 1_000),
                "message.max.bytes": LARGEST_BYTES, **own,
            },
            logger=silent_logger(),
        )  # fmt: skip

    def _note(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None and not self._failed:
            self._failed.append(error)

    def _make_topic(self) -> None:
        """Make the topic if it does not exist, and the definition says so. Raises KafkaException."""
        topic, creation = self._definition.topic, self._definition.create
        if creation is None:
            return
        admin = AdminClient(self._options, logger=silent_logger())
        if topic in admin.list_topics(timeout=ANSWER_S).topics:
            return
        policy = creation.cleanup_policy or ("compact" if self._result.is_table else "delete")
        new = NewTopic(topic, creation.partitions, creation.replication, config={"cleanup.policy": policy})
        try:
            admin.create_topics([new], operation_timeout=ANSWER_S)[topic].result(ANSWER_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _error_of(self, error: KafkaException | BufferError) -> TargetUnavailable | DeliveryStopped:
        found = error.args[0] if error.args else error
        if not isinstance(found, KafkaError):
            return TargetUnavailable(self._shown(str(error))[:300])
        cure, text = _REFUSED.get(found.code()), self._shown(found.str())[:300]
        if cure is not None:
            return DeliveryStopped("delivery_refused", f"topic {self._definition.topic}: {cure} ({text})")
        if found.code() in _FENCED:
            return TargetUnavailable(f"another process delivers the result ({text})")
        return TargetUnavailable(f"topic {self._definition.topic}: {text}")


class RepeatingKafkaDeliverer(KafkaDeliverer):
    """At least once: no transactions, and headers by which a reader finds duplicates."""

    keeps_position: ClassVar[bool] = False

    def position(self) -> int | None:
        """See ``Deliverer``: the topic stores no position."""
        self.close()
        try:
            self._make_topic()
            self._producer = self._make_producer({"on_delivery": self._note})
        except KafkaException as error:
            raise self._error_of(error) from error
        return None

    def remember(self, position: int) -> bool:  # noqa: ARG002 - the topic keeps none
        return False

    def deliver(self, rows: pl.DataFrame, start: int, upto: int) -> None:  # noqa: ARG002 - the headers say each number
        if self._producer is None:
            raise TargetUnavailable("the producer is closed; it is made again")
        try:
            self._send(self._producer, rows, self._headers)
        except SystemError as error:
            # The library raises a fatal error inside the next callback.
            self.close()
            if not isinstance(error.__cause__, KafkaException):
                raise
            raise self._error_of(error.__cause__) from error
        except (KafkaException, BufferError) as error:
            self.close()
            raise self._error_of(error) from error

    def _headers(self, number: int) -> Headers:
        return [
            ("slackwater-query", self._result.query.encode()),
            ("slackwater-delivery", str(self._result.delivery).encode()),
            ("slackwater-sequence", str(number).encode()),
        ]


_QUIET: Final[Mapping[str, Any]] = {
    "log_level": 3,
    "client.id": "slackwater",
    "socket.keepalive.enable": True,
    "reconnect.backoff.max.ms": 2_000,
    # A question about the topic would make it with the brokers' defaults, not with the settings in ``create``.
    "allow.auto.create.topics": False,
}


def _open(said: DeliveryModel, result: Result, site: DeliveryContext) -> KafkaDeliverer:
    definition = of_kind(said, KafkaDelivery)
    try:
        options, resolved, store = _resolve(definition, site)
        kind = KafkaDeliverer if definition.guarantee == "exactly_once" else RepeatingKafkaDeliverer
        return kind(definition, result, options, store, resolved.reader.without_secrets)
    except (UserError, FormatInvalid) as error:
        raise DeliveryStopped("delivery_refused", str(error)) from error
    except SourceUnavailable as error:
        raise TargetUnavailable(str(error)) from error


def _resolve(definition: KafkaDelivery, site: DeliveryContext) -> tuple[dict[str, Any], Resolved, SchemaStore]:
    """Look connections up; raises ``DefinitionInvalid``, ``FormatInvalid``, ``SourceUnavailable``."""
    sides = (("key", definition.key), ("value", definition.value))
    registries = {side.registry: place for place, side in sides if side is not None and side.registry is not None}
    if len(registries) > 1:
        raise FormatInvalid("registry: key and value name two registries; name one")
    with connect(site.dsn, "slackwater-delivery") as connection:

        def found(place: str, name: str, kind: type[KafkaConnection] | type[RegistryConnection]) -> Resolved:
            try:
                resolved = load(connection, name, site.surroundings)
                resolved.of_kind(kind)
            except WrongConnection as error:
                raise _refused(f"/into/connector/{place}", error.code, error) from error
            return resolved

        resolved = found("connection", definition.connection, KafkaConnection)
        registry = next((found(f"{side}/registry", name, RegistryConnection) for name, side in registries.items()), None)
    try:
        options: dict[str, Any] = librdkafka_options(resolved.of_kind(KafkaConnection), resolved.reader)
        store = NO_REGISTRY if registry is None else Registry(settings_of(registry, 5.0, 10.0))
    except (SecretMissing, CertificateUnreadable) as error:
        raise SourceUnavailable(f"connection '{definition.connection}': {resolved.reader.without_secrets(str(error))}") from error
    return options, resolved, store


def _check(said: DeliveryModel, result: Result, site: DeliveryContext) -> None:
    definition = of_kind(said, KafkaDelivery)
    try:
        options, resolved, store = _resolve(definition, site)
        Records(definition, result, store)
        admin = AdminClient({**_QUIET, **options}, logger=silent_logger())
        there = admin.list_topics(definition.topic, timeout=CHECK_S).topics[definition.topic]
    except SourceUnavailable as error:
        raise TargetUnavailable(str(error)) from error
    except FormatInvalid as error:
        raise _refused("/into/connector/value", "format_invalid", error) from error
    except KafkaException as error:
        text = resolved.reader.without_secrets(error.args[0].str())[:300]
        raise TargetUnavailable(
            f"connection '{definition.connection}': no broker answers within {CHECK_S:.0f} s ({text}); look at the connection"
        ) from error
    if there.error is None:
        return
    if there.error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC) and definition.create is not None:  # noqa: SLF001
        return
    cure = _REFUSED.get(there.error.code(), "")
    raise _refused("/into/connector/topic", "topic_not_writable", f"topic {definition.topic}: {cure or there.error.str()}")


def _refused(pointer: str, code: str, detail: object) -> DefinitionInvalid:
    return DefinitionInvalid([Problem(pointer, code, str(detail))])


KAFKA_DELIVERY: Final = DeliveryKind(_open, _check)
