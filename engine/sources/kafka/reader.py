"""Reading a topic of Kafka for a query.

Positions are the broker's offsets, up to the last stable one: records of open transactions are not there yet, those of aborted ones and the
transactions' own markers never are, nor is what compaction took. So offsets have gaps, and a position may lie in one.
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
from engine.sources.chunks import NO_TS, Chunk
from engine.sources.dating import Dated, dating_relations
from engine.sources.feeds import Limit, ReadRequest, Split, Start, UsualAnswers
from engine.sources.kafka.brokers.epochs import epoch_before
from engine.sources.kafka.brokers.fetching.port import Fetched, RecordFields
from engine.sources.kafka.chunks import CHUNK_RECORDS, DatedChunk, chunk_end, chunk_of, own_times
from engine.sources.kafka.fetch_cache import Keeper, Reference, recalled
from engine.sources.kafka.ranges import PIECE_BYTES, RangePart, Topic
from engine.sources.kafka.records import SOURCE_KIND, date_changes, date_records, read_records, require_whole_table
from engine.sources.kafka.sides import PatientReader, topic_reader
from engine.sources.kafka.topic_state import known_id, note
from engine.sources.packets import Packet, encode_json
from engine.sources.shaping import Piece, shape

AHEAD: Final = 1.5
"""Partitions are looked at for so many batches together: all of each would be many batches where there are many partitions. Where one partition
has most of the records, batches are smaller for it, but not smaller than ``LEAST_AHEAD``."""

LEAST_AHEAD: Final = 131_072

DATED_AT_ONCE: Final = 8
"""So many chunks are fetched and dated together."""

SPLIT_RECORDS: Final = 262_144

RECORD_BYTES: Final = 200
"""What admission takes for the size of a record that nobody has looked at."""

LOW_S: Final = 10.0
"""So often it is asked where partitions begin, how far transactions have written, and which topic it is. Reading itself finds what is gone."""

KEPT_CHUNKS: Final = 2_000
"""Chunks whose event times are remembered, 130 KB each at most."""


@dataclass(frozen=True, slots=True)
class KafkaSplit(Split):
    """A part of a partition, with what the planning process has fetched of it.

    Attributes:
        kept: in the order of offsets; what is missing is fetched.
    """

    kept: tuple[Reference, ...] = ()


@dataclass(slots=True)
class _TopicState:
    """What one process has found of a topic.

    Attributes:
        asked_at: when it was asked where partitions begin, and what open transactions have written.
        dated: partition and start of a chunk → the chunk.
        keeper: of what was fetched to date it.
        split_from: by partition, where the batch before began.
        epochs: by partition, its leader's at the last look.
        checked: by partition, under which epoch what was read so far is known to be there still.
    """

    asked_at: float = 0.0
    lows: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    noted: tuple[dict[int, int], dict[int, int]] | None = None
    dated: dict[tuple[int, int], DatedChunk] = field(default_factory=dict)
    keeper: Keeper = field(default_factory=Keeper)
    split_from: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    checked: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KafkaReader(UsualAnswers):
    """A ``FeedReader`` over a topic.

    Attributes:
        relations: what dates the chunks.
    """

    dsn: str
    feed: Feed
    relations: tuple[RelationSchema, ...]
    _seen: _TopicState = field(default_factory=_TopicState, compare=False)

    def __reduce__(self) -> tuple[type[KafkaReader], tuple[str, Feed, tuple[RelationSchema, ...]]]:
        """Leave behind what this process has seen."""
        return KafkaReader, (self.dsn, self.feed, self.relations)

    @property
    def place(self) -> KafkaPlace:
        """Which topic, and how it is read."""
        return cast("KafkaPlace", self.feed.place)

    def starts(self, start: Start) -> Mapping[int, int]:
        """See ``FeedReader``. For a time: ``offsetsForTimes`` where it is a record's timestamp, else the beginning.

        An aborted record, or one that is refused, may be taken for the first: what is read of an earlier time the query leaves out.
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
        """See ``FeedReader``. Notes in the database what it finds.

        Raises:
            TopicReplaced: the topic was deleted and made again.
        """
        seen = self._seen
        with self._topic.client() as client:
            partitions = client.partitions()
            is_due = time.monotonic() - seen.asked_at > LOW_S or {*seen.lows} != {*partitions}
            if is_due:
                # Before the ends: what commits between the two looks is not held back.
                seen.lows, seen.written, found_id = client.lows(partitions), client.written(partitions), client.topic_id()
            ends, seen.epochs = client.ends_and_epochs(partitions)
        if not is_due and seen.noted == (seen.lows, ends):
            return ends
        with shared_connection(self.dsn) as connection:
            if is_due and found_id is not None and (known := known_id(connection, self.feed.log_feed, found_id)) != found_id:
                raise TopicReplaced(
                    f"topic {self.place.topic!r} was deleted and made again (its id was {known} and is {found_id}), so positions in it mean "
                    "something else. Delete the source and the queries that read it, and register them again."
                )
            note(connection, self.feed.log_feed, seen.lows, ends, seen.written)
        seen.asked_at = time.monotonic() if is_due else seen.asked_at
        seen.noted = (seen.lows, dict(ends))
        return ends

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:
        """See ``FeedReader``. Where they are dated, the records are read, and kept for the workers; else only offsets are looked at."""
        with self._topic.client() as client:
            end = client.ends([partition])[partition]
        if not is_dated:  # else the records are read right here, which finds what is gone
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
        """See ``FeedReader``. The broker is not asked: it counts aborted records, and those that are refused as too far ahead."""
        while start < end:
            chunk = self._dated(partition, start, end)
            at = chunk.dated.first_at(bound_ms)
            if at is not None:
                return at if at < end else end
            start = chunk.end
        return end

    def splits(self, partition: int, start: int, end: int, head: int | None) -> Sequence[Split]:
        """See ``FeedReader``. Where heads are wanted one task reads all: they are known from the records only."""
        seen = self._seen
        # The batch before may still be read.
        seen.keeper.forget(partition, seen.split_from.get(partition, 0))
        seen.split_from[partition] = start
        self._forget_dated(partition, start)
        if head is not None:
            return [KafkaSplit(partition, start, end, head, seen.keeper.references(partition, start, end))]
        return [
            KafkaSplit(partition, first, last, None, seen.keeper.references(partition, first, last))
            for first in range(start, end, SPLIT_RECORDS)
            if (last := min(first + SPLIT_RECORDS, end))
        ]

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        """See ``FeedReader``.

        Raises:
            RecordsRemoved: records were removed before they were read, and a relation says to stop then.
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
                "stage": 0, "task": 0, "clocks": {}, "buffered": {}, "counters": [[first.alias, "records_lost", sum(lost)]],
            }  # fmt: skip
            yield Packet(0, "stats", first.index, split.partition, split.start, 0, None, None, request.now_ms, encode_json(stats))

    def receded(self, partition: int, position: int, end: int, *, is_committed: bool) -> EngineError:
        """See ``FeedReader``."""
        return self._gone(f"partition {partition} was read up to {position}, and now ends at {end}", is_committed=is_committed)

    def epochs(self) -> Mapping[int, int]:
        """See ``FeedReader``: those of the partitions' leaders."""
        return dict(self._seen.epochs)

    def check_epochs(self, positions: Mapping[int, int], epochs: Mapping[int, int], committed: Mapping[int, int]) -> None:
        """See ``FeedReader``. Where a partition has a new leader, the last record before the position is looked at."""
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
        """Return the error about records that were read and are gone."""
        why = "a broker that lacked records became its leader (unclean election), or the topic was made again"
        text = f"topic {self.place.topic!r}, {text}: {why}"
        if is_committed:
            return RecordsReplaced(
                f"{text}. Results rest on records that are gone. Begin anew without state: "
                "PUT /v1/queries/<name>?state=discard with its definition"
            )
        return SourceUnavailable(f"{text}. The next attempt goes on from what is committed")

    @property
    def _topic(self) -> Topic:
        return Topic(self.dsn, self.place, self._record_fields, self._stopping)

    @property
    def _stopping(self) -> tuple[str, ...]:
        """Which relations stop where records are gone. All share one position, so each of them may: what it must not lose counts."""
        return tuple(sorted({relation.name for relation in self.relations if relation.lost_records != "skip"}))

    @property
    def _record_fields(self) -> RecordFields:
        """What is read of records. Of streams with an event time of their own nobody looks at the records' timestamps."""
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
        """Return the event times that move the partition's head: of the records, or what the relations' columns say."""
        if self.place.holds_changes:
            readers = {each: self._topic_reader(each) for each in self.relations}
            return _Changes(records, readers, self.place.record_columns, partition).times(self.relations)
        now_ms = time.time_ns() // 1_000_000
        skews = [relation.max_future_skew_ms for relation in self.relations if relation.event_time is None]
        found = [own_times(records, None if skew is None else now_ms + skew) for skew in dict.fromkeys(skews)]
        whole = [relation for relation in self.relations if relation.event_time is not None]
        for relation, dating in zip(whole, dating_relations(whole), strict=True):
            reader = self._topic_reader(dating, relation)
            found.append(date_records(records, reader, dating, self.place.record_columns, partition, now_ms))
        return Dated.joined(found)

    def _dated(self, partition: int, start: int, end: int, wanted: int = DATED_AT_ONCE) -> DatedChunk:
        """Return the chunk at ``start`` with its event times. With it the next ones are read, up to so many as are wanted."""
        known = self._seen.dated.get((partition, start))
        return self._date(partition, start, end, wanted) if known is None or known.end < chunk_end(start, end) else known

    def _date(self, partition: int, start: int, end: int, wanted: int) -> DatedChunk:
        """Read and date the chunks from ``start`` on, as many as are read at once, and at least one; keep what was read; returns the first.

        Where a batch was cut inside of a chunk, those behind it are known, and only its rest is dated again.
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
    """What records say of a database's table, read once for each relation: for its rows and for their times."""

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
        """See ``read_records``."""
        if relation not in self._read:
            self._read[relation] = read_records(self._records, self._readers[relation], relation, self._columns, self._partition)
        return self._read[relation]

    def of_whole_table(self, relation: RelationSchema, topic: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return what ``raw`` does; see ``require_whole_table``."""
        read = self.raw(relation)
        require_whole_table(read[1], relation, topic, self._partition)
        return read

    def times(self, relations: Sequence[RelationSchema]) -> Dated:
        """Return the event times that move the partition's head: of every change that could be read."""
        now_ms = time.time_ns() // 1_000_000
        return Dated.joined([date_changes(self.raw(each)[0], each, now_ms) for each in relations])
