"""What is asked of the database for all batches of a round at once is what each would have found by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from engine.commit.task_states import TaskState, write_states
from engine.errors import RecordsRemoved, SourceUnavailable
from engine.frames.arrow_frames import decode_frame
from engine.log import storage as log
from engine.log.fetched import Fetched, LogSplit, fetch
from engine.sources.feeds import ReadRequest, Split
from engine.sources.log.reader import LogReader
from engine.sources.packets import Packet
from tests.integration.test_log import FEED, input_of, post
from tests.unit.records.relations import NOW_MS

Connection = psycopg.Connection[Any]


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


def read(reader: LogReader, split: Split, fetched: Fetched | None) -> list[Packet]:
    return list(reader.read(split, ReadRequest((input_of(),), NOW_MS, 1, fetched)))


@pytest.mark.parametrize("bounds", [(0, 9), (2, 7), (3, 6), (4, 5)])
def test_a_split_that_was_fetched_is_read_as_one_that_was_not(
    conn: Connection, reader: LogReader, bounds: tuple[int, int]
) -> None:
    split = Split(0, *bounds, None)
    other = LogSplit("nothing", 0, 0, 5)
    fetched = fetch(conn, [], [other, reader.fetchable(split)])
    assert fetched.batches.keys() == {reader.fetchable(split)}, "of a feed that is not there nothing is known"
    plain = read(reader, split, None)
    conn.execute("DELETE FROM log.batch")
    assert read(reader, split, fetched) == plain
    request = ReadRequest((input_of(),), NOW_MS, 1, fetched, is_here=True)
    (here,) = [packet for packet in reader.read(split, request) if packet.kind == "data"]
    assert here.frame is not None, "who works with it right here gets it as it is"
    assert here.frame.equals(decode_frame(plain[0].blob))


def test_a_large_split_is_read_in_its_turn(conn: Connection, reader: LogReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.log.fetched.MOST_BYTES", 1)
    split = Split(0, 0, 9, None)
    fetched = fetch(conn, [], [reader.fetchable(split)])
    assert not fetched.batches
    assert read(reader, split, fetched) == read(reader, split, None)


def test_many_splits_hold_no_more_together_than_one_process_may(
    conn: Connection, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = [reader.fetchable(Split(0, start, 9, None)) for start in range(3)]
    (size,) = conn.execute("SELECT sum(octet_length(payload))::bigint FROM log.batch").fetchone() or (0,)
    for together, found in ((3 * size, splits), (3 * size - 1, [])):
        monkeypatch.setattr("engine.log.fetched.MOST_TOGETHER", together)
        assert [*fetch(conn, [], splits).batches] == found


def test_what_retention_removed_is_found_behind_what_was_fetched(conn: Connection, reader: LogReader) -> None:
    conn.execute("UPDATE log.head SET start_offset = 5")
    split = Split(0, 3, 9, None)
    with pytest.raises(RecordsRemoved, match="records 3 to 4 were removed"):
        read(reader, split, fetch(conn, [], [reader.fetchable(split)]))


def test_an_end_that_is_no_longer_there_is_found(conn: Connection, reader: LogReader) -> None:
    conn.execute("UPDATE log.head SET next_offset = 7")
    split = Split(0, 3, 9, None)
    with pytest.raises(SourceUnavailable):
        read(reader, split, fetch(conn, [], [reader.fetchable(split)]))


def test_a_feed_that_goes_meanwhile_is_told(conn: Connection, reader: LogReader) -> None:
    split = Split(0, 0, 9, None)
    fetched = fetch(conn, [], [reader.fetchable(split)])
    gone = replace(fetched, heads={})
    with pytest.raises(SourceUnavailable):
        read(reader, split, gone)


def test_tokens_and_times_are_those_of_the_queries_asked_for(conn: Connection) -> None:
    asked, other = uuid4(), uuid4()
    for query in (asked, other):
        conn.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, detail) VALUES (%s, %s, 1, %s)",
            (query, uuid4(), Jsonb({"times": {"next_position": 7}})),
        )
        with conn.cursor() as cursor:
            write_states(cursor, query, {(0, 0): TaskState("first", "{}"), (1, 2): TaskState("second", "{}")})
    conn.execute("INSERT INTO log.commit (query_id, checkpoint_id, epoch) VALUES (%s, %s, 1)", (new := uuid4(), uuid4()))
    found = fetch(conn, [asked, new], [])
    assert found.queries == {asked, new}
    assert found.times == {asked: {"next_position": 7}, new: None}
    assert found.tokens == {(asked, 0, 0): "first", (asked, 1, 2): "second"}
    assert log.find_feed(conn, "nothing") is None
