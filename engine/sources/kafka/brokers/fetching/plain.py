"""Fetches through ``confluent_kafka``'s consumer, if librdkafka cannot be called directly: a Python object for each record.

Each property of a batch is read in one pass of ``map``. One partition is fetched at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import starmap
from typing import Any, Final, cast

import numpy as np
import polars as pl
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from engine.connections.kafka import silent_logger
from engine.errors import SourceUnavailable
from engine.sources.kafka.brokers.fetching.port import HEADERS, NO_TIMESTAMP_MS, Fault, Fetched, Polled, RecordFields

MOST_AT_ONCE: Final = 50_000


class PlainFetcher:
    """A ``Fetcher``; for the arguments see ``NativeFetcher``."""

    def __init__(self, options: Mapping[str, str], topic: str, wanted: RecordFields, note: Callable[[KafkaError], None]) -> None:
        self._topic, self._wanted = topic, wanted
        self._assigned: int | None = None
        given: dict[str, Any] = {**options, "error_cb": note}
        try:
            self._consumer = Consumer(given, logger=silent_logger())
        except KafkaException as error:
            raise SourceUnavailable(f"a client of Kafka cannot be made: {error.args[0].str()}") from error

    def begin(self, partition: int, offset: int) -> None:
        self._consumer.assign([TopicPartition(self._topic, partition, offset)])
        self._assigned = partition

    def poll(self, partition: int, most: int, wait_s: float) -> Polled:
        if partition != self._assigned:
            raise ValueError(f"partition {partition} was not begun")
        messages = self._consumer.consume(min(most, MOST_AT_ONCE), 0)
        if not messages:
            messages = self._consumer.consume(1, wait_s)
            messages += self._consumer.consume(min(most, MOST_AT_ONCE) - 1, 0) if messages and most > 1 else []
        errors = [message.error() for message in messages]
        if not any(errors):
            return Polled(columns_of(messages, self._wanted))
        faults = tuple(
            Fault(error, cast("int", message.offset()))
            for message, error in zip(messages, errors, strict=True)
            if error is not None
        )
        good = [message for message, error in zip(messages, errors, strict=True) if error is None]
        return Polled(columns_of(good, self._wanted), faults)

    def end(self, partition: int) -> None:
        if partition == self._assigned:
            self._consumer.unassign()
            self._assigned = None

    def close(self) -> None:
        self._consumer.close()


def columns_of(messages: list[Message], wanted: RecordFields) -> Fetched:
    count = len(messages)
    values = map(Message.value, messages)
    times = starmap(_time, map(Message.timestamp, messages)) if wanted.has_times else iter([NO_TIMESTAMP_MS] * count)
    headers = [_headers(message) for message in messages] if wanted.has_headers else None
    return Fetched(
        _binary("key", map(Message.key, messages) if wanted.has_keys else [None] * count),
        _binary("value", values if wanted.has_values else (None if value is None else b"" for value in values)),
        np.fromiter(map(Message.offset, messages), np.int64, count),
        np.fromiter(times, np.int64, count),
        None if headers is None else pl.Series("headers", headers, dtype=HEADERS),
    )


def _time(kind: int, time_ms: int) -> int:
    return time_ms if kind else NO_TIMESTAMP_MS


def _headers(message: Message) -> list[dict[str, Any]]:
    found = dict(cast("list[tuple[str, bytes | None]]", message.headers() or []))
    return [{"key": key, "value": value} for key, value in found.items()]


def _binary(name: str, payloads: Iterable[bytes | None]) -> pl.Series:
    return pl.Series(name, pa.array(list(payloads), pa.large_binary()))
