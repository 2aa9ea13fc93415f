"""A process's clients of brokers: one for each topic that is asked about it, others that fetch. Secrets are read here and kept nowhere else.

What librdkafka reports becomes ``SourceUnavailable``, which is tried again, or one of ``troubles``; everything is bounded in time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # the package names them so in its documentation
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from engine.connectors.connections.certificates import CertificateUnreadable
from engine.connectors.connections.kafka import KafkaConnection, librdkafka_options, silent_logger
from engine.connectors.connections.stored import Resolved, Stored, WrongConnection, load, resolved
from engine.connectors.connections.surroundings import SecretMissing, Surroundings
from engine.connectors.kafka.definition import KafkaPlace
from engine.connectors.kafka.fetch_size import MOST_BYTES, FetchSize
from engine.connectors.kafka.fetching.library import library
from engine.connectors.kafka.fetching.native import NativeFetcher
from engine.connectors.kafka.fetching.plain import PlainFetcher
from engine.connectors.kafka.fetching.port import Fetcher, Wanted
from engine.connectors.kafka.taking import RESTING_S, Taker
from engine.connectors.kafka.troubles import Troubles
from engine.connectors.postgres import shared_connection
from engine.errors import SourceUnavailable

ANSWER_S: Final = 10.0
"""Of one question to the brokers; a broker that starts again is away longer, and is asked again by the next attempt."""

ELECTED_S: Final = 2.0
"""So long a partition may be without a leader that is known here, as one is that was just made or has moved."""

_BEING_ELECTED: Final = {
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,
}  # fmt: skip

KEPT_S: Final = 600.0
"""A client is made anew after this time, so that a changed connection and changed secrets are seen."""

AHEAD_KB: Final = 8 * 1024
"""What is fetched ahead of a partition: enough for a broker to answer meanwhile; more would be lost where another process reads on."""


class TopicClient:
    """Asks about one topic. Safe for threads; not for forks: ``asking`` has one for each process.

    Args:
        options: of librdkafka; with secrets.
        topic: its name.
        without_secrets: takes them out of a text.

    Attributes:
        made_at: by ``time.monotonic``.
        used_at: when it was lent last.
    """

    def __init__(self, options: Mapping[str, str], topic: str, without_secrets: Callable[[str], str] = str) -> None:
        self._topic = topic
        self._troubles = Troubles(topic, without_secrets)
        self.made_at = self.used_at = time.monotonic()
        given: dict[str, Any] = {**_shared(options), "error_cb": self._troubles.note}
        try:
            self._admin = AdminClient(given, logger=silent_logger())
        except KafkaException as error:
            raise SourceUnavailable(f"a client of Kafka cannot be made: {without_secrets(error.args[0].str())[:300]}") from error

    def partitions(self) -> list[int]:
        """Return the topic's partitions.

        Raises:
            TopicMissing, TopicDenied, SourceUnavailable: see there.
        """
        with self._asking("its partitions cannot be asked for"):
            found = self._admin.list_topics(self._topic, timeout=ANSWER_S).topics[self._topic]
        if found.error is not None:
            raise self._troubles.meaning(found.error, "its partitions cannot be asked for")
        return sorted(found.partitions)

    def topic_id(self) -> str | None:
        """Return the topic's id, by which one that was made again differs; None: this broker knows none."""
        with self._asking("its id cannot be asked for"):
            try:
                asked = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=2.0)
                return str(asked[self._topic].result(ANSWER_S).topic_id)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT:  # noqa: SLF001 - a cluster without a controller, such as librdkafka's mock
                    raise
        return None

    def ends(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return, by partition, the position behind what is committed (the last stable offset)."""
        return self.ends_and_epochs(partitions)[0]

    def ends_and_epochs(self, partitions: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Return ``ends``, and by partition its leader's epoch, where the broker tells it."""
        found = self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        epochs = {partition: at.leader_epoch for partition, at in found.items() if at.leader_epoch is not None}
        return {partition: int(at.offset) for partition, at in found.items()}, epochs

    def written(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return, by partition, the position behind all that is written, by transactions that have not ended too."""
        found = self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]
        return {partition: int(at.offset) for partition, at in found.items()}

    def lows(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return, by partition, where its log begins."""
        found = self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        return {partition: int(at.offset) for partition, at in found.items()}

    def at(self, partitions: Sequence[int], time_ms: int) -> dict[int, int | None]:
        """Return, by partition, the offset of the first record with this timestamp or a later one; None: there is none (``offsetsForTimes``)."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(max(0, time_ms)))
        return {partition: int(at.offset) if at.offset >= 0 else None for partition, at in found.items()}

    def _offsets(
        self, partitions: Sequence[int], spec: OffsetSpec, level: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[int, ListOffsetsResultInfo]:
        asked = {TopicPartition(self._topic, each): spec for each in partitions}
        with self._asking("its offsets cannot be asked for"):
            until = time.monotonic() + ELECTED_S
            while True:
                found = self._admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_S)
                try:
                    return {place.partition: future.result(ANSWER_S + 5) for place, future in found.items()}
                except KafkaException as error:
                    if error.args[0].code() not in _BEING_ELECTED or time.monotonic() > until:
                        raise
                time.sleep(ELECTED_S / 20)

    @contextmanager
    def _asking(self, failing: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            self._admin.poll(0)  # what is reported of brokers
            raise self._troubles.meaning(error.args[0], failing) from error
        except TimeoutError as error:
            self._admin.poll(0)
            raise self._troubles.silent(f"{failing}: no answer") from error


@dataclass(slots=True)
class _Clients:
    """What a process has of one topic.

    Attributes:
        asking: is shared by threads.
        fetch_size: of one answer, for clients that are made now.
        fetching: by what they fetch; those that nobody has now.
    """

    asking: TopicClient | None = None
    fetch_size: FetchSize = field(default_factory=FetchSize)
    fetching: dict[Wanted, list[Taker]] = field(default_factory=dict)

    def resting(self) -> list[Taker]:
        """Give up the clients that nobody has used for a while: they are of queries that are paused, or gone, or of definitions that were tried.

        Returns:
            Those that fetch, to be closed; who asks is closed when nobody has it.
        """
        if self.asking is not None and time.monotonic() - self.asking.used_at > RESTING_S:
            self.asking = None
        found = [taker for idle in self.fetching.values() for taker in idle if taker.is_resting]
        for idle in self.fetching.values():
            idle[:] = [taker for taker in idle if taker not in found]
        return found


_KEPT: Final[dict[tuple[int, str, KafkaPlace], _Clients]] = {}
_LOCK: Final = threading.Lock()


@contextmanager
def asking(dsn: str, place: KafkaPlace) -> Iterator[TopicClient]:
    """Lend this process's client that asks about a topic. One that fails is made anew by the next call.

    Raises:
        SourceUnavailable: the connection is not there, or its secrets cannot be read here.
    """
    clients = _clients(dsn, place)
    client = clients.asking
    if client is None or time.monotonic() - client.made_at > KEPT_S:
        client = clients.asking = opened(connection_of(dsn, place), place.topic)
    client.used_at = time.monotonic()
    try:
        yield client
    except BaseException:
        clients.asking = None
        raise
    client.used_at = time.monotonic()


@contextmanager
def taking(dsn: str, place: KafkaPlace, wanted: Wanted, partition: int, start: int) -> Iterator[Taker]:
    """Lend a client of this process's that fetches, to one thread: best the one that has fetched what lies at ``start`` already.

    Raises:
        SourceUnavailable: see ``asking``.
    """
    clients = _clients(dsn, place)
    with _LOCK:
        fetch_bytes = clients.fetch_size.now(time.monotonic())
        idle = clients.fetching.setdefault(wanted, [])
        fitting = next((each for each in idle if each.is_at(partition, start)), idle[-1] if idle else None)
        if fitting is not None:
            idle.remove(fitting)
    if fitting is not None and (time.monotonic() - fitting.made_at > KEPT_S or fitting.fetch_bytes < fetch_bytes):
        fitting.close()
        fitting = None
    taker = fitting or _taker(connection_of(dsn, place), place.topic, wanted, fetch_bytes)
    try:
        yield taker
    except BaseException as error:
        if isinstance(error, SourceUnavailable):
            with _LOCK:
                clients.fetch_size.failed(taker.fetch_bytes, time.monotonic())
        taker.close()
        raise
    with _LOCK:
        idle.append(taker)


def opened(connection: Resolved, topic: str) -> TopicClient:
    """Return a client that asks about a topic.

    Raises:
        SourceUnavailable: the connection is of another kind, or a secret cannot be read here.
    """
    return TopicClient(_options(connection), topic, connection.reader.without_secrets)


def fetcher_of(
    options: Mapping[str, str], topic: str, wanted: Wanted, troubles: Troubles, fetch_bytes: int = MOST_BYTES
) -> Fetcher:
    """Return what fetches a topic's records: librdkafka itself where it can be called.

    Args:
        options: of librdkafka that say how brokers are reached; with secrets.
        topic: its name.
        wanted: what of records.
        troubles: notes what goes wrong with brokers.
        fetch_bytes: of one answer of a broker's.
    """
    given = {
        **_shared(options), **_CONSUMER, "isolation.level": "read_committed", "fetch.wait.max.ms": "100", "fetch.error.backoff.ms": "100",
        "queued.min.messages": "200000", "queued.max.messages.kbytes": str(AHEAD_KB),
        "fetch.message.max.bytes": str(fetch_bytes), "fetch.queue.backoff.ms": "10",
    }  # fmt: skip
    if (found := library()) is not None:
        return NativeFetcher(found, given, topic, wanted, troubles.note)
    return PlainFetcher(given, topic, wanted, troubles.note)


def consumer_options(connection: Resolved) -> dict[str, Any]:
    """Return what a consumer is told that looks at single records; with secrets.

    Raises:
        SourceUnavailable: see ``opened``.
    """
    return {**_shared(_options(connection)), **_CONSUMER}


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
    except WrongConnection as error:
        raise SourceUnavailable(str(error)) from error
    except psycopg.Error as error:
        raise SourceUnavailable(f"the connection '{place.connection}' cannot be looked up: {error}") from error


def _taker(connection: Resolved, topic: str, wanted: Wanted, fetch_bytes: int) -> Taker:
    troubles = Troubles(topic, connection.reader.without_secrets)
    return Taker(fetcher_of(_options(connection), topic, wanted, troubles, fetch_bytes), troubles, fetch_bytes)


def _clients(dsn: str, place: KafkaPlace) -> _Clients:
    unused: list[Taker] = []
    with _LOCK:
        own = os.getpid()
        for (process, _, _), each in _KEPT.items():
            if process == own:
                unused += each.resting()
        found = _KEPT.setdefault((own, dsn, place), _Clients())
    for taker in unused:
        taker.close()
    return found


def _options(connection: Resolved) -> dict[str, str]:
    try:
        return librdkafka_options(connection.of_kind(KafkaConnection), connection.reader)
    except WrongConnection as error:
        raise SourceUnavailable(str(error)) from error
    except (SecretMissing, CertificateUnreadable) as error:
        raise SourceUnavailable(f"connection '{connection.name}': {connection.reader.without_secrets(str(error))}") from error


_CONSUMER: Final = {
    "group.id": "slackwater", "enable.auto.commit": "false", "enable.auto.offset.store": "false", "enable.partition.eof": "true",
    "auto.offset.reset": "error",
}  # fmt: skip
"""Positions are the service's: nothing is committed to a group, and none is looked for elsewhere."""


def _shared(options: Mapping[str, str]) -> dict[str, str]:
    return {
        **options, "log_level": "3", "client.id": "slackwater", "socket.keepalive.enable": "true", "reconnect.backoff.max.ms": "2000",
        "socket.timeout.ms": str(int(ANSWER_S * 1_000)),
    }  # fmt: skip
