"""Reading a topic of Kafka for a query.

Positions are the broker's offsets, up to the last stable one: records of open transactions are not there yet, those of aborted ones and the
transactions' own markers never are, nor is what compaction took. So offsets have gaps, and a position may lie in one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, cast

import polars as pl
from confluent_kafka import Message

from engine.connectors.admission import NO_TS, Chunk
from engine.connectors.canonical import MAX_EVENT_TIME_MS
from engine.connectors.feeds import Limit, ReadRequest, Split, Start, UsualAnswers
from engine.connectors.files.dating import Dated, dating_relations
from engine.connectors.formats.port import FormatInvalid
from engine.connectors.formats.records import RecordReader
from engine.connectors.kafka.client import OffsetOutOfRange, TopicClient, TopicDenied, TopicMissing, lent
from engine.connectors.kafka.definition import KafkaPlace
from engine.connectors.kafka.heads import known_id, note
from engine.connectors.kafka.records import SOURCE_KIND, Records, date_changes, date_records
from engine.connectors.kafka.sides import PatientReader, topic_reader
from engine.connectors.packets import Packet, encode_json
from engine.connectors.postgres import shared_connection
from engine.connectors.shaping import Piece, shape
from engine.errors import DataInvalid, EngineError, SourceUnavailable
from engine.plan.model import Feed, RelationSchema

CHUNK_RECORDS: Final = 8_192
"""The grain in which admission lets event times advance together; chunks end at multiples of it, wherever reading begins."""

SPLIT_RECORDS: Final = 262_144
PIECE_RECORDS: Final = 65_536
PIECE_BYTES: Final = 16 << 20
"""A piece is what is decoded and judged at once."""

RECORD_BYTES: Final = 200
"""What admission takes for the size of a record that nobody has looked at."""

LOW_S: Final = 10.0
"""So often it is asked where partitions begin, and which topic it is. Reading itself finds what is gone."""

KEPT_CHUNKS: Final = 2_000
"""Chunks whose event times are remembered, 130 KB each at most."""


@dataclass(slots=True)
class _Seen:
    """What one process has found of a topic.

    Attributes:
        asked_at: when it was asked where partitions begin.
        dated: partition and start of a chunk → its end, event times, and size.
    """

    asked_at: float = 0.0
    lows: dict[int, int] = field(default_factory=dict)
    noted: tuple[dict[int, int], dict[int, int]] | None = None
    dated: dict[tuple[int, int], tuple[int, Dated, int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KafkaReader(UsualAnswers):
    """A ``FeedReader`` over a topic.

    Attributes:
        relations: what dates the chunks.
    """

    dsn: str
    feed: Feed
    relations: tuple[RelationSchema, ...]
    _seen: _Seen = field(default_factory=_Seen, compare=False)

    def __reduce__(self) -> tuple[type[KafkaReader], tuple[str, Feed, tuple[RelationSchema, ...]]]:
        """Leave behind what this process has seen."""
        return KafkaReader, (self.dsn, self.feed, self.relations)

    @property
    def place(self) -> KafkaPlace:
        """Which topic, and how it is read."""
        return cast("KafkaPlace", self.feed.place)

    def starts(self, start: Start) -> Mapping[int, int]:
        """See ``FeedReader``. For a time: ``offsetsForTimes`` where it is a record's timestamp, else the beginning."""
        if start == "latest":
            return self.ends()
        with self._client() as client:
            partitions = client.partitions()
            lows = client.lows(partitions)
            if start == "earliest" or not self._is_by_timestamp:
                return lows
            found, ends = client.at(partitions, start), client.ends(partitions)
            return {each: ends[each] if (at := found[each]) is None else max(at, lows[each]) for each in partitions}

    def ends(self) -> Mapping[int, int]:
        """See ``FeedReader``. Notes in the database what it finds.

        Raises:
            DataInvalid: the topic was deleted and made again.
        """
        seen = self._seen
        with self._client() as client:
            partitions = client.partitions()
            ends = client.ends(partitions)
            is_due = time.monotonic() - seen.asked_at > LOW_S or {*seen.lows} != {*ends}
            if is_due:
                seen.lows, found_id = client.lows(partitions), client.topic_id()
        if not is_due and seen.noted == (seen.lows, ends):
            return ends
        with shared_connection(self.dsn) as connection:
            if is_due and found_id is not None and (known := known_id(connection, self.feed.log_feed, found_id)) != found_id:
                raise DataInvalid(
                    f"topic {self.place.topic!r} was deleted and made again (its id was {known} and is {found_id}), so positions in it mean "
                    "something else. Delete the source and the queries that read it, and register them again."
                )
            note(connection, self.feed.log_feed, seen.lows, ends)
        seen.asked_at = time.monotonic() if is_due else seen.asked_at
        seen.noted = (seen.lows, dict(ends))
        return ends

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:
        """See ``FeedReader``. Where they are dated, the records are read; else only offsets are looked at."""
        with self._client() as client:
            end = client.ends([partition])[partition]
        found: list[Chunk] = []
        rows = size = 0
        while start < end and rows <= limit.max_rows and size <= limit.max_bytes:
            stop = min((start // CHUNK_RECORDS + 1) * CHUNK_RECORDS, end)
            if is_dated:
                _, dated, count, size_bytes = self._dated(partition, start, stop)
                chunk = Chunk(stop, count, size_bytes, NO_TS if dated.max_ts is None else dated.max_ts)
            else:
                chunk = Chunk(stop, stop - start, (stop - start) * RECORD_BYTES, None)
            found.append(chunk)
            rows, size, start = rows + chunk.rows, size + chunk.size_bytes, stop
        return found

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:
        """See ``FeedReader``. By ``offsetsForTimes`` where the event time is the record's timestamp and nothing was read so far."""
        if self._is_by_timestamp and (partition, start) not in self._seen.dated:
            with self._client() as client:
                found = client.at([partition], bound_ms)[partition]
            if found is None or found >= end:
                return end
            if found >= start:
                return found
        while start < end:
            stop = min((start // CHUNK_RECORDS + 1) * CHUNK_RECORDS, end)
            at = self._dated(partition, start, stop)[1].first_at(bound_ms)
            if at is not None:
                return at if at < end else end
            start = stop
        return end

    def splits(self, partition: int, start: int, end: int, head: int | None) -> Sequence[Split]:
        """See ``FeedReader``. Where heads are wanted one task reads all: they are known from the records only."""
        if head is not None:
            return [Split(partition, start, end, head)]
        return [Split(partition, first, min(first + SPLIT_RECORDS, end)) for first in range(start, end, SPLIT_RECORDS)]

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        """See ``FeedReader``.

        Raises:
            DataInvalid: records were removed before they were read, and the source says to stop then.
        """
        readers = {one.relation: self._topic_reader(one.relation) for one in request.inputs}
        lost: list[int] = []
        pieces = (
            self._piece(records, readers, split.partition)
            for records in self._records(split.partition, split.start, split.end, lost)
        )
        yield from shape(pieces, split, self.feed, request, SOURCE_KIND)
        if lost:
            first = request.inputs[0]
            stats = {
                "stage": 0, "task": 0, "clocks": {}, "buffered": {}, "counters": [[first.alias, "records_lost", sum(lost)]],
            }  # fmt: skip
            yield Packet(0, "stats", first.index, split.partition, split.start, 0, None, None, request.now_ms, encode_json(stats))

    def receded(self, partition: int, position: int, end: int, *, is_committed: bool) -> EngineError:
        """See ``FeedReader``."""
        text = (
            f"topic {self.place.topic!r}, partition {partition} was read up to {position}, and now ends at {end}: a broker that lacked records "
            "became its leader (unclean election), or the topic was made again"
        )
        if is_committed:
            return DataInvalid(
                f"{text}. Results rest on records that are gone. Begin anew without state: "
                "PUT /v1/queries/<name>?state=discard with its definition"
            )
        return SourceUnavailable(f"{text}. The next attempt goes on from what is committed")

    @property
    def _is_by_timestamp(self) -> bool:
        return not self.place.holds_changes and all(relation.event_time is None for relation in self.relations)

    @contextmanager
    def _client(self) -> Iterator[TopicClient]:
        try:
            with lent(self.dsn, self.place) as client:
                yield client
        except TopicMissing as error:
            raise SourceUnavailable(
                f"there is no topic {self.place.topic!r} on the broker; create it, or delete the source"
            ) from error
        except TopicDenied as error:
            raise SourceUnavailable(
                f"the broker does not let this service read topic {self.place.topic!r}: {error}; allow it, or correct the connection"
            ) from error

    def _topic_reader(self, relation: RelationSchema, among: RelationSchema | None = None) -> RecordReader:
        try:
            return PatientReader(topic_reader(self.dsn, self.place, relation, among), self.dsn, self.place)
        except FormatInvalid as error:
            raise DataInvalid(f"topic {self.place.topic!r}: {error}") from error

    def _records(self, partition: int, start: int, end: int, lost: list[int]) -> Iterator[Records]:
        """Yield what lies in ``[start, end)``, in pieces; notes how many offsets are gone."""
        has_headers = any(what.startswith("header") for _, what in self.place.record_columns)
        while start < end:
            messages: list[Message] = []
            with self._client() as client:
                size = 0
                while start < end and len(messages) < PIECE_RECORDS and size < PIECE_BYTES:
                    try:
                        taken = client.take(partition, start, end)
                    except OffsetOutOfRange:
                        if messages:
                            break
                        start = self._overtaken(client, partition, start, end, lost)
                        continue
                    messages += taken.messages
                    size += sum(map(len, taken.messages))
                    start = taken.position
            if messages:
                yield Records.of(
                    messages, has_keys=self.place.key is not None, has_values=True, has_headers=has_headers
                )  # fmt: skip

    def _overtaken(self, client: TopicClient, partition: int, start: int, end: int, lost: list[int]) -> int:
        """Return where reading goes on behind records that are gone.

        Raises:
            DataInvalid: it does not.
            SourceUnavailable: the partition is shorter than it was.
        """
        low = client.lows([partition])[partition]
        if low <= start:
            raise SourceUnavailable(
                f"topic {self.place.topic!r}, partition {partition}: the broker has not what lies at {start}, and its log begins at {low}; "
                "where it ends is asked again"
            )
        stop = min(low, end)
        if not self.place.is_skipping:
            raise DataInvalid(
                f"topic {self.place.topic!r}, partition {partition}: records {start} to {stop - 1} were removed by its retention before "
                "this query read them. Keep them longer (`retention.ms`) and restart the query with new state, or say "
                '`"on_lost": "skip"` to go on and count them.'
            )
        lost.append(stop - start)
        return stop

    def _piece(self, records: Records, readers: Mapping[RelationSchema, RecordReader], partition: int) -> Piece:
        columns = self.place.record_columns
        if self.place.holds_changes:
            changes = _Changes(
                records, {**{each: self._topic_reader(each) for each in self.relations}, **readers}, columns, partition
            )
            return Piece(
                len(records.offsets),
                lambda relation, _member: changes.raw(relation),
                lambda: changes.times(self.relations),
                are_accepted=False,
            )
        return Piece(
            len(records.offsets),
            lambda relation, _member: records.raw(readers[relation], relation, columns, partition),
            lambda: self._times(records, partition),
            are_accepted=len(self.relations) == 1,
        )

    def _times(self, records: Records, partition: int) -> Dated:
        """Return the event times that move the partition's head: of the records, or what the relations' columns say."""
        if self.place.holds_changes:
            readers = {each: self._topic_reader(each) for each in self.relations}
            return _Changes(records, readers, self.place.record_columns, partition).times(self.relations)
        now_ms = time.time_ns() // 1_000_000
        skews = [relation.max_future_skew_ms for relation in self.relations if relation.event_time is None]
        found = [_within(records, None if skew is None else now_ms + skew) for skew in dict.fromkeys(skews)]
        whole = [relation for relation in self.relations if relation.event_time is not None]
        for relation, dating in zip(whole, dating_relations(whole), strict=True):
            reader = self._topic_reader(dating, relation)
            found.append(date_records(records, reader, dating, self.place.record_columns, partition, now_ms))
        return Dated.joined(found)

    def _dated(self, partition: int, start: int, stop: int) -> tuple[int, Dated, int, int]:
        """Return end, event times, number and size of the records in ``[start, stop)``, which are read at most once."""
        dated = self._seen.dated
        known = dated.get((partition, start))
        if known is None or known[0] != stop:
            parts, count, size = [], 0, 0
            for records in self._records(partition, start, stop, []):
                parts.append(self._times(records, partition))
                count, size = count + len(records.offsets), size + records.size_bytes
            if len(dated) >= KEPT_CHUNKS:
                dated.clear()
            known = dated[partition, start] = (stop, Dated.joined(parts), count, size)
        return known


class _Changes:
    """What records say of a database's table, read once for each relation: for its rows and for their times."""

    def __init__(
        self,
        records: Records,
        readers: Mapping[RelationSchema, RecordReader],
        columns: Sequence[tuple[str, str]],
        partition: int,
    ) -> None:
        self._records, self._readers, self._columns, self._partition = records, readers, columns, partition
        self._read: dict[RelationSchema, tuple[pl.DataFrame, pl.DataFrame]] = {}

    def raw(self, relation: RelationSchema) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return ``Records.raw``."""
        if relation not in self._read:
            self._read[relation] = self._records.raw(self._readers[relation], relation, self._columns, self._partition)
        return self._read[relation]

    def times(self, relations: Sequence[RelationSchema]) -> Dated:
        """Return the event times that move the partition's head: of every change that could be read."""
        now_ms = time.time_ns() // 1_000_000
        return Dated.joined([date_changes(self.raw(each)[0], each, now_ms) for each in relations])


def _within(records: Records, bound_ms: int | None) -> Dated:
    """Return the records' own times, without those that are refused as out of range or too far ahead."""
    last = MAX_EVENT_TIME_MS if bound_ms is None else min(MAX_EVENT_TIME_MS, bound_ms)
    good = (records.timestamps >= 0) & (records.timestamps <= last)
    return Dated(records.offsets[good], records.timestamps[good])
