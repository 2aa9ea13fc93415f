"""Asking brokers about one topic: its partitions, where they begin and end. Every question is bounded in time.

A broker that refuses this user gives no answer at all, and librdkafka retries for ever. So each wait checks why there is no answer yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # the package names them so in its documentation
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
    TopicMetadata,
)

from engine.connections.kafka import silent_logger
from engine.errors import SourceUnavailable
from engine.sources.kafka.brokers.broker_errors import AWAY, BEING_ELECTED, BrokerErrors
from engine.sources.kafka.brokers.unreachable import BrokersAway

ANSWER_S: Final = 10.0
"""Limit of one question to the brokers; a broker that restarts is away longer, and the next attempt asks it again."""

_STEP_S: Final = 0.5
"""librdkafka retries for ever if a broker refuses this user; after this time we check why there is no answer yet.

A repeated question about partitions loses the answer that is on its way, so each question waits twice as long as the one before.
"""

_AGAIN_S: Final = 0.1
"""Delay before a repeated question about a partition without a known leader."""

R = TypeVar("R")


class TopicClient:
    """Asks about one topic. Safe for threads, but not for forks: ``asking`` has one for each process.

    Args:
        options: of librdkafka; with secrets.
        topic: its name.
        without_secrets: removes secrets from a text.

    Attributes:
        made_at: by ``time.monotonic``.
        used_at: time of the last use.
    """

    def __init__(self, options: Mapping[str, str], topic: str, without_secrets: Callable[[str], str] = str) -> None:
        self._topic = topic
        self._troubles = BrokerErrors(topic, without_secrets)
        self.made_at = self.used_at = time.monotonic()
        given: dict[str, Any] = {**shared_options(options), "error_cb": self._troubles.note}
        try:
            self._admin = AdminClient(given, logger=silent_logger())
        except KafkaException as error:
            raise SourceUnavailable(f"a client of Kafka cannot be made: {without_secrets(error.args[0].str())[:300]}") from error

    def partitions(self) -> list[int]:
        """Return the topic's partitions.

        Raises:
            TopicMissing, TopicDenied, BrokersAway: see there.
        """
        try:
            with self._asking("its partitions cannot be asked for"):
                found = self._metadata(time.monotonic() + ANSWER_S)
        except SourceUnavailable as error:  # any broker can answer
            raise BrokersAway(str(error)) from error
        if found.error is not None:
            raise self._troubles.meaning(found.error, "its partitions cannot be asked for")
        return sorted(found.partitions)

    def topic_id(self) -> str | None:
        """Return the topic's id, which changes if the topic is made again; None: this broker knows no ids."""
        with self._asking("its id cannot be asked for"):
            try:
                asked = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=2.0)
                return str(self._result(asked[self._topic], time.monotonic() + ANSWER_S).topic_id)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT:  # noqa: SLF001 - a cluster without a controller, such as librdkafka's mock
                    raise
        return None

    def ends(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return, by partition, the position after the committed records (the last stable offset)."""
        return self.ends_and_epochs(partitions)[0]

    def ends_and_epochs(self, partitions: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Return ``ends``, and by partition its leader's epoch if the broker gives it."""
        found = self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        epochs = {partition: at.leader_epoch for partition, at in found.items() if at.leader_epoch is not None}
        return {partition: int(at.offset) for partition, at in found.items()}, epochs

    def written(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return, by partition, the position after all written records, including those of open transactions."""
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
            until = time.monotonic() + ANSWER_S
            while True:
                found = self._admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_S)
                try:
                    return {place.partition: self._result(future, until) for place, future in found.items()}
                except KafkaException as error:
                    if error.args[0].code() not in BEING_ELECTED or time.monotonic() > until:
                        raise
                time.sleep(_AGAIN_S)

    def _metadata(self, until: float) -> TopicMetadata:
        """Ask for the topic's partitions. Do not wait for a broker that refuses this user, because it gives no answer."""
        step_s = _STEP_S
        while True:
            try:
                found = self._admin.list_topics(self._topic, timeout=max(0.01, min(step_s, until - time.monotonic())))
            except KafkaException as error:
                self._admin.poll(0)
                if self._troubles.is_denied or error.args[0].code() not in AWAY or time.monotonic() >= until:
                    raise
                step_s *= 2
            else:
                topic = found.topics[self._topic]
                if topic.error is None or topic.error.code() not in BEING_ELECTED or time.monotonic() >= until:
                    return topic
                time.sleep(_AGAIN_S)

    def _result(self, future: Future[R], until: float) -> R:
        """Wait for an answer; see ``_metadata``."""
        while True:
            try:
                return future.result(max(0.01, min(_STEP_S, until - time.monotonic())))
            except TimeoutError:
                self._admin.poll(0)
                if self._troubles.is_denied or time.monotonic() >= until:
                    raise

    @contextmanager
    def _asking(self, failing: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            self._admin.poll(0)  # reports about brokers
            raise self._troubles.meaning(error.args[0], failing) from error
        except TimeoutError as error:
            self._admin.poll(0)
            raise self._troubles.silent(f"{failing}: no answer") from error


def shared_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of all clients of brokers, beside addresses and credentials."""
    return {
        **options, "log_level": "3", "client.id": "slackwater", "socket.keepalive.enable": "true", "reconnect.backoff.max.ms": "2000",
        "socket.timeout.ms": str(int(ANSWER_S * 1_000)),
    }  # fmt: skip
