"""The port through which records are fetched from brokers. Knows no formats, no relations, and no use of the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import polars as pl
from confluent_kafka import KafkaError

from engine.frames.clocks import I64

NO_TIMESTAMP_MS: Final = -1
"""Timestamp of records older than Kafka's timestamps, and of all records if nobody reads timestamps: refused as out of range where
a timestamp is needed."""

HEADERS: Final = pl.List(pl.Struct({"key": pl.String, "value": pl.Binary}))
"""Headers of one record, the last of each name."""


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The fields of records to read. Each of the last two costs a call per record.

    Attributes:
        has_keys: their keys.
        has_values: their values; else values are empty, and still null if the record has none.
        has_times: their timestamps.
        has_headers: their headers.
    """

    has_keys: bool = True
    has_values: bool = True
    has_times: bool = True
    has_headers: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of one partition, in the order of their offsets.

    Attributes:
        keys: bytes; null: the record has none, or nobody reads keys.
        values: bytes; null: a tombstone.
        offsets: of the partition, rising, perhaps with gaps.
        timestamps: CreateTime or LogAppendTime in ms; ``NO_TIMESTAMP_MS`` if there is none.
        headers: as ``HEADERS``; None if nobody reads them.
    """

    keys: pl.Series
    values: pl.Series
    offsets: I64
    timestamps: I64
    headers: pl.Series | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def size_bytes(self) -> int:
        """Size of keys, values and headers together."""
        size = int(self.keys.bin.size().sum() or 0) + int(self.values.bin.size().sum() or 0)
        if self.headers is None or not len(self.headers):
            return size
        entries = self.headers.explode().struct
        return size + int(entries.field("key").str.len_bytes().sum() or 0) + int(entries.field("value").bin.size().sum() or 0)

    def part(self, first: int, last: int) -> Fetched:
        """Return the records from one place to another."""
        headers = None if self.headers is None else self.headers[first:last]
        return Fetched(
            self.keys[first:last], self.values[first:last], self.offsets[first:last], self.timestamps[first:last], headers
        )  # fmt: skip

    def within(self, start: int, end: int) -> Fetched:
        """Return the records whose offsets lie in ``[start, end)``."""
        first, last = (int(place) for place in np.searchsorted(self.offsets, [start, end]))
        return self if last - first == len(self) else self.part(first, last)

    @classmethod
    def joined(cls, parts: list[Fetched]) -> Fetched:
        """Concatenate at least one part."""
        if len(parts) == 1:
            return parts[0]
        headers = None if parts[0].headers is None else pl.concat([part.headers for part in parts if part.headers is not None])
        return cls(
            pl.concat([part.keys for part in parts]),
            pl.concat([part.values for part in parts]),
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.timestamps for part in parts]),
            headers,
        )

    @classmethod
    def nothing(cls, wanted: RecordFields) -> Fetched:
        empty = np.empty(0, np.int64)
        headers = pl.Series("headers", [], HEADERS) if wanted.has_headers else None
        return cls(pl.Series("key", [], pl.Binary), pl.Series("value", [], pl.Binary), empty, empty, headers)


@dataclass(frozen=True, slots=True)
class Fault:
    """A report beside records.

    Attributes:
        error: of librdkafka; the end of a partition is one.
        offset: where.
    """

    error: KafkaError
    offset: int


@dataclass(frozen=True, slots=True)
class Polled:
    """The result of one look."""

    records: Fetched
    faults: tuple[Fault, ...] = ()


class Fetcher(Protocol):
    """Fetches from the partitions of one topic. For one thread at a time, in the process that made it."""

    def begin(self, partition: int, offset: int) -> None:
        """Fetch a partition from an offset on, and drop records fetched earlier."""
        ...

    def poll(self, partition: int, most: int, wait_s: float) -> Polled:
        """Return fetched records of a partition: those available, else the first that come.

        Args:
            partition: which; ``begin`` was called for it.
            most: greatest number of records.
            wait_s: how long to wait for the first.
        """
        ...

    def end(self, partition: int) -> None:
        """Stop fetching a partition."""
        ...

    def close(self) -> None:
        """Close the connections to brokers."""
        ...
