"""How far the producers behind a derived feed have read their sources (P3, P4, P5).

A reader of a derived feed asks three questions. Will rows come that belong before what it could read now? Then its other feeds wait at one
event time. How far has the feed been read, in event time? As far as its producer's sources. Is it silent? When the sources are. A producer
that is paused or stopped with records unread is behind, not silent: readers wait for its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from psycopg.rows import tuple_row

from engine.definition.sources.connector import LOG_PREFIX
from engine.frames.clocks import BEFORE_ALL_TIME
from engine.log.sequences import LANE_PARTITION
from engine.postgres.postgres import Connection
from engine.sources.connector_kinds import OWN_ENDS_SQL

_FACTS_SQL = f"""
SELECT f.name, f.producer, f.next_sequence, f.reached_ms, c.position, c.detail -> 'read_to',
    coalesce({OWN_ENDS_SQL}, (SELECT jsonb_object_agg(h.partition::text, h.next_offset) FROM log.head h WHERE h.feed_id = f.id)),
    f.last_mark_ms, c.cursor -> 'last_marks'
FROM log.feed f LEFT JOIN log.commit c ON c.query_id = f.producer WHERE f.name = ANY(%(names)s)
"""  # noqa: S608 - made of constants
_REPLAYS = "replay:"


@dataclass(frozen=True, slots=True)
class Reached:
    """The progress of the producers behind a derived feed.

    Attributes:
        is_at_end: every producer behind it has read all existing records and marks: no rows are on their way.
        merged_to_ms: no row will come whose head is smaller; None before the producer's first record.
        read_to_ms: smallest, over the partitions of all sources, of the greatest event time read; None if a partition has none.
        sources: the ends of the sources' logs; another value shows that there is new data.
        lacks_marks_only: not at the end, but all records are read: the sources are silent (T10).
    """

    is_at_end: bool
    merged_to_ms: int | None
    read_to_ms: int | None
    sources: tuple[tuple[str, int], ...]
    lacks_marks_only: bool = False

    @property
    def has_all_records(self) -> bool:
        """Whether every producer behind it has read all existing records."""
        return self.is_at_end or self.lacks_marks_only


@dataclass(frozen=True, slots=True)
class ProducerFact:
    """A feed, and its producer's commits.

    Attributes:
        producer: the query that writes it; None for a source, and for the result of a query that is gone.
        next_sequence: of a derived feed; None for a source's.
        reached_ms: how far the merge of the producer's inputs has come.
        position: of the producer: feed → partition → next offset.
        read_to: of the producer: feed → partition → greatest event time read.
        ends: partition → next offset of the feed itself.
        last_mark_ms: of a derived feed: the time of its last mark; None: it has none.
        last_marks: of the producer: derived feed → the time of the last mark that it has read.
    """

    producer: UUID | None
    next_sequence: int | None
    reached_ms: int | None
    position: Mapping[str, Mapping[str, int]]
    read_to: Mapping[str, Mapping[str, int]]
    ends: Mapping[str, int]
    last_mark_ms: int | None = None
    last_marks: Mapping[str, int] = field(default_factory=dict)


def reached(connection: Connection, feeds: Iterable[str]) -> dict[str, Reached]:
    """Return the progress of the producers behind derived feeds.

    Facts of producers are read before the ends of their inputs, so that ``is_at_end`` is never true too early.

    Args:
        connection: in no transaction; every statement sees what is committed.
        feeds: names of log feeds.
    """
    facts: dict[str, ProducerFact] = {}
    wanted = list(feeds)
    while wanted:
        found = _load(connection, wanted)
        facts |= found
        read = {log_feed_of(name) for fact in found.values() for name in fact.position}
        wanted = sorted(read - facts.keys())
    known: dict[str, Reached] = {}
    return {name: walk(name, facts, known) for name in feeds if name in facts}


def _load(connection: Connection, names: Sequence[str]) -> dict[str, ProducerFact]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        rows: list[tuple[Any, ...]] = cursor.execute(_FACTS_SQL, {"names": list(names)}).fetchall()
    return {
        name: ProducerFact(
            producer, following, reached_ms, position or {}, read_to or {}, _ends(following, ends), last_mark_ms, last_marks or {}
        )
        for name, producer, following, reached_ms, position, read_to, ends, last_mark_ms, last_marks in rows
    }


def _ends(next_sequence: int | None, ends: Mapping[str, int] | None) -> Mapping[str, int]:
    """Return partition → next offset, as positions have it."""
    return (ends or {}) if next_sequence is None else {str(LANE_PARTITION): next_sequence}


def log_feed_of(feed: str) -> str:
    """Return the name in ``log.feed`` of a feed in a position."""
    return feed.removeprefix(LOG_PREFIX)


def walk(name: str, facts: Mapping[str, ProducerFact], known: dict[str, Reached] | None = None) -> Reached:
    """Return the progress of the producers behind one derived feed.

    Args:
        name: of the log feed.
        facts: of this feed and every feed behind it, by the names of log feeds.
        known: results by feed, extended here: a feed that several queries read is examined once.
    """
    known = {} if known is None else known
    if name not in known:
        known[name] = _walk(name, facts, known)
    return known[name]


def _walk(name: str, facts: Mapping[str, ProducerFact], known: dict[str, Reached]) -> Reached:
    fact = facts[name]
    if fact.producer is None:
        ends = tuple((f"{name}/{partition}", end) for partition, end in sorted(fact.ends.items()))
        return Reached(is_at_end=True, merged_to_ms=fact.reached_ms, read_to_ms=fact.reached_ms, sources=ends)
    # Replayed late records are no part of a source's time.
    parts = [_read(feed, fact, facts, known) for feed in sorted(fact.position) if not feed.startswith(_REPLAYS)]
    times = [part.read_to_ms for part in parts]
    is_at_end = bool(parts) and all(part.is_at_end for part in parts)
    return Reached(
        is_at_end=is_at_end,
        lacks_marks_only=bool(parts) and not is_at_end and all(part.has_all_records for part in parts),
        merged_to_ms=fact.reached_ms,
        read_to_ms=None if None in times else min((ms for ms in times if ms is not None), default=None),
        sources=tuple(sorted({source for part in parts for source in part.sources})),
    )


def _read(feed: str, fact: ProducerFact, facts: Mapping[str, ProducerFact], known: dict[str, Reached]) -> Reached:
    """Return how far a producer has read one of its feeds."""
    position, own = fact.position[feed], fact.read_to.get(feed, {})
    read = facts.get(log_feed_of(feed))
    if read is None:  # the feed was dropped: it gets no more records
        return Reached(is_at_end=True, merged_to_ms=None, read_to_ms=None, sources=())
    has_rows = all(position.get(partition, 0) >= end for partition, end in read.ends.items())
    if read.next_sequence is None:
        times = [own.get(partition) for partition in read.ends]
        ends = tuple((f"{feed}/{partition}", end) for partition, end in sorted(read.ends.items()))
        least = None if None in times else min((ms for ms in times if ms is not None), default=None)
        return Reached(is_at_end=has_rows, merged_to_ms=None, read_to_ms=least, sources=ends)
    behind = walk(log_feed_of(feed), facts, known)
    # A mark that a producer has not read can make it emit rows, as a row can (P14).
    is_read = has_rows and fact.last_marks.get(feed) == read.last_mark_ms
    read_to_ms = behind.read_to_ms
    if not is_read and read_to_ms is not None:
        read_to_ms = min(read_to_ms, own.get(str(LANE_PARTITION), BEFORE_ALL_TIME))
    is_at_end = is_read and behind.is_at_end
    return Reached(is_at_end, None, read_to_ms, behind.sources, not is_at_end and has_rows and behind.has_all_records)
