"""A process's clients of brokers: one per topic for questions, others that fetch. Secrets are read here and stored nowhere else.

librdkafka's reports become ``SourceUnavailable``, which is retried, or an error of ``broker_errors``; every call is bounded in time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
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
from engine.sources.kafka.brokers.fetching.library import library
from engine.sources.kafka.brokers.fetching.native import NativeFetcher
from engine.sources.kafka.brokers.fetching.plain import PlainFetcher
from engine.sources.kafka.brokers.fetching.port import Fetcher, RecordFields
from engine.sources.kafka.brokers.topic_client import TopicClient, shared_options
from engine.sources.kafka.brokers.unreachable import AwayBrokers

KEPT_S: Final = 600.0
"""A client is replaced after this time, because a broker's data about itself may have changed."""

CHANGED_S: Final = 3.0
"""Interval at which a process checks whether a connection, or a secret of it, was changed: one row is read for each topic in use."""

AHEAD_KB: Final = 8 * 1024
"""Prefetched data of a partition: enough to bridge a broker's answer; more would be lost if another process reads on."""


MOST_BYTES: Final = 4 << 20
LEAST_BYTES: Final = 64 << 10
STEP: Final = 8
"""A failure divides the size by this factor, growth multiplies it."""

FIRST_GROWTH_S: Final = 10.0
"""After an outage, two growths restore the full size."""

LONGEST_GROWTH_S: Final = 600.0
"""On a link that is always slow, a failed growth costs about 20 s of reading."""


@dataclass(slots=True)
class FetchSize:
    """How many bytes one answer of a broker may hold, for new clients of one topic. Times are monotonic seconds; it reads no clock.

    An answer must come within the client's timeout, so a slow link gets smaller requests. A slow link and an outage look the same while
    they last. So requests shrink after each failure, and grow again after a time of success. After failed growth the next attempt comes
    later.

    Attributes:
        size_bytes: of one answer.
        changed_at_s: time of the last change; None: never.
        growth_s: time without a failure after which it grows.
        has_grown: the last change was a growth.
    """

    size_bytes: int = MOST_BYTES
    changed_at_s: float | None = None
    growth_s: float = FIRST_GROWTH_S
    has_grown: bool = False

    def now(self, now_s: float) -> int:
        """Return the size to fetch with, after growing it if growth is due."""
        if self.changed_at_s is None or now_s - self.changed_at_s < self.growth_s:
            return self.size_bytes
        if self.has_grown:
            self.growth_s = FIRST_GROWTH_S  # the size before this one worked
        if self.size_bytes == MOST_BYTES:
            self.changed_at_s, self.has_grown = None, False
            return self.size_bytes
        self.size_bytes, self.changed_at_s, self.has_grown = self.size_bytes * STEP, now_s, True
        return self.size_bytes

    def failed(self, used_bytes: int, now_s: float) -> None:
        """Record that a client with this size got no answer."""
        if used_bytes > self.size_bytes:
            return  # a client from before the last failure
        if self.has_grown:
            self.growth_s = min(2 * self.growth_s, LONGEST_GROWTH_S)
        self.size_bytes = max(used_bytes // STEP, LEAST_BYTES)
        self.changed_at_s, self.has_grown = now_s, False


@dataclass(slots=True)
class _Clients:
    """A process's clients of one topic.

    Attributes:
        asking: the client for questions, shared by threads.
        options: a digest of the brokers' addresses and credentials, secrets included.
        looked_at: the time of the last check of these, by ``time.monotonic``.
        fetch_size: of one answer, for new clients.
        fetching: idle clients by what they fetch.
    """

    asking: TopicClient | None = None
    options: bytes | None = None
    looked_at: float = float("-inf")
    fetch_size: FetchSize = field(default_factory=FetchSize)
    fetching: dict[RecordFields, list[ConsumerLoop]] = field(default_factory=dict)

    def resting(self) -> list[ConsumerLoop]:
        """Drop clients that were unused for a while: their queries are paused or gone, or their definitions were only tried.

        Returns:
            Those that fetch, to be closed; the client for questions is closed when nobody uses it.
        """
        if self.asking is not None and time.monotonic() - self.asking.used_at > RESTING_S:
            self.asking = None
        found = [taker for idle in self.fetching.values() for taker in idle if taker.is_resting]
        for idle in self.fetching.values():
            idle[:] = [taker for taker in idle if taker not in found]
        return found

    def reached_by(self, options: bytes) -> list[ConsumerLoop]:
        """Record the current digest of addresses and credentials, and drop the clients with another one.

        Returns:
            Idle clients that fetch, to be closed; ``consumer_loop`` closes the borrowed ones.
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
    """Borrow this process's client for questions about a topic. After a failure the next call makes a new client.

    Raises:
        SourceUnavailable: the connection does not exist, its secrets cannot be read here, or its brokers gave no answer a moment ago
            (then no client is made or dropped).
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
    """Borrow one of this process's fetching clients for one thread: preferably one that has prefetched the records at ``start``.

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
    """Return a client for questions about a topic.

    Raises:
        SourceUnavailable: the connection is of another kind, or a secret cannot be read here.
    """
    return TopicClient(_options(connection), topic, connection.reader.without_secrets)


def fetcher_of(
    options: Mapping[str, str], topic: str, wanted: RecordFields, troubles: BrokerErrors, fetch_bytes: int = MOST_BYTES
) -> Fetcher:
    """Return what fetches a topic's records: librdkafka itself if it can be called.

    Args:
        options: of librdkafka with the brokers' addresses and credentials; with secrets.
        topic: its name.
        wanted: the fields of records.
        troubles: records errors of brokers.
        fetch_bytes: of one answer of a broker.
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
    """Return the options of a consumer that reads single records; with secrets.

    Raises:
        SourceUnavailable: see ``topic_client``.
    """
    return {**shared_options(_options(connection)), **_CONSUMER}


def connection_of(dsn: str, place: KafkaPlace) -> Resolved:
    """Return a topic's connection, as the database has it now.

    Raises:
        SourceUnavailable: the database has none, or a host is not allowed.
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
    """Drop the clients of a connection that was changed after they were made.

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
"""The service keeps positions: nothing is committed to a group, and no position comes from elsewhere."""


def ends_within(seconds: float, call: Callable[[], None]) -> bool:
    """Make a call in a separate thread, and abandon the thread if the call takes longer; return whether the call has ended.

    Raises:
        BaseException: an error that the call raises in time.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it again
            raised.append(error)

    thread = threading.Thread(target=run, name="bounded-call", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    return not thread.is_alive()
