"""Queries begin over sources under retention, which removes records between their launch, their first look and their first read.

On a real log, with the reader and the planner of batches; without Spark, which has no part in where reading begins.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from engine.commit.removed_records import UNREAD_SQL, as_unread
from engine.commit.task_states import Cursor
from engine.errors import RecordsRemoved, SourceUnavailable
from engine.frames.arrow_frames import decode_frame
from engine.log import storage as log
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.batch_planner import BatchPlanner
from engine.runtime.planning.cursors import new_cursor, start_positions
from engine.runtime.planning.source_spec import SourceSpec
from engine.runtime.source import PacketReader
from tests.integration.test_log import input_of, post

Connection = psycopg.Connection[Any]
LAUNCHES = 30
BATCH_ROWS = 5


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM log.feed")
        yield connection


class Source:
    """A log that gets batches, and loses the oldest ones."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.posted = 0
        self.removed = 0

    def post(self, batches: int) -> None:
        for _ in range(batches):
            times = range(self.posted, self.posted + BATCH_ROWS)
            post(self._connection, [{"k": "a", "t": time, "v": time} for time in times])
            self.posted += BATCH_ROWS

    def remove(self, batches: int) -> None:
        """Let the retention of so many batches end."""
        self.removed = min(self.removed + batches * BATCH_ROWS, self.posted)
        aged = "UPDATE log.batch SET appended_at = now() - interval '1 hour' WHERE base_offset < %s"
        self._connection.execute(aged, (self.removed,))
        log.set_retention(self._connection, "events", 60_000)
        log.trim(self._connection)


class Query:
    """A query as far as its beginning goes: what it has read, and what it has counted as lost."""

    def __init__(self, dsn: str, cursor: Cursor | None = None) -> None:
        self._dsn, self._inputs = dsn, (input_of(),)
        self.cursor = cursor or as_unread(new_cursor(start_positions(dsn, self._inputs), 0, 0))
        self.read: list[int] = []
        self.lost = 0
        self.failed_attempts = 0

    def attempt(self, source: Source, removals: Iterator[int]) -> bool:
        """Plan a batch and read it, while records are removed in between; gives whether it was committed."""
        spec = SourceSpec(self._dsn, self._inputs, 1, self.cursor, BatchLimit(20, 10**9), 1)
        planner = BatchPlanner.of(spec)
        end = planner.next_cursor(self.cursor)
        if end is self.cursor:
            return True
        source.remove(next(removals))
        try:
            packets = [packet for group in planner.groups(self.cursor, end) for packet in PacketReader.of(spec).read(group)]
        except SourceUnavailable:
            self.failed_attempts += 1
            return False
        for packet in packets:
            if packet.kind == "data":
                self.read += decode_frame(packet.blob)["v"].to_list()
            if packet.kind == "stats":
                self.lost += sum(count for _, reason, count in json.loads(packet.blob)["counters"] if reason == "records_lost")
        self.cursor = end
        return True


def test_thirty_launches_over_a_source_under_retention_begin_with_what_is_there_and_count_the_rest(
    conn: Connection, dsn: str
) -> None:
    chance = random.Random(28)
    source = Source(conn)
    for launch in range(LAUNCHES):
        source.post(20)
        first = source.removed
        query = Query(dsn)
        source.remove(chance.randrange(8))
        removals = iter([chance.randrange(3), *[0] * 100])
        source.post(1)
        for _ in range(50):
            query.attempt(source, removals)
            if query.cursor["feeds"]["log:events"]["0"] == source.posted:
                break
        assert query.read == list(range(query.read[0], source.posted)), (
            f"launch {launch}: nothing behind its beginning is left out"
        )
        assert (query.read[0], query.lost) == (source.removed, source.removed - first)
        was, begun = query.cursor.get("skipped", {}).get("log:events", {}).get("0", [first, first])
        assert (was, begun) == (first, source.removed)
        assert query.failed_attempts <= 1
        source.remove(17)


def test_a_query_that_was_put_back_or_forked_goes_on_behind_what_was_removed_meanwhile(conn: Connection, dsn: str) -> None:
    source = Source(conn)
    source.post(4)
    before = Query(dsn)
    assert before.attempt(source, iter([0]))
    source.post(4)
    source.remove(6)
    with pytest.raises(RecordsRemoved):
        Query(dsn, before.cursor).attempt(source, iter([0]))
    again = Query(dsn, as_unread(before.cursor))
    assert again.attempt(source, iter([0]))
    assert (again.read, again.lost) == (list(range(30, 40)), 10)


@pytest.mark.parametrize("feeds", [{}, {"log:a": {}}, {"log:a": {"0": 3, "1": 0}, "log:b": {"0": 7}}])
def test_postgres_says_the_same_of_a_copied_cursor(conn: Connection, feeds: dict[str, dict[str, int]]) -> None:
    cursor = new_cursor(feeds, 0, 0)
    row = conn.execute(f"SELECT {UNREAD_SQL} FROM (SELECT %s::jsonb AS cursor) c", (Jsonb(dict(cursor)),)).fetchone()
    assert row is not None
    assert {**row[0], "unread": row[0]["unread"] or {}} == as_unread(cursor)
