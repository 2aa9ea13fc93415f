"""A look that was prepared for many queries at once finds what each would have found by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from engine.errors import RecordsRemoved, SourceUnavailable
from engine.log import storage as log
from engine.log.backlogs import MOST_BATCHES, LogPlace, UnreadLook, unread_behind
from engine.log.sequences import feed_ends
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.batch_planner import BatchPlanner
from engine.runtime.planning.cursors import new_cursor, open_feeds
from engine.runtime.planning.source_spec import SourceSpec
from engine.runtime.planning.wall_clock import WallClock
from engine.sources.feeds import Limit
from engine.sources.log.reader import LogReader
from tests.integration.test_log import FEED, input_of, post

Connection = psycopg.Connection[Any]
LIMIT = Limit(1_000, 1 << 20)


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM log.feed")
        yield connection


@pytest.fixture
def reader(conn: Connection, dsn: str) -> LogReader:
    for first in range(0, 9, 3):
        post(conn, [{"k": "a", "t": first + row, "v": row} for row in range(3)])
    return LogReader(dsn, FEED)


def planner_of(dsn: str, max_rows: int = 100) -> BatchPlanner:
    inputs = (input_of(),)
    spec = SourceSpec(dsn, inputs, 1, new_cursor({FEED.name: {"0": 0}}, 0, 0), BatchLimit(max_rows, 1 << 20), 0)
    return BatchPlanner(spec, open_feeds(dsn, inputs), WallClock(lambda: 5.0))


def looked_by(conn: Connection, reader: BatchPlanner, cursor: Any) -> UnreadLook:
    ends = feed_ends(conn, [FEED.log_feed])
    return UnreadLook(ends, unread_behind(conn, reader.unread(cursor, ends)))


@pytest.mark.parametrize("start", [0, 1, 3, 5, 8])
def test_what_lies_behind_a_place_is_what_the_reader_finds(conn: Connection, reader: LogReader, start: int) -> None:
    place = LogPlace(FEED.log_feed, 0, start)
    found = unread_behind(conn, [LogPlace("nothing", 0, 0), place, LogPlace(FEED.log_feed, 7, 0), LogPlace(FEED.log_feed, 0, 9)])
    assert found.keys() == {place}, "of what is not there, and of what has been read, nothing is told"
    assert reader.chunks_of(found[place], 0, start, LIMIT) == reader.chunks(0, start, LIMIT, is_dated=False)


def test_a_long_backlog_is_left_to_the_reader(conn: Connection, reader: LogReader) -> None:
    for time in range(MOST_BATCHES):
        post(conn, [{"k": "a", "t": time, "v": 1}])
    assert unread_behind(conn, [LogPlace(FEED.log_feed, 0, 0)]) == {}
    assert unread_behind(conn, [LogPlace(FEED.log_feed, 0, 12)]).keys() == {LogPlace(FEED.log_feed, 0, 12)}


def test_what_retention_removed_is_refused(conn: Connection, reader: LogReader) -> None:
    place = LogPlace(FEED.log_feed, 0, 2)
    conn.execute("UPDATE log.head SET start_offset = 5")
    with pytest.raises(RecordsRemoved, match="records 2 to 4 were removed"):
        reader.chunks_of(unread_behind(conn, [place])[place], 0, 2, LIMIT)


@pytest.mark.parametrize("max_rows", [1, 4, 100])
def test_batches_end_where_they_end_without(conn: Connection, dsn: str, reader: LogReader, max_rows: int) -> None:
    plain, prepared = planner_of(dsn, max_rows), planner_of(dsn, max_rows)
    cursor = plain.start
    while (end := plain.next_cursor(cursor)) is not cursor:
        assert prepared.next_cursor(cursor, looked_by(conn, prepared, cursor)) == end
        cursor = end
    assert cursor["feeds"] == {FEED.name: {"0": 9}}
    assert prepared.unread(cursor, feed_ends(conn, [FEED.log_feed])) == []


def test_a_feed_that_is_gone_is_discovered_by_its_reader(conn: Connection, dsn: str, reader: LogReader) -> None:
    packets = planner_of(dsn)
    conn.execute("DELETE FROM log.feed")
    ends = feed_ends(conn, [FEED.log_feed])
    assert ends == {}
    assert packets.unread(packets.start, ends) == []
    with pytest.raises(SourceUnavailable):
        packets.next_cursor(packets.start)


def test_a_feed_that_ends_before_what_was_read_is_discovered_by_its_reader(conn: Connection, dsn: str, reader: LogReader) -> None:
    packets = planner_of(dsn)
    read = packets.next_cursor(packets.start)
    conn.execute("UPDATE log.head SET next_offset = 7")
    assert packets.unread(read, feed_ends(conn, [FEED.log_feed])) == []
    with pytest.raises(SourceUnavailable):
        packets.next_cursor(read)


def test_ends_are_those_of_partitions_and_of_numbers(conn: Connection, dsn: str) -> None:
    log.ensure_feed(conn, "two", 2)
    log.ensure_feed(conn, "made", 3)
    conn.execute("UPDATE log.feed SET start_sequence = 0, next_sequence = 12 WHERE name = 'made'")
    conn.execute("UPDATE log.head h SET next_offset = 5 + partition FROM log.feed f WHERE f.id = h.feed_id AND f.name = 'two'")
    assert feed_ends(conn, ["two", "made", "nothing"]) == {"two": {"0": 5, "1": 6}, "made": {"0": 12}}
