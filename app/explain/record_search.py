"""Searches a relation's feed in the built-in log for single records: by place, by values and time, versions of a key.

Each batch has its least and greatest event time, so most batches are never opened. At most ``MAX_BATCHES`` of the others are opened, and the
result says if that was not enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import psycopg
from psycopg.types.json import Jsonb

from app.explain.rules.facts import FoundRecords, Place, Record, Versions
from engine.expressions.expressions import compile_scalar
from engine.expressions.pseudo_columns import EVENT_TIME
from engine.frames.arrow_frames import decode_frame
from engine.log.sequences import LANE_PARTITION, join_block, read_sequence
from engine.log.storage import cut_batch, find_feed, heads
from engine.plan.model import Input
from engine.records.canonical import LOGGED, canonicalise

# Most batches of one search: 200 batches of 8,000 records take about a second.
MAX_BATCHES = 200
MAX_RECORDS = 100
ALL_TIME = (1 << 62) - 1
# Records in the log were checked against the clock when they were appended.
_FAR_FUTURE_MS = 1 << 52

_MEETING = """
SELECT b.feed_id, b.partition, b.base_offset, b.min_ts, b.max_ts, b.sequence, b.sequence_rows
FROM log.batch b JOIN log.feed f ON f.id = b.feed_id
WHERE f.name = %(feed)s AND b.max_ts >= %(from)s AND b.min_ts <= %(to)s
ORDER BY {} LIMIT %(limit)s
"""
_BY_TIME_UPWARDS = _MEETING.format("greatest(b.min_ts, %(from)s), coalesce(b.sequence, b.base_offset)")
_BY_TIME = _MEETING.format("least(b.max_ts, %(to)s) DESC, coalesce(b.sequence, b.base_offset) DESC")
# For a part whose event times come from a column: its batches have the event times of the query that wrote them.
_BY_NEARNESS = """
SELECT b.feed_id, b.partition, b.base_offset, b.min_ts, b.max_ts, b.sequence, b.sequence_rows
FROM log.batch b JOIN log.feed f ON f.id = b.feed_id
WHERE f.name = %(feed)s
ORDER BY b.max_ts >= %(from)s AND b.min_ts <= %(to)s DESC, coalesce(b.sequence, b.base_offset) DESC LIMIT %(limit)s
"""
_BY_ARRIVAL = _MEETING.format("coalesce(b.sequence, b.base_offset) DESC")
_PAYLOAD = "SELECT payload FROM log.batch WHERE feed_id = %s AND partition = %s AND base_offset = %s"
_AT = """
SELECT b.base_offset, b.payload FROM log.batch b JOIN log.feed f ON f.id = b.feed_id
WHERE f.name = %(feed)s AND b.partition = %(partition)s AND b.base_offset <= %(offset)s ORDER BY b.base_offset DESC LIMIT 1
"""
_NUMBERED_READ_TO = """
SELECT max(b.max_ts) FROM log.batch b JOIN log.feed f ON f.id = b.feed_id
WHERE f.name = %(feed)s AND b.sequence < coalesce((%(read)s ->> '0')::bigint, 0)
"""
_READ_TO = """
SELECT (
    SELECT max(b.max_ts) FROM log.batch b WHERE b.feed_id = h.feed_id AND b.partition = h.partition
    AND b.base_offset < coalesce((%(read)s ->> h.partition::text)::bigint, 0)
) FROM log.head h JOIN log.feed f ON f.id = h.feed_id WHERE f.name = %(feed)s
"""


@dataclass(frozen=True, slots=True)
class _SearchedBatch:
    """An opened batch: its least and greatest event time, and the records of the search. None instead means that the limit was reached."""

    min_ts: int
    max_ts: int
    records: list[Record]


@dataclass(frozen=True, slots=True)
class RecordSearch:
    """Searches the feeds of a query's inputs. Feeds outside of the built-in log cannot be searched, and the result says so.

    Attributes:
        connection: in the transaction with the snapshot.
        position: feed → partition → next offset of the query.
    """

    connection: psycopg.Connection[Any]
    position: Mapping[str, Mapping[str, int]]

    def at(self, source: Input, place: Place) -> Record | None:
        """Return the record at a place, None if the relation has none there."""
        if source.feed.is_derived:
            return self._numbered(source, place.offset)
        params = {"feed": source.feed.log_feed, "partition": place.partition, "offset": place.offset}
        row = self.connection.execute(_AT, params, binary=True).fetchone() if source.feed.traits.is_kept_here else None
        if row is None:
            return None
        _, frame = cut_batch(row[0], row[1], place.offset, place.offset + 1)
        raw = frame.with_columns(pl.lit(place.offset, pl.Int64).alias("_offset"))
        return next(self._records(source, {}, place.partition, raw), None)

    def _numbered(self, source: Input, number: int) -> Record | None:
        feed = find_feed(self.connection, source.feed.log_feed)
        for frame in () if feed is None else read_sequence(self.connection, feed.id, number, number + 1):
            return next(self._records(source, {}, LANE_PARTITION, frame), None)
        return None

    def between(self, source: Input, values: Mapping[str, object], from_ms: int, to_ms: int) -> FoundRecords:
        """Return records with these values and event times in the range."""
        records: list[Record] = []
        statement = _BY_NEARNESS if _has_other_times(source) else _BY_TIME
        for batch in self._open_target(statement, source, values, (from_ms, to_ms)):
            if batch is None or len(records) > MAX_RECORDS:
                return FoundRecords(records[:MAX_RECORDS], is_complete=False)
            records += batch.records
        return FoundRecords(records)

    def is_trimmed(self, source: Input) -> bool:
        """Whether the oldest records of an input's feed were removed."""
        feed = find_feed(self.connection, source.feed.log_feed) if source.feed.traits.is_kept_here else None
        if feed is None:
            return False
        return bool(feed.start_sequence) or any(head.start_offset for head in heads(self.connection, feed.id))

    def around(self, source: Input, values: Mapping[str, object], at_ms: int) -> list[Record]:
        """Return the last record with these values up to a time and the first after it; none if the feed cannot be searched."""
        before = self._first(_BY_TIME, source, values, (0, at_ms))
        after = self._first(_BY_TIME_UPWARDS, source, values, (at_ms + 1, ALL_TIME))
        return [record for record in (before, after) if record is not None]

    def _first(self, statement: str, source: Input, values: Mapping[str, object], span: tuple[int, int]) -> Record | None:
        """Return the record in a span that is nearest to its end, or, upwards, to its beginning."""
        is_upwards = statement is _BY_TIME_UPWARDS
        is_ordered = not _has_other_times(source)
        nearest: Record | None = None
        for batch in self._open_target(statement if is_ordered else _BY_NEARNESS, source, values, span):
            if batch is None:
                break
            if nearest is not None and is_ordered:
                ms = nearest.event_time_ms
                if batch.min_ts > ms if is_upwards else batch.max_ts < ms:
                    break  # later batches are farther away
            records = [*batch.records] if nearest is None else [nearest, *batch.records]
            nearest = (min if is_upwards else max)(records, key=_by_time, default=None)
        return nearest

    def versions(self, source: Input, key: Mapping[str, object], at_ms: int, refused: Collection[tuple[int, int]]) -> Versions:
        """Return the versions of a key around a time in a table's feed.

        Args:
            source: the table.
            key: its key columns, unqualified.
            at_ms: the time.
            refused: event time and offset of upserts that arrived after their history had expired (V1): they are no versions.
        """
        if source.relation.history_retention_ms is None:
            order = _BY_TIME if source.relation.conflict == "latest_event_time" else _BY_ARRIVAL
            latest, unread, is_complete = self._newest(order, source, key, (0, ALL_TIME), refused)
            return Versions(latest, None, latest, unread, is_complete)
        before, unread, is_searched = self._newest(_BY_TIME, source, key, (0, at_ms), refused)
        later = self.between(source, key, at_ms + 1, ALL_TIME)
        after = [record for record in later.records if record.is_read and not _is_in(record, refused)]
        return Versions(
            as_of=before,
            next=min(after, key=_by_time, default=None),
            latest=max(after, key=_by_time, default=before),
            unread=unread,
            is_complete=is_searched and later.is_complete,
        )

    def read_to_ms(self, source: Input) -> int | None:
        """Return the least, over the partitions, of the greatest event time read; None if a partition has none, or if it is unknown."""
        if not source.feed.traits.is_kept_here:
            return None
        read = Jsonb(dict(self.position.get(source.feed.name, {})))
        statement = _NUMBERED_READ_TO if source.feed.is_derived else _READ_TO
        times = [row[0] for row in self.connection.execute(statement, {"feed": source.feed.log_feed, "read": read})]
        return None if not times or None in times else min(times)

    def _newest(
        self,
        statement: str,
        source: Input,
        key: Mapping[str, object],
        span: tuple[int, int],
        refused: Collection[tuple[int, int]],
    ) -> tuple[Record | None, Record | None, bool]:
        """Return the newest read version in a span, a newer one that is not read, and whether the search was complete."""
        order: Callable[[Record], tuple[int, int]] = _by_time if statement is _BY_TIME else _by_arrival
        newest: Record | None = None
        unread: Record | None = None
        is_complete = True
        for batch in self._open_target(statement, source, key, span):
            if batch is None:
                is_complete = False
                break
            if newest is not None and (statement is _BY_ARRIVAL or batch.max_ts < newest.event_time_ms):
                break  # later batches are older
            valid = [record for record in batch.records if not _is_in(record, refused)]
            newest = max([*filter(None, [newest]), *(record for record in valid if record.is_read)], key=order, default=None)
            unread = max([*filter(None, [unread]), *(record for record in valid if not record.is_read)], key=order, default=None)
        if unread is not None and newest is not None and order(unread) < order(newest):
            unread = None
        return newest, unread, is_complete

    def _open_target(
        self, statement: str, source: Input, values: Mapping[str, object], span: tuple[int, int]
    ) -> Iterator[_SearchedBatch | None]:
        """Open batch after batch; yield None if the limit ends the search."""
        if not source.feed.traits.is_kept_here:
            yield None
            return
        params = {"feed": source.feed.log_feed, "from": span[0], "to": span[1], "limit": MAX_BATCHES + 1}
        batches = self.connection.execute(statement, params).fetchall()
        for feed_id, partition, base, min_ts, max_ts, sequence, rows in batches[:MAX_BATCHES]:
            row = self.connection.execute(_PAYLOAD, (feed_id, partition, base), binary=True).fetchone()
            if row is None:
                continue
            if sequence is not None:
                frame, partition = join_block([(partition, base, row[0])], sequence, rows), LANE_PARTITION
            else:
                frame = decode_frame(row[0])
                frame = frame.with_columns(pl.int_range(base, base + frame.height, dtype=pl.Int64).alias("_offset"))
            raw = frame if _has_other_times(source) else frame.filter(pl.col("_ts").is_between(*span))
            records = self._records(source, values, partition, raw)
            yield _SearchedBatch(min_ts, max_ts, [record for record in records if span[0] <= record.event_time_ms <= span[1]])
        if len(batches) > MAX_BATCHES:
            yield None

    def _records(self, source: Input, values: Mapping[str, object], partition: int, raw: pl.DataFrame) -> Iterator[Record]:
        """Yield the records of a feed that belong to the relation and have these values."""
        relation = source.relation
        condition = None if relation.where is None else compile_scalar(relation.where, relation.columns).expr
        accepted, _ = canonicalise(raw, relation, _FAR_FUTURE_MS, LOGGED, condition)
        accepted = accepted.with_columns(pl.col("_ts").alias(EVENT_TIME))
        computed = {each.name: each for each in source.computed if each.name in values}
        accepted = accepted.with_columns(
            compile_scalar(each.text, relation.readable).expr.alias(name) for name, each in computed.items()
        )
        for name, value in values.items():
            declared = computed[name].type if name in computed else relation.readable[name]
            accepted = accepted.filter(pl.col(name).eq_missing(pl.Series([value], dtype=declared.polars, strict=False)))
        part = None if source.part_of is None else source.source_name
        read_to = self.position.get(source.feed.name, {}).get(str(partition), 0)
        for row in accepted.iter_rows(named=True):
            values_of_row = {name: row[name] for name in relation.columns.names}
            place = Place(partition, row["_offset"], part)
            yield Record(place, row["_ts"], row["_op"] != 0, place.offset < read_to, values_of_row)


def _has_other_times(source: Input) -> bool:
    """Whether an input's event times differ from those in its feed's batches."""
    return source.part_of is not None and source.relation.event_time is not None


def _is_in(record: Record, refused: Collection[tuple[int, int]]) -> bool:
    return (record.event_time_ms, record.place.offset) in refused


def _by_time(record: Record) -> tuple[int, int]:
    return record.event_time_ms, record.place.offset


def _by_arrival(record: Record) -> tuple[int, int]:
    return record.place.offset, record.event_time_ms
