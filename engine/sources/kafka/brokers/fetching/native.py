"""Fetches through librdkafka's C interface: batches of pointers, gathered into whole columns.

For each record it calls only ``rd_kafka_message_destroy``, and the functions for its timestamp or headers if they are needed. A partition
has its own queue, so several can be read in turn without losing prefetched records.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any, Final, cast

import numpy as np
import polars as pl
from confluent_kafka import KafkaError

from engine.errors import SourceUnavailable
from engine.frames.clocks import I64
from engine.sources.kafka.brokers.fetching.gathering import U64, gathered, structures
from engine.sources.kafka.brokers.fetching.library import CONSUMER, EVENT_ERROR, MESSAGE, NO_CONSUMER_CLOSE, Library
from engine.sources.kafka.brokers.fetching.port import HEADERS, NO_TIMESTAMP_MS, Fault, Fetched, Polled, RecordFields

MOST_AT_ONCE: Final = 65_536
_TEXT_BYTES: Final = 512


class NativeFetcher:
    """A ``Fetcher``.

    Args:
        library: librdkafka.
        options: of the client; with secrets.
        topic: its name.
        wanted: the fields of records.
        note: called with errors of brokers.
    """

    def __init__(
        self, library: Library, options: Mapping[str, str], topic: str, wanted: RecordFields, note: Callable[[KafkaError], None]
    ) -> None:
        self._library, self._wanted, self._note = library, wanted, note
        self._client = self._made(options)
        self._events = library.queue_get_main(self._client)
        self._topic = library.topic_new(self._client, topic.encode(), None)
        if not self._topic:
            reason = self._last_error()
            self._leave()
            raise SourceUnavailable(f"topic {topic!r} cannot be read: {reason}")
        self._begun: set[int] = set()
        self._pointers: U64 = np.zeros(MOST_AT_ONCE, np.uint64)

    def begin(self, partition: int, offset: int) -> None:
        self.end(partition)
        if self._library.consume_start(self._topic, partition, offset):
            raise SourceUnavailable(f"partition {partition} cannot be read: {self._last_error()}")
        self._begun.add(partition)

    def poll(self, partition: int, most: int, wait_s: float) -> Polled:
        most = min(most, MOST_AT_ONCE)
        count = self._batch(partition, 0, most, 0)
        if not count:
            # The library waits until it has all requested messages: so only the first one is requested with a wait.
            count = self._batch(partition, 0, 1, int(wait_s * 1_000))
            count += self._batch(partition, count, most - count, 0) if 0 < count < most else 0
        self._serve()
        if not count:
            return Polled(Fetched.nothing(self._wanted))
        pointers = self._pointers[:count]
        try:
            return self._columns(pointers, partition)
        finally:
            deque(map(self._library.message_destroy, pointers.tolist()), 0)

    def end(self, partition: int) -> None:
        if partition in self._begun:
            self._begun.discard(partition)
            self._library.consume_stop(self._topic, partition)

    def close(self) -> None:
        for partition in list(self._begun):
            self.end(partition)
        self._library.topic_destroy(self._topic)
        self._leave()

    def _leave(self) -> None:
        self._library.queue_destroy(self._events)
        self._library.destroy_flags(self._client, NO_CONSUMER_CLOSE)

    def _made(self, options: Mapping[str, str]) -> Any:
        library, text = self._library, ctypes.create_string_buffer(_TEXT_BYTES)
        config = library.conf_new()
        for name, value in options.items():
            if library.conf_set(config, name.encode(), value.encode(), text, _TEXT_BYTES):
                library.conf_destroy(config)
                raise SourceUnavailable(f"a client of Kafka cannot be made: {text.value.decode(errors='replace')}")
        library.conf_set_events(config, EVENT_ERROR)
        library.conf_set_log_cb(config, None)
        client = library.new(CONSUMER, config, text, _TEXT_BYTES)
        if not client:
            library.conf_destroy(config)
            raise SourceUnavailable(f"a client of Kafka cannot be made: {text.value.decode(errors='replace')}")
        return client

    def _batch(self, partition: int, place: int, most: int, wait_ms: int) -> int:
        """Write pointers from a place on; return how many."""
        address = self._pointers.ctypes.data + place * self._pointers.itemsize
        count = int(self._library.consume_batch(self._topic, partition, wait_ms, address, most))
        if count < 0:
            raise SourceUnavailable(f"partition {partition} cannot be read: {self._last_error()}")
        return count

    def _columns(self, pointers: U64, partition: int) -> Polled:
        found = structures(pointers, MESSAGE)
        if (found["partition"] != partition).any():
            raise SourceUnavailable(f"librdkafka gave records of another partition than {partition}")
        errors = np.flatnonzero(found["err"])
        faults: tuple[Fault, ...] = ()
        if len(errors):
            texts = gathered(found["payload"][errors], found["len"][errors]).to_pylist()
            faults = tuple(
                Fault(KafkaError(int(code), (text or b"").decode(errors="replace")), int(offset))
                for code, text, offset in zip(found["err"][errors], texts, found["offset"][errors], strict=True)
            )
            good = found["err"] == 0
            found, pointers = found[good], pointers[good]
        wanted = self._wanted
        values = found["payload"] if wanted.has_values else np.where(found["payload"] == 0, np.uint64(0), _SOMEWHERE)
        sizes = found["len"] if wanted.has_values else np.zeros(len(found), np.uint64)
        keys = found["key"] if wanted.has_keys else np.zeros(len(found), np.uint64)
        records = Fetched(
            _series("key", keys, found["key_len"]),
            _series("value", values, sizes),
            found["offset"].astype(np.int64),
            self._times(pointers) if wanted.has_times else np.full(len(found), NO_TIMESTAMP_MS, np.int64),
            self._headers(pointers) if wanted.has_headers else None,
        )
        return Polled(records, faults)

    def _times(self, pointers: U64) -> I64:
        kind = ctypes.c_int()
        found = map(self._library.message_timestamp, pointers.tolist(), repeat(ctypes.byref(kind)))
        return np.fromiter(found, np.int64, len(pointers))

    def _headers(self, pointers: U64) -> pl.Series:
        rows = [[{"key": key, "value": value} for key, value in self._headers_of(each).items()] for each in pointers.tolist()]
        return pl.Series("headers", rows, dtype=HEADERS)

    def _headers_of(self, pointer: int) -> dict[str, bytes | None]:
        headers, name, value, size = ctypes.c_void_p(), ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_size_t()
        if self._library.message_headers(pointer, ctypes.byref(headers)):
            return {}
        found: dict[str, bytes | None] = {}
        place = 0
        while not self._library.header_get_all(
            headers, place, ctypes.byref(name), ctypes.byref(value), ctypes.byref(size)
        ):  # fmt: skip
            content = None if value.value is None else ctypes.string_at(value.value, size.value)
            found[(name.value or b"").decode(errors="replace")] = content
            place += 1
        return found

    def _serve(self) -> None:
        """Handle the client's reports about its brokers."""
        while event := self._library.queue_poll(self._events, 0):
            if self._library.event_type(event) == EVENT_ERROR:
                text = self._library.event_error_string(event) or b""
                self._note(KafkaError(self._library.event_error(event), text.decode(errors="replace")))
            self._library.event_destroy(event)

    def _last_error(self) -> str:
        text = self._library.err2str(self._library.last_error())
        return cast("bytes", text).decode(errors="replace")


_SOMEWHERE: Final = np.uint64(1)
"""An address that is not null, for values without bytes."""


def _series(name: str, addresses: U64, sizes: U64) -> pl.Series:
    return cast("pl.Series", pl.from_arrow(gathered(addresses, sizes))).alias(name)
