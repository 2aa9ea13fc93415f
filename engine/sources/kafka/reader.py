"""Reading a topic of Kafka for a query.

Positions are the broker's offsets, up to the last stable one. Records of open transactions are not visible yet. Records of aborted
transactions, transaction markers and compacted records never are. So offsets have gaps, and a position may be in one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import polars as pl

from engine.definition.sources.kafka import HEADER, KafkaPlace
from engine.errors import EngineError, FormatUnfit, RecordsReplaced, SourceUnavailable, TopicReplaced
from engine.formats.port import FormatInvalid
from engine.formats.records import RecordReader
from engine.plan.model import Feed, RelationSchema
from engine.postgres.postgres import shared_connection
from engine.sources.dating import Dated, date_frame, dating_relations
from engine.sources.feeds import NO_TS, Chunk, FeedReader, Limit, ReadRequest, Split, Start
from engine.sources.kafka.brokers.epochs import epoch_before
from engine.sources.kafka.brokers.fetching.port import Fetched, RecordFields
from engine.sources.kafka.fetch_cache import Keeper, Reference, recalled
from engine.sources.kafka.ranges import CHUNK_RECORDS, PIECE_BYTES, DatedChunk, RangePart, Topic, chunk_end, chunk_of, own_times
from engine.sources.kafka.records import SOURCE_KIND, date_changes, read_records, require_whole_table
from engine.sources.kafka.sides import PatientReader, topic_reader
from engine.sources.kafka.topic_state import known_id, note
from engine.sources.packets import Packet, encode_json
from engine.sources.shaping import Piece, shape

AHEAD: Final = 1.5
"""How many batches all partitions together are looked ahead for: with many partitions, a batch from each would be too much. If one partition
has most of the records, batches are smaller, but not smaller than ``LEAST_AHEAD``."""

LEAST_AHEAD: Final = 131_072

DATED_AT_ONCE: Final = 8
"""How many chunks are fetched and dated together."""

SPLIT_RECORDS: Final = 262_144

RECORD_BYTES: Final = 200
"""Size of a record for admission before any record was read."""

LOW_S: Final = 10.0
"""Interval of questions about the partitions' starts, the written ends of transactions, and the topic's id. Reading itself finds removals."""

KEPT_CHUNKS: Final = 2_000
"""Chunks whose event times are cached, 130 KB each at most."""


@dataclass(frozen=True, slots=True)
class KafkaSplit(Split):
    """A part of a partition, with the records that the planning process has fetched of it.

    Attributes:
        kept: in the order of offsets; missing records are fetched.
    """

    kept: tuple[Reference, ...] = ()


@dataclass(slots=True)
class _TopicState:
    """One process's knowledge of a topic.

    Attributes:
        asked_at: time of the last question about the partitions' starts and the records of open transactions.
        dated: partition and start of a chunk → the chunk.
        keeper: of records that were fetched for their event times.
        split_from: by partition, where the batch before began.
        epochs: by partition, its leader's at the last look.
        checked: by partition, the epoch under which the records read so far still exist.
    """

    asked_at: float = 0.0
    lows: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    looked_at: tuple[dict[int, int], dict[int, int]] | None = None
    dated: dict[tuple[int, int], DatedChunk] = field(default_factory=dict)
    keeper: Keeper = field(default_factory=Keeper)
    split_from: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    checked: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KafkaReader(FeedReader):
    """A ``FeedReader`` over a topic.

    Attributes:
        relations: the relations that date the chunks.
    """

    dsn: str
    feed: Feed
    relations: tuple[RelationSchema, ...]
    _seen: _TopicState = field(default_factory=_TopicState, compare=False)

    def __reduce__(self) -> tuple[type[KafkaReader], tuple[str, Feed, tuple[RelationSchema, ...]]]:
        """Pickle without this process's state."""
        return KafkaReader, (self.dsn, self.feed, self.relations)

    @property
    def place(self) -> KafkaPlace:
        """The topic and its formats."""
        return cast("KafkaPlace", self.feed.place)

    def starts(self, start: Start) -> Mapping[int, int]:
        """See ``FeedReader``. For a time: ``offsetsForTimes`` if it is a record's timestamp, else the beginning.

        The first record may be an aborted or refused one: the query leaves out records of earlier times.
        """
        if start == "latest":
            return self.ends()
        with self._topic.client() as client:
            partitions = client.partitions()
            lows = client.lows(partitions)
            if start == "earliest" or not self._is_by_timestamp:
                return lows
            found, ends = client.at(partitions, start), client.ends(partitions)
            return {each: ends[each] if (at := found[each]) is None else max(at, lows[each]) for each in partitions}

    def ends(self) -> Mapping[int, int]:
        """See ``FeedReader``. Records the result in the database.

        Raises:
            TopicReplaced: the topic was deleted and made again.
        """
        seen = self._seen
        with self._topic.client() as client:
            partitions = client.partitions()
            is_due = time.monotonic() - seen.asked_at > LOW_S or {*seen.lows} != {*partitions}
            if is_due:
                # Before the ends: records that are committed between the two questions do not count as open.
                seen.lows, seen.written, found_id = client.lows(partitions), client.written(partitions), client.topic_id()
            ends, seen.epochs = client.ends_and_epochs(partitions)
        if not is_due and seen.looked_at == (seen.lows, ends):
            return ends
        with shared_connection(self.dsn) as connection:
            if is_due and found_id is not None and (known := known_id(connection, self.feed.log_feed, found_id)) != found_id:
                raise TopicReplaced(
                    f"topic {self.place.topic!r} was deleted and made again (its id was {known} and is {found_id}), so positions in it mean "
                    "something else. Delete the source and the queries that read it, and register them again."
                )
            note(connection, self.feed.log_feed, seen.lows, ends, seen.written)
        seen.asked_at = time.monotonic() if is_due else seen.asked_at
        seen.looked_at = (seen.lows, dict(ends))
        return ends

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:
        """See ``FeedReader``. For dated chunks the records are read, and kept for the workers; else only offsets are examined."""
        with self._topic.client() as client:
            end = client.ends([partition])[partition]
        if not is_dated:  # else the records are read here, which finds removals
            self._topic.require_available(partition, start, self._seen.lows.get(partition, 0))
        found: list[Chunk] = []
        rows = size = 0
        most = max(int(limit.max_rows * AHEAD / max(1, len(self._seen.lows))), LEAST_AHEAD) if is_dated else limit.max_rows
        most = min(most, limit.max_rows)
        while start < end and rows <= most and size <= limit.max_bytes:
            if is_dated:
                known = self._dated(partition, start, end, (most - rows) // CHUNK_RECORDS + 1)
                chunk = Chunk(
                    known.end, known.rows, known.size_bytes, NO_TS if known.dated.max_ts is None else known.dated.max_ts
                )
            else:
                stop = chunk_end(start, end)
                chunk = Chunk(stop, stop - start, (stop - start) * RECORD_BYTES, None)
            found.append(chunk)
            rows, size, start = rows + chunk.rows, size + chunk.size_bytes, chunk.end_offset
        return found

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:
        """See ``FeedReader``. Does not ask the broker, which counts aborted records and those refused as too far ahead."""
        while start < end:
            chunk = self._dated(partition, start, end)
            at = chunk.dated.first_at(bound_ms)
            if at is not None:
                return at if at < end else end
            start = chunk.end
        return end

    def splits(self, partition: int, start: int, end: int) -> Sequence[Split]:
        """See ``FeedReader``."""
        seen = self._seen
        # The batch before may still be read.
        seen.keeper.forget(partition, seen.split_from.get(partition, 0))
        seen.split_from[partition] = start
        self._forget_dated(partition, start)
        return [
            KafkaSplit(partition, first, last, None, seen.keeper.references(partition, first, last))
            for first in range(start, end, SPLIT_RECORDS)
            if (last := min(first + SPLIT_RECORDS, end))
        ]

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        """See ``FeedReader``.

        Raises:
            RecordsRemoved: records were removed before they were read, and a relation is set to stop then.
        """
        dating = self.relations if self.place.holds_changes else ()
        readers = {each: self._topic_reader(each) for each in {*(one.relation for one in request.inputs), *dating}}
        lost: list[int] = []
        kept = split.kept if isinstance(split, KafkaSplit) else ()
        parts = self._parts(split.partition, split.start, split.end, kept, lost)
        pieces = (self._piece(part.records, readers, split.partition) for part in parts if len(part.records))
        yield from shape(pieces, split, self.feed, request, SOURCE_KIND)
        if lost:
            first = request.inputs[0]
            stats = {
                "stage": 0, "task": 0, "buffered": {}, "counters": [[first.alias, "records_lost", sum(lost)]],
            }  # fmt: skip
            yield Packet(0, "stats", first.index, split.partition, split.start, 0, None, None, request.now_ms, encode_json(stats))

    def receded(self, partition: int, position: int, end: int, *, is_committed: bool) -> EngineError:
        return self._gone(f"partition {partition} was read up to {position}, and now ends at {end}", is_committed=is_committed)

    def epochs(self) -> Mapping[int, int]:
        """See ``FeedReader``: those of the partitions' leaders."""
        return dict(self._seen.epochs)

    def check_epochs(self, positions: Mapping[int, int], epochs: Mapping[int, int], committed: Mapping[int, int]) -> None:
        """See ``FeedReader``. If a partition has a new leader, the last record before the position is checked."""
        seen = self._seen
        for partition, known in epochs.items():
            position, epoch = positions.get(partition, 0), seen.epochs.get(partition, known)
            low = seen.lows.get(partition, 0)
            if epoch <= known or position <= low or seen.checked.get(partition) == epoch:
                continue
            with self._topic.explained_errors():
                found = epoch_before(self.dsn, self.place, partition, low, position)
            if found is not None and found > known:
                text = (
                    f"partition {partition} was read up to {position} under leader epoch {known}, and the record before that now has epoch "
                    f"{found}: other records have taken its place"
                )
                raise self._gone(text, is_committed=committed.get(partition, 0) >= position)
            seen.checked[partition] = epoch

    def _gone(self, text: str, *, is_committed: bool) -> EngineError:
        """Return the error for records that were read and are gone."""
        why = "a broker that lacked records became its leader (unclean election), or the topic was made again"
        text = f"topic {self.place.topic!r}, {text}: {why}"
        if is_committed:
            return RecordsReplaced(
                f"{text}. Results rest on records that are gone. Start from scratch without state: "
                "PUT /v1/queries/<name>?state=discard with its definition"
            )
        return SourceUnavailable(f"{text}. The next attempt goes on from what is committed")

    @property
    def _topic(self) -> Topic:
        return Topic(self.dsn, self.place, self._record_fields, self._stopping)

    @property
    def _stopping(self) -> tuple[str, ...]:
        """The relations that stop at removed records. All relations share one position, so one of them is enough to stop."""
        return tuple(sorted({relation.name for relation in self.relations if relation.lost_records != "skip"}))

    @property
    def _record_fields(self) -> RecordFields:
        """The fields to read. Streams with their own event time do not need the records' timestamps."""
        facts = [what for _, what in self.place.record_columns]
        return RecordFields(
            has_keys=self.place.key is not None,
            has_values=True,
            has_times="timestamp" in facts or any(each.event_time is None or each.kind == "table" for each in self.relations),
            has_headers=any(what == "headers" or what.startswith(HEADER) for what in facts),
        )

    @property
    def _is_by_timestamp(self) -> bool:
        return not self.place.holds_changes and all(relation.event_time is None for relation in self.relations)

    def _topic_reader(self, relation: RelationSchema, among: RelationSchema | None = None) -> RecordReader:
        try:
            return PatientReader(topic_reader(self.dsn, self.place, relation, among), self.dsn, self.place)
        except FormatInvalid as error:
            raise FormatUnfit(f"topic {self.place.topic!r}: {error}") from error

    def _parts(self, partition: int, start: int, end: int, kept: tuple[Reference, ...], lost: list[int]) -> Iterator[RangePart]:
        for first, last, records in recalled(kept, start, end):
            if records is None:
                yield from self._topic.parts(partition, first, last, lost)
            else:
                yield RangePart(first, last, records)

    def _piece(self, records: Fetched, readers: Mapping[RelationSchema, RecordReader], partition: int) -> Piece:
        columns = self.place.record_columns
        if self.place.holds_changes:
            changes = _Changes(records, readers, columns, partition)
            return Piece(
                len(records),
                lambda relation, _member: changes.of_whole_table(relation, self.place.topic),
                lambda: changes.times(self.relations),
                are_accepted=False,
            )
        return Piece(
            len(records),
            lambda relation, _member: read_records(records, readers[relation], relation, columns, partition),
            lambda: self._times(records, partition),
            are_accepted=len(self.relations) == 1,
        )

    def _times(self, records: Fetched, partition: int) -> Dated:
        """Return the event times that move the partition's head: from the records' timestamps, or from the relations' columns."""
        if self.place.holds_changes:
            readers = {each: self._topic_reader(each) for each in self.relations}
            return _Changes(records, readers, self.place.record_columns, partition).times(self.relations)
        now_ms = time.time_ns() // 1_000_000
        skews = [relation.max_future_skew_ms for relation in self.relations if relation.event_time is None]
        found = [own_times(records, None if skew is None else now_ms + skew) for skew in dict.fromkeys(skews)]
        whole = [relation for relation in self.relations if relation.event_time is not None]
        for relation, dating in zip(whole, dating_relations(whole), strict=True):
            raw, _ = read_records(records, self._topic_reader(dating, relation), dating, self.place.record_columns, partition)
            found.append(date_frame(raw, dating, now_ms, is_text=False))
        return Dated.joined(found)

    def _dated(self, partition: int, start: int, end: int, wanted: int = DATED_AT_ONCE) -> DatedChunk:
        """Return the chunk at ``start`` with its event times. Up to ``wanted`` next chunks are read with it."""
        known = self._seen.dated.get((partition, start))
        return self._date(partition, start, end, wanted) if known is None or known.end < chunk_end(start, end) else known

    def _date(self, partition: int, start: int, end: int, wanted: int) -> DatedChunk:
        """Read and date the chunks from ``start`` on, as many as are read at once, at least one; keep their records; return the first.

        If a batch was cut inside a chunk, the later chunks are known, and only the rest of this chunk is dated again.
        """
        seen = self._seen
        stop, least = min((start // CHUNK_RECORDS + min(wanted, DATED_AT_ONCE)) * CHUNK_RECORDS, end), chunk_end(start, end)
        stop = next((each for each in range(least, stop, CHUNK_RECORDS) if (partition, each) in seen.dated), stop)
        parts: list[tuple[RangePart, Dated]] = []
        size = 0
        lost: list[int] = []
        for part in self._parts(partition, start, stop, seen.keeper.references(partition, start, stop), lost):
            parts.append((part, self._times(part.records, partition)))
            size += part.records.size_bytes
            if part.stop >= least and size > PIECE_BYTES:
                stop = min(stop, max(least, part.stop // CHUNK_RECORDS * CHUNK_RECORDS))
                break
        for part, _ in parts:
            if not seen.keeper.references(partition, part.start, part.stop):
                seen.keeper.keep(partition, *part)
        if len(seen.dated) >= KEPT_CHUNKS:
            seen.dated.clear()
        found = seen.dated[partition, start] = chunk_of(parts, start, least)
        while least < stop:
            least, first = chunk_end(least, stop), least
            seen.dated[partition, first] = chunk_of(parts, first, least)
        return found

    def _forget_dated(self, partition: int, before: int) -> None:
        dated = self._seen.dated
        for place in [place for place, chunk in list(dated.items()) if place[0] == partition and chunk.end <= before]:
            dated.pop(place, None)


class _Changes:
    """Records of a database table's changes, read once for each relation, for rows and for times."""

    def __init__(
        self,
        records: Fetched,
        readers: Mapping[RelationSchema, RecordReader],
        columns: Sequence[tuple[str, str]],
        partition: int,
    ) -> None:
        self._records, self._readers, self._columns, self._partition = records, readers, columns, partition
        self._read: dict[RelationSchema, tuple[pl.DataFrame, pl.DataFrame]] = {}

    def raw(self, relation: RelationSchema) -> tuple[pl.DataFrame, pl.DataFrame]:
        if relation not in self._read:
            self._read[relation] = read_records(self._records, self._readers[relation], relation, self._columns, self._partition)
        return self._read[relation]

    def of_whole_table(self, relation: RelationSchema, topic: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the result of ``raw``; see ``require_whole_table``."""
        read = self.raw(relation)
        require_whole_table(read[1], relation, topic, self._partition)
        return read

    def times(self, relations: Sequence[RelationSchema]) -> Dated:
        """Return the event times that move the partition's head: of every readable change."""
        now_ms = time.time_ns() // 1_000_000
        return Dated.joined([date_changes(self.raw(each)[0], each, now_ms) for each in relations])
