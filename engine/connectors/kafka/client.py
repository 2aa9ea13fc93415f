"""A process's clients of brokers: one for each feed, kept while it is used. Secrets are read here and kept nowhere else.

What librdkafka reports becomes ``SourceUnavailable``, which is tried again, or ``TopicLost``; everything is bounded in time.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import psycopg
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # the package names it so in its documentation

from engine.connectors.connections.certificates import CertificateUnreadable
from engine.connectors.connections.kafka import KafkaConnection, librdkafka_options
from engine.connectors.connections.stored import ConnectionMissing, Resolved, Stored, load, resolved
from engine.connectors.connections.surroundings import SecretMissing, Surroundings
from engine.connectors.kafka.definition import KafkaPlace
from engine.connectors.postgres import shared_connection
from engine.errors import SourceUnavailable

ANSWER_S: Final = 10.0
"""Of one question to the brokers; a broker that starts again is away longer, and is asked again by the next attempt."""

SILENT_S: Final = 20.0
"""Without a record or a word of the broker's while records are known to be there, reading is given up: the connection may be half open."""

KEPT_S: Final = 600.0
"""A client is made anew after this time, so that a changed connection and changed secrets are seen."""

FETCH_MESSAGES: Final = 50_000
STEP_S: Final = 0.2

_GONE: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001
_DENIED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
}  # fmt: skip
_OUT_OF_RANGE: Final = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001
_UNIMPORTANT: Final = {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""No group is used: positions are the service's."""


class TopicMissing(Exception):
    """The broker has no such topic, or none that who asks may know of."""


class TopicDenied(Exception):
    """The broker does not allow who asks to look at the topic."""


class OffsetOutOfRange(Exception):
    """The broker has not what lies at an offset: it was removed, or never was."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one look brought.

    Attributes:
        messages: in the order of offsets, without errors.
        position: behind them, or behind what nothing stands for.
    """

    messages: Sequence[Message]
    position: int


class TopicClient:
    """Reads one topic. Safe for threads; not for forks: ``lent`` makes one for each process.

    Args:
        options: of librdkafka; with secrets.
        topic: its name.
        without_secrets: takes them out of a text.
    """

    def __init__(self, options: Mapping[str, Any], topic: str, without_secrets: Callable[[str], str] = str) -> None:
        self._topic = topic
        self._shown = without_secrets
        self._errors: list[KafkaError] = []
        self._lock = threading.RLock()
        self._place: tuple[int, int] | None = None
        self._ahead: list[Message] = []
        self.made_at = time.monotonic()
        silent = logging.getLogger("slackwater.kafka")
        silent.propagate, silent.disabled = False, True
        shared: dict[str, Any] = {
            **options, "log_level": 3, "client.id": "slackwater", "error_cb": self._note, "socket.keepalive.enable": True,
            "reconnect.backoff.max.ms": 2_000, "socket.timeout.ms": int(ANSWER_S * 1_000),
        }  # fmt: skip
        own: dict[str, Any] = {
            "group.id": "slackwater", "enable.auto.commit": False, "enable.auto.offset.store": False, "enable.partition.eof": True,
            "auto.offset.reset": "error", "isolation.level": "read_committed", "fetch.wait.max.ms": 100, "fetch.error.backoff.ms": 100,
            "queued.min.messages": 200_000, "queued.max.messages.kbytes": 32 * 1024, "fetch.message.max.bytes": 4 << 20,
        }  # fmt: skip
        try:
            self._consumer = Consumer({**shared, **own}, logger=silent)
            self._admin = AdminClient(shared, logger=silent)
        except KafkaException as error:
            raise SourceUnavailable(f"a client of Kafka cannot be made: {self._text(error)}") from error

    def close(self) -> None:
        """Leave the brokers."""
        with self._lock:
            self._consumer.close()

    def partitions(self) -> list[int]:
        """Return the topic's partitions.

        Raises:
            TopicMissing, TopicDenied, SourceUnavailable: see there.
        """
        with self._asking("its partitions cannot be asked for"):
            found = self._consumer.list_topics(self._topic, timeout=ANSWER_S).topics[self._topic]
        if found.error is not None:
            raise self._meaning(found.error, "its partitions cannot be asked for")
        return sorted(found.partitions)

    def topic_id(self) -> str | None:
        """Return the topic's id, by which one that was made again differs; None: this broker knows none."""
        try:
            asked = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=2.0)
            return str(asked[self._topic].result(ANSWER_S).topic_id)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._TIMED_OUT:  # noqa: SLF001 - a cluster without a controller, such as librdkafka's mock
                return None
            raise self._meaning(error.args[0], "its id cannot be asked for") from error

    def ends(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return, by partition, the position behind what is committed (the last stable offset)."""
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def lows(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return, by partition, where its log begins."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def at(self, partitions: Sequence[int], time_ms: int) -> dict[int, int | None]:
        """Return, by partition, the offset of the first record with this timestamp or a later one; None: there is none (``offsetsForTimes``)."""
        asked = [TopicPartition(self._topic, each, max(0, time_ms)) for each in partitions]
        with self._lock, self._asking("offsets of a time cannot be asked for"):
            found = self._consumer.offsets_for_times(asked, timeout=ANSWER_S)
        for each in found:
            if each.error is not None:
                raise self._meaning(each.error, "offsets of a time cannot be asked for")
        return {each.partition: each.offset if each.offset >= 0 else None for each in found}

    def take(self, partition: int, start: int, end: int) -> Taken:
        """Take some of the records in ``[start, end)``: what is there at once, at least one record or the end.

        Raises:
            OffsetOutOfRange: ``start`` is not there any more, or not yet.
            SourceUnavailable: no record comes.
        """
        with self._lock:
            if self._place != (partition, start):
                self._consumer.assign([TopicPartition(self._topic, partition, start)])
                self._ahead, self._errors[:] = [], []
            self._place = None  # whatever fails: the next one begins anew
            taken = self._taken(partition, start, end)
            self._place = (partition, taken.position)
            return taken

    def _taken(self, partition: int, start: int, end: int) -> Taken:
        silent_at = time.monotonic() + SILENT_S
        while True:
            messages, self._ahead = self._ahead or self._consumer.consume(FETCH_MESSAGES, STEP_S), []
            good, position = self._sorted(messages, partition, start)
            if good and _offset(good[-1]) >= end:
                place = _first_from(good, end)
                # What lies behind the end belongs to the next call, which goes on there.
                self._ahead, good, position = good[place:], good[:place], end
            if good or position > start:
                return Taken(good, min(position, end))
            if time.monotonic() > silent_at:
                raise SourceUnavailable(
                    f"topic {self._topic!r}, partition {partition}: no record comes from the broker{self._why()}"
                )

    def _sorted(self, messages: list[Message], partition: int, start: int) -> tuple[list[Message], int]:
        """Return records and the position behind them."""
        errors = [message.error() for message in messages]
        if not any(errors):
            return messages, (_offset(messages[-1]) + 1 if messages else start)
        good, position = [], start
        for message, error in zip(messages, errors, strict=True):
            if error is None:
                good.append(message)
                position = _offset(message) + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                position = max(position, _offset(message))
            elif error.code() in _OUT_OF_RANGE:
                if good:
                    continue  # the next call asks for it again
                raise OffsetOutOfRange(f"partition {partition}, offset {start}")
            elif error.code() not in _UNIMPORTANT and not error.retriable():
                raise self._unavailable(error, f"partition {partition} cannot be read")
        return good, position

    def _offsets(self, partitions: Sequence[int], spec: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(self._topic, each): spec for each in partitions}
        with self._asking("its offsets cannot be asked for"):
            found = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_S)
            return {place.partition: int(future.result(ANSWER_S + 5).offset) for place, future in found.items()}

    @contextmanager
    def _asking(self, failing: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._meaning(error.args[0], failing) from error
        except TimeoutError as error:
            raise SourceUnavailable(f"topic {self._topic!r}: {failing}: no answer{self._why()}") from error

    def _meaning(self, error: KafkaError, failing: str) -> Exception:
        if error.code() in _GONE:
            return TopicMissing(self._topic)
        return TopicDenied(self._text(error)) if error.code() in _DENIED else self._unavailable(error, failing)

    def _unavailable(self, error: KafkaError, failing: str) -> SourceUnavailable:
        return SourceUnavailable(f"topic {self._topic!r}: {failing}: {self._text(error)}{self._why()}")

    def _note(self, error: KafkaError) -> None:
        self._errors[:] = [*self._errors[-4:], error]

    def _why(self) -> str:
        known = list(dict.fromkeys(self._shown(error.str()) for error in self._errors))
        return f" ({'; '.join(known)[:300]})" if known else ""

    def _text(self, error: KafkaError | KafkaException) -> str:
        found = error.args[0] if isinstance(error, KafkaException) else error
        return self._shown(found.str() if isinstance(found, KafkaError) else str(found))[:300]


def _offset(message: Message) -> int:
    return cast("int", message.offset())  # None only of what is produced


def _first_from(messages: Sequence[Message], offset: int) -> int:
    """Return the place of the first record at an offset or behind it."""
    low, high = 0, len(messages)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _offset(messages[middle]) < offset else (low, middle)
    return low


_KEPT: Final[dict[tuple[int, str, KafkaPlace], TopicClient]] = {}
_LOCK: Final = threading.Lock()


@contextmanager
def lent(dsn: str, place: KafkaPlace) -> Iterator[TopicClient]:
    """Lend this process's client of a topic. One that fails is made anew by the next call.

    Raises:
        SourceUnavailable: the connection is not there, or its secrets cannot be read here.
    """
    key = (os.getpid(), dsn, place)
    with _LOCK:
        client = _KEPT.pop(key, None)
    if client is not None and time.monotonic() - client.made_at > KEPT_S:
        client.close()
        client = None
    client = client or opened(connection_of(dsn, place), place.topic)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    with _LOCK:
        other, _KEPT[key] = _KEPT.get(key), client
    if other is not None:
        other.close()


def opened(connection: Resolved, topic: str) -> TopicClient:
    """Return a client of a topic.

    Raises:
        SourceUnavailable: the connection is of another kind, or a secret cannot be read here.
    """
    definition = connection.definition
    if not isinstance(definition, KafkaConnection):
        raise SourceUnavailable(f"the connection '{connection.name}' is one of type {definition.type}; name one of type kafka")
    try:
        options = librdkafka_options(definition, connection.reader)
    except (SecretMissing, CertificateUnreadable) as error:
        raise SourceUnavailable(f"connection '{connection.name}': {connection.reader.without_secrets(str(error))}") from error
    return TopicClient(options, topic, connection.reader.without_secrets)


def connection_of(dsn: str, place: KafkaPlace) -> Resolved:
    """Return how a topic's brokers are reached, as the database says now.

    Raises:
        SourceUnavailable: it does not say, or a host may not be reached.
    """
    surroundings = Surroundings.of()
    if place.connection is None:
        return resolved(Stored("bootstrap", "kafka", {"type": "kafka", "bootstrap": place.bootstrap}, {}), surroundings)
    try:
        with shared_connection(dsn) as connection:
            return load(connection, place.connection, surroundings)
    except ConnectionMissing as error:
        raise SourceUnavailable(str(error)) from error
    except psycopg.Error as error:
        raise SourceUnavailable(f"the connection '{place.connection}' cannot be looked up: {error}") from error
