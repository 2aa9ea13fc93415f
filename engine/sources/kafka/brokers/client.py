"""A process's clients of brokers: one for each topic that is asked about it, others that fetch. Secrets are read here and kept nowhere else.

What librdkafka reports becomes ``SourceUnavailable``, which is tried again, or one of ``troubles``; everything is bounded in time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import psycopg

from engine.connections.certificates import CertificateUnreadable
from engine.connections.kafka import KafkaConnection, librdkafka_options
from engine.connections.secret_sources import SecretMissing, SecretSources
from engine.connections.stored import Resolved, Stored, WrongConnection, load, resolved
from engine.definition.sources.kafka import KafkaPlace
from engine.errors import SourceUnavailable
from engine.postgres.postgres import shared_connection
from engine.sources.kafka.brokers.broker_errors import BrokerErrors
from engine.sources.kafka.brokers.consumer_loop import RESTING_S, ConsumerLoop
from engine.sources.kafka.brokers.fetch_size import MOST_BYTES, FetchSize
from engine.sources.kafka.brokers.fetching.library import library
from engine.sources.kafka.brokers.fetching.native import NativeFetcher
from engine.sources.kafka.brokers.fetching.plain import PlainFetcher
from engine.sources.kafka.brokers.fetching.port import Fetcher, RecordFields
from engine.sources.kafka.brokers.topic_client import TopicClient, shared_options
from engine.sources.kafka.brokers.unreachable import AwayBrokers

KEPT_S: Final = 600.0
"""A client is made anew after this time: what a broker says of itself may have changed."""

CHANGED_S: Final = 3.0
"""So often a process looks whether a connection, or a secret of it, was changed: one row is read for each topic that is in use."""

AHEAD_KB: Final = 8 * 1024
"""What is fetched ahead of a partition: enough for a broker to answer meanwhile; more would be lost where another process reads on."""


@dataclass(slots=True)
class _Clients:
    """What a process has of one topic.

    Attributes:
        asking: is shared by threads.
        options: a digest of how brokers are reached, secrets included.
        looked_at: when that was looked up, by ``time.monotonic``.
        fetch_size: of one answer, for clients that are made now.
        fetching: by what they fetch; those that nobody has now.
    """

    asking: TopicClient | None = None
    options: bytes | None = None
    looked_at: float = float("-inf")
    fetch_size: FetchSize = field(default_factory=FetchSize)
    fetching: dict[RecordFields, list[ConsumerLoop]] = field(default_factory=dict)

    def resting(self) -> list[ConsumerLoop]:
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

    def reached_by(self, options: bytes) -> list[ConsumerLoop]:
        """Note how brokers are reached now, and give up the clients that reach them otherwise.

        Returns:
            Those that fetch and that nobody has now, to be closed; ``consumer_loop`` closes those that somebody has.
        """
        unused: list[ConsumerLoop] = []
        if self.options not in (None, options):
            self.asking = None
            unused = [taker for idle in self.fetching.values() for taker in idle]
            self.fetching.clear()
        self.options, self.looked_at = options, time.monotonic()
        return unused


_KEPT: Final[dict[tuple[int, str, KafkaPlace], _Clients]] = {}
_LOCK: Final = threading.Lock()
_AWAY: Final = AwayBrokers()


@contextmanager
def asking(dsn: str, place: KafkaPlace) -> Iterator[TopicClient]:
    """Lend this process's client that asks about a topic. One that fails is made anew by the next call.

    Raises:
        SourceUnavailable: the connection is not there, its secrets cannot be read here, or its brokers have given no answer a moment ago
            (then no client is made or given up).
    """
    clients = _clients(dsn, place)
    _forget_changed(clients, dsn, place)
    with _AWAY.asking((os.getpid(), dsn, place.connection or place.bootstrap or "", clients.options)):
        client = clients.asking
        if client is None or time.monotonic() - client.made_at > KEPT_S:
            client = clients.asking = topic_client(connection_of(dsn, place), place.topic)
        client.used_at = time.monotonic()
        try:
            yield client
        except BaseException:
            clients.asking = None
            raise
        client.used_at = time.monotonic()


@contextmanager
def consumer_loop(dsn: str, place: KafkaPlace, wanted: RecordFields, partition: int, start: int) -> Iterator[ConsumerLoop]:
    """Lend a client of this process's that fetches, to one thread: best the one that has fetched what lies at ``start`` already.

    Raises:
        SourceUnavailable: see ``asking``.
    """
    clients = _clients(dsn, place)
    _forget_changed(clients, dsn, place)
    with _LOCK:
        fetch_bytes = clients.fetch_size.now(time.monotonic())
        idle = clients.fetching.setdefault(wanted, [])
        fitting = next((each for each in idle if each.is_at(partition, start)), idle[-1] if idle else None)
        if fitting is not None:
            idle.remove(fitting)
    if fitting is not None and (time.monotonic() - fitting.made_at > KEPT_S or fitting.fetch_bytes < fetch_bytes):
        fitting.close()
        fitting = None
    taker = fitting or _consumer_of(connection_of(dsn, place), place.topic, wanted, fetch_bytes)
    try:
        yield taker
    except BaseException as error:
        if isinstance(error, SourceUnavailable):
            with _LOCK:
                clients.fetch_size.failed(taker.fetch_bytes, time.monotonic())
        taker.close()
        raise
    with _LOCK:
        is_kept = clients.fetching.get(wanted) is idle  # else the connection was changed meanwhile
        if is_kept:
            idle.append(taker)
    if not is_kept:
        taker.close()


def topic_client(connection: Resolved, topic: str) -> TopicClient:
    """Return a client that asks about a topic.

    Raises:
        SourceUnavailable: the connection is of another kind, or a secret cannot be read here.
    """
    return TopicClient(_options(connection), topic, connection.reader.without_secrets)


def fetcher_of(
    options: Mapping[str, str], topic: str, wanted: RecordFields, troubles: BrokerErrors, fetch_bytes: int = MOST_BYTES
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
        **shared_options(options), **_CONSUMER, "isolation.level": "read_committed", "fetch.wait.max.ms": "100", "fetch.error.backoff.ms": "100",
        "queued.min.messages": "200000", "queued.max.messages.kbytes": str(AHEAD_KB),
        "fetch.message.max.bytes": str(fetch_bytes), "fetch.queue.backoff.ms": "10",
    }  # fmt: skip
    if (found := library()) is not None:
        return NativeFetcher(found, given, topic, wanted, troubles.note)
    return PlainFetcher(given, topic, wanted, troubles.note)


def consumer_options(connection: Resolved) -> dict[str, Any]:
    """Return what a consumer is told that looks at single records; with secrets.

    Raises:
        SourceUnavailable: see ``topic_client``.
    """
    return {**shared_options(_options(connection)), **_CONSUMER}


def connection_of(dsn: str, place: KafkaPlace) -> Resolved:
    """Return how a topic's brokers are reached, as the database says now.

    Raises:
        SourceUnavailable: it does not say, or a host may not be reached.
    """
    surroundings = SecretSources.of()
    if place.connection is None:
        return resolved(Stored("bootstrap", "kafka", {"type": "kafka", "bootstrap": place.bootstrap}, {}), surroundings)
    try:
        with shared_connection(dsn) as connection:
            return load(connection, place.connection, surroundings)
    except WrongConnection as error:
        raise SourceUnavailable(str(error)) from error
    except psycopg.Error as error:
        raise SourceUnavailable(f"the connection '{place.connection}' cannot be looked up: {error}") from error


def _consumer_of(connection: Resolved, topic: str, wanted: RecordFields, fetch_bytes: int) -> ConsumerLoop:
    troubles = BrokerErrors(topic, connection.reader.without_secrets)
    return ConsumerLoop(fetcher_of(_options(connection), topic, wanted, troubles, fetch_bytes), troubles, fetch_bytes)


def _clients(dsn: str, place: KafkaPlace) -> _Clients:
    unused: list[ConsumerLoop] = []
    with _LOCK:
        own = os.getpid()
        for (process, _, _), each in _KEPT.items():
            if process == own:
                unused += each.resting()
        found = _KEPT.setdefault((own, dsn, place), _Clients())
    for taker in unused:
        taker.close()
    return found


def _forget_changed(clients: _Clients, dsn: str, place: KafkaPlace) -> None:
    """Give up the clients of a connection that was changed since they were made.

    Raises:
        SourceUnavailable: see ``connection_of``.
    """
    if place.connection is None or time.monotonic() - clients.looked_at < CHANGED_S:
        return
    found = sha256(repr(sorted(_options(connection_of(dsn, place)).items())).encode()).digest()
    with _LOCK:
        unused = clients.reached_by(found)
    for taker in unused:
        taker.close()


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
