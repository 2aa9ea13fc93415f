"""All records between two offsets of a partition, in pieces, and in chunks with their event times; and the handling of removed records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from engine.definition.sources.kafka import KafkaPlace
from engine.errors import RecordsRemoved, SourceUnavailable
from engine.records.canonical import MAX_EVENT_TIME_MS
from engine.sources.dating import Dated
from engine.sources.kafka.brokers.broker_errors import OffsetOutOfRange, TopicDenied, TopicMissing
from engine.sources.kafka.brokers.client import asking, consumer_loop
from engine.sources.kafka.brokers.fetching.port import Fetched, RecordFields
from engine.sources.kafka.brokers.topic_client import TopicClient

PIECE_RECORDS: Final = 65_536
PIECE_BYTES: Final = 16 << 20
"""A piece is decoded and validated at once."""


class RangePart(NamedTuple):
    """A piece of a range.

    Attributes:
        start: it has all records in ``[start, stop)``.
        stop: see there.
        records: in the order of their offsets.
    """

    start: int
    stop: int
    records: Fetched


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as one process reads it.

    Attributes:
        dsn: of the database with the connections.
        place: which topic.
        wanted: the fields of its records.
        stopping: names of the relations that do not allow removed records to be left out.
    """

    dsn: str
    place: KafkaPlace
    wanted: RecordFields
    stopping: tuple[str, ...]

    @contextmanager
    def client(self) -> Iterator[TopicClient]:
        """Borrow the client for questions about it.

        Raises:
            SourceUnavailable: it cannot be read now.
        """
        with self.explained_errors(), asking(self.dsn, self.place) as client:
            yield client

    def parts(self, partition: int, start: int, end: int, lost: list[int]) -> Iterator[RangePart]:
        """Yield the records in ``[start, end)``; add the number of removed offsets to ``lost``.

        Raises:
            RecordsRemoved: removed records may not be left out.
            SourceUnavailable: it cannot be read now.
        """
        while start < end:
            found: list[Fetched] = []
            position, count, size = start, 0, 0
            is_overtaken = False
            with self.explained_errors(), consumer_loop(self.dsn, self.place, self.wanted, partition, start) as taker:
                while position < end and count < PIECE_RECORDS and size < PIECE_BYTES:
                    try:
                        taken = taker.take(partition, position, end, PIECE_RECORDS - count)
                    except OffsetOutOfRange:
                        is_overtaken = True
                        break
                    found.append(taken.records)
                    position, count, size = taken.position, count + len(taken.records), size + taken.records.size_bytes
            if position > start:
                yield RangePart(start, position, Fetched.joined(found))
            start = position
            if is_overtaken:
                start = self._overtaken(partition, position, end, lost)

    def _overtaken(self, partition: int, start: int, end: int, lost: list[int]) -> int:
        """Return where reading continues after removed records.

        Raises:
            RecordsRemoved: it may not continue.
            SourceUnavailable: the partition is shorter than it was.
        """
        with self.client() as client:
            low = client.lows([partition])[partition]
        name = self.place.topic
        if low <= start:
            raise SourceUnavailable(
                f"topic {name!r}, partition {partition}: the broker has not what lies at {start}, and its log begins at {low}; "
                "where it ends is asked again"
            )
        self.require_available(partition, start, low)
        stop = min(low, end)
        lost.append(stop - start)
        return stop

    def require_available(self, partition: int, start: int, low: int) -> None:
        """Refuse to continue after removed records that may not be left out.

        Raises:
            RecordsRemoved: see there.
        """
        if start >= low or not self.stopping:
            return
        sources = " and ".join(self.stopping)
        raise RecordsRemoved(
            f"topic {self.place.topic!r}, partition {partition}: records {start} to {low - 1} were removed by its retention before "
            f'this query read them. PUT the source {sources} with `"on_lost": "skip"` in its connector, and restart the query: it goes '
            "on behind them and counts them (`records_lost`). Or keep records longer (`retention.ms`), and start from scratch without state",
            low,
        )

    @contextmanager
    def explained_errors(self) -> Iterator[None]:
        """Explain in an error what the broker's refusals mean for a query.

        Raises:
            SourceUnavailable: see there.
        """
        try:
            yield
        except TopicMissing as error:
            raise SourceUnavailable(
                f"there is no topic {self.place.topic!r} on the broker; create it, or delete the source"
            ) from error
        except TopicDenied as error:
            raise SourceUnavailable(
                f"the broker does not let this service read topic {self.place.topic!r}: {error}; allow it, or correct the connection"
            ) from error


CHUNK_RECORDS: Final = 8_192
"""Records of a chunk: chunks end at multiples of it, independent of where reading begins."""


@dataclass(frozen=True, slots=True)
class DatedChunk:
    """A chunk whose event times are known.

    Attributes:
        end: the offset after it.
        dated: its event times.
        rows: how many records are inside.
        size_bytes: of their keys, values and headers.
    """

    end: int
    dated: Dated
    rows: int
    size_bytes: int


def chunk_end(start: int, end: int) -> int:
    """Return the end of the chunk that contains a position, at most ``end``."""
    return min((start // CHUNK_RECORDS + 1) * CHUNK_RECORDS, end)


def chunk_of(parts: Sequence[tuple[RangePart, Dated]], start: int, end: int) -> DatedChunk:
    """Cut a chunk out of dated records."""
    records = [part.records.within(start, end) for part, _ in parts if part.start < end and part.stop > start]
    times = []
    for part, dated in parts:
        if part.start < end and part.stop > start:
            first, last = np.searchsorted(dated.offsets, [start, end])
            times.append(Dated(dated.offsets[first:last], dated.times[first:last]))
    return DatedChunk(end, Dated.joined(times), sum(map(len, records)), sum(each.size_bytes for each in records))


def own_times(records: Fetched, bound_ms: int | None) -> Dated:
    """Return the records' own times, without those that are refused as out of range or too far ahead."""
    last = MAX_EVENT_TIME_MS if bound_ms is None else min(MAX_EVENT_TIME_MS, bound_ms)
    good = (records.timestamps >= 0) & (records.timestamps <= last)
    return Dated(records.offsets[good], records.timestamps[good])
