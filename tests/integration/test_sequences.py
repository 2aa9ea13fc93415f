"""P1, P6 on a real Postgres: rows of several tasks are read back by their numbers, whatever the blocks, tasks and versions that wrote them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import polars as pl
import psycopg
import pytest

from engine.commit.written import SharedRows
from engine.errors import RecordsRemoved, SourceUnavailable
from engine.log import storage as log
from engine.log.marks import Marks, read_marks
from engine.log.sequence import Numbered
from engine.log.sequences import Advance, leave_orphaned, make_result_feed, open_sequences, read_sequence, trim_sequence
from engine.plan.model import Feed, Input
from engine.sources.connector_kinds import open_feed
from engine.sources.feeds import FeedReader, Limit, ReadRequest
from tests.derived_log import append_rows, open_sequence, read_derived
from tests.unit.records.relations import relation

PRODUCER = uuid4()
FEED = Feed("log:made", "log", "made", is_derived=True)
MADE = Input(0, "made", relation({"v": "bigint"}, name="made"), FEED, ("v",), ())
ALL = Limit(10**9, 10**12)
Connection = psycopg.Connection[Any]
Place = tuple[int, int]


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM log.feed")
        make_result_feed(connection, "made", 2, PRODUCER)
        yield connection


class Producer:
    """Commits batches of rows ``v = 0, 1, 2, …`` and knows where each one stands."""

    def __init__(self, conn: Connection, seed: int = 1) -> None:
        self._conn = conn
        self._chance = np.random.default_rng(seed)
        self._offsets: dict[int, int] = {}
        self.head = 0
        self.places: list[Place] = []
        self.heads: list[int] = []

    def commit(self, rows: int, tasks: int, pad_bytes: int = 0) -> None:
        ordinals = self._chance.integers(0, tasks, rows)
        heads = self.head + np.cumsum(self._chance.integers(0, 3, rows))
        first = len(self.places)
        values = np.arange(first, first + rows)
        frame = pl.DataFrame({"_ts": heads - 1, "v": values}).with_columns(
            pl.lit(0, pl.Int8).alias("_op"),
            pl.Series("pad", [f"{value}".ljust(pad_bytes) for value in range(rows)], dtype=pl.String),
        )
        numbers = [np.flatnonzero(ordinals == ordinal) for ordinal in range(tasks)]
        self.head = int(heads[-1]) if rows else self.head
        with self._conn.transaction():
            feed = open_sequence(self._conn, "made")
            assert (feed.next_sequence, feed.reached_ms) == (first, self.heads[-1] if self.heads else None)
            parts = [frame[own] for own in numbers]
            append_rows(
                self._conn, feed, parts, Numbered(numbers, [heads[own] for own in numbers], self.head), PRODUCER, now_ms=7
            )
        for ordinal, head in zip(ordinals.tolist(), heads.tolist(), strict=True):
            offset = self._offsets.get(ordinal, 0)
            self._offsets[ordinal] = offset + 1
            self.places.append((ordinal, offset))
            self.heads.append(head)


def feed_id(conn: Connection) -> int:
    found = log.find_feed(conn, "made")
    assert found is not None
    return found.id


def read(conn: Connection, start: int, end: int) -> pl.DataFrame:
    frames = list(read_sequence(conn, feed_id(conn), start, end))
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame(schema={"_offset": pl.Int64})


def check(conn: Connection, made: Producer, start: int, end: int) -> None:
    found = read(conn, start, end)
    wanted = range(start, min(end, len(made.places)))
    assert found["_offset"].to_list() == found["v"].to_list() == list(wanted)
    assert found["_head"].to_list() == [made.heads[number] for number in wanted]
    assert list(zip(found["_partition"].to_list(), found["_partition_offset"].to_list(), strict=True)) == [
        made.places[number] for number in wanted
    ]


def reader(conn: Connection) -> FeedReader:
    return open_feed(conn.info.dsn, FEED, [])


def test_rows_of_several_tasks_come_back_in_the_order_of_their_numbers_from_anywhere_to_anywhere(conn: Connection) -> None:
    made = Producer(conn)
    for rows in (5, 1, 0, 300, 40, 2):
        made.commit(rows, 3)
    check(conn, made, 0, 10**6)
    chance = random.Random(1)
    for _ in range(30):
        start, end = sorted(chance.sample(range(len(made.places) + 1), 2))
        check(conn, made, start, end)
    assert read(conn, 348, 10**6).is_empty()


def test_what_a_task_made_stands_in_its_partition_in_the_order_of_emission(conn: Connection) -> None:
    made = Producer(conn)
    for _ in range(4):
        made.commit(50, 4)
    rows = pl.concat(list(read_derived(conn, "made")))
    for head in log.heads(conn, feed_id(conn)):
        frames = [frame for _, frame in log.read(conn, feed_id(conn), head.partition, 0, head.next_offset)]
        assert (
            pl.concat([frame.select("v") for frame in frames])["v"].to_list()
            == rows.filter(_partition=head.partition)["v"].to_list()
        )
        assert head.next_offset == rows.filter(_partition=head.partition).height


def test_a_large_batch_is_cut_into_blocks_of_consecutive_numbers(conn: Connection) -> None:
    made = Producer(conn)
    made.commit(160_000, 3)
    blocks = conn.execute(
        "SELECT sequence, sum(rows), max(sequence_rows), count(*), max(head_ms) FROM log.batch GROUP BY sequence ORDER BY sequence"
    ).fetchall()
    assert len(blocks) > 2
    assert [block[0] for block in blocks] == np.cumsum([0, *(block[2] for block in blocks)])[:-1].tolist()
    assert all(rows == count and parts == 3 for _, rows, count, parts, _ in blocks)
    assert [head for *_, head in blocks] == [made.heads[start + count - 1] for start, _, count, _, _ in blocks]
    check(conn, made, 0, 160_000)
    check(conn, made, blocks[1][0] - 1, blocks[1][0] + 1)


def test_large_rows_make_small_blocks(conn: Connection) -> None:
    made = Producer(conn)
    made.commit(100, 2, pad_bytes=1 << 20)
    sizes = conn.execute("SELECT sum(octet_length(payload)) FROM log.batch GROUP BY sequence").fetchall()
    assert len(sizes) > 2
    assert all(size <= log.BATCH_BYTES * 5 // 4 for (size,) in sizes)
    check(conn, made, 0, 100)


def test_more_tasks_and_fewer_go_on_with_the_numbers(conn: Connection) -> None:
    made = Producer(conn)
    for tasks in (1, 2, 7, 3, 1, 7):
        made.commit(40, tasks)
    check(conn, made, 0, 240)
    feed = log.find_feed(conn, "made")
    assert feed is not None
    assert (feed.partitions, feed.next_sequence) == (7, 240)
    assert {head.partition for head in log.heads(conn, feed.id)} == set(range(7))
    assert sum(head.next_offset for head in log.heads(conn, feed.id)) == 240


def test_a_reader_sees_one_partition_whatever_the_tasks(conn: Connection) -> None:
    made = Producer(conn)
    for rows, tasks in ((9_000, 3), (5, 1), (5, 2), (9_000, 4)):
        made.commit(rows, tasks)
    own = reader(conn)
    assert (dict(own.starts("earliest")), dict(own.starts("latest")), dict(own.ends())) == ({0: 0}, {0: 18_010}, {0: 18_010})
    chunks = own.chunks(0, 0, ALL, is_dated=True)
    assert sum(chunk.rows for chunk in chunks) == chunks[-1].end_offset == 18_010
    assert [chunk.max_ts for chunk in chunks] == [made.heads[chunk.end_offset - 1] for chunk in chunks]
    [late] = own.chunks(0, 18_000, ALL, is_dated=True)
    assert (late.end_offset, late.rows) == (18_010, 10)
    assert len(own.chunks(0, 0, Limit(1, 10**12), is_dated=True)) == 1
    chance = random.Random(2)
    heads = np.array(made.heads)
    for _ in range(40):
        start, end = sorted(chance.sample(range(18_011), 2))
        bound = chance.randrange(int(heads[-1]) + 3)
        found = np.flatnonzero(heads[start:end] >= bound)
        assert own.first_at(0, start, end, bound) == (start + int(found[0]) if len(found) else end)


def test_a_start_time_is_that_of_the_first_block_that_holds_it(conn: Connection) -> None:
    made = Producer(conn)
    for _ in range(3):
        made.commit(10, 2)
    times = [head - 1 for head in made.heads]
    for at in (0, times[9], times[9] + 1, times[25], times[-1] + 1):
        first = next((number for number, time in enumerate(times) if time >= at), 30)
        assert reader(conn).starts(at) == {0: first // 10 * 10}


def removed(conn: Connection, start: int, end: int) -> None:
    """Reading what was removed after a batch was planned says so."""
    own = reader(conn)
    with pytest.raises(RecordsRemoved, match="removed by its retention"):
        [list(own.read(split, ReadRequest([MADE], 0, 1))) for split in own.splits(0, start, end)]


def age(conn: Connection, before: int) -> None:
    conn.execute("UPDATE log.batch SET appended_at = now() - interval '1 hour' WHERE sequence < %s", (before,))


@pytest.mark.parametrize(("keep_from", "kept"), [(None, 20), (0, 0), (9, 0), (10, 10), (19, 10), (20, 20), (35, 20)])
def test_retention_removes_whole_blocks_and_keeps_what_a_reader_has_still_to_read(
    conn: Connection, keep_from: int | None, kept: int
) -> None:
    made = Producer(conn)
    for _ in range(4):
        made.commit(10, 3)
    age(conn, 20)
    with conn.transaction():
        trim_sequence(conn, feed_id(conn), 60_000, keep_from)
    assert reader(conn).starts("earliest") == {0: kept}
    check(conn, made, kept, 40)
    for head in log.heads(conn, feed_id(conn)):
        own = [offset for partition, offset in made.places[kept:] if partition == head.partition]
        assert (head.start_offset, head.next_offset) == (
            own[0] if own else head.next_offset,
            sum(p == head.partition for p, _ in made.places),
        )
    if kept:
        with pytest.raises(RecordsRemoved, match=f"rows 0 to {kept - 1} were removed by its retention"):
            reader(conn).chunks(0, 0, ALL, is_dated=True)
        removed(conn, 0, 40)
    made.commit(10, 5)
    check(conn, made, kept, 50)


def test_all_may_go_and_numbers_go_on(conn: Connection) -> None:
    made = Producer(conn)
    made.commit(10, 2)
    age(conn, 10)
    with conn.transaction():
        assert trim_sequence(conn, feed_id(conn), 60_000) > 0
        assert trim_sequence(conn, feed_id(conn), 60_000) == 0
    assert reader(conn).starts("earliest") == reader(conn).ends() == {0: 10}
    removed(conn, 0, 10)
    made.commit(3, 2)
    check(conn, made, 10, 13)


def test_making_a_feed_again_leaves_what_it_holds(conn: Connection) -> None:
    made = Producer(conn)
    made.commit(10, 2)
    age(conn, 10)
    with conn.transaction():
        trim_sequence(conn, feed_id(conn), 60_000)
    found = make_result_feed(conn, "made", 5, uuid4())
    assert (found.start_sequence, found.next_sequence) == (10, 10)
    made.commit(4, 2)
    check(conn, made, 10, 14)


def test_a_feed_that_no_query_writes_is_no_derived_one(conn: Connection) -> None:
    log.ensure_feed(conn, "posted", 2)
    with conn.transaction():
        assert open_sequences(conn, ["posted", "nothing"]) == {}
    with pytest.raises(SourceUnavailable, match="no derived feed"):
        open_feed(conn.info.dsn, Feed("log:posted", "log", "posted", is_derived=True), []).ends()


def test_a_producer_that_is_gone_leaves_its_feed_orphaned(conn: Connection) -> None:
    Producer(conn).commit(3, 2)
    assert conn.execute("SELECT producer FROM log.feed").fetchone() == (PRODUCER,)
    leave_orphaned(conn, PRODUCER)
    assert conn.execute("SELECT producer, next_sequence FROM log.feed").fetchone() == (None, 3)


def test_a_commit_of_the_producer_is_seen_as_a_whole(conn: Connection, dsn: str) -> None:
    made = Producer(conn)
    made.commit(10, 2)
    with psycopg.connect(dsn, autocommit=True) as other, conn.transaction():
        Producer.commit(made, 10, 4)
        assert reader(other).ends() == {0: 10}
        assert sum(frame.height for frame in read_derived(other, "made")) == 10
    assert reader(conn).ends() == {0: 20}


def tell(conn: Connection, *told: tuple[int, int, int]) -> None:
    """Write marks, one commit each: (number, head, time)."""
    for number, head, time in told:
        written, feed = SharedRows(), open_sequence(conn, "made")
        advance = Advance(feed.id, feed.next_sequence, feed.reached_ms, time, PRODUCER, 0)
        written.append(advance, [])
        written.append(advance._replace(last_mark_ms=None), [])  # replayed rows have no marks
        written.tell(feed.id, Marks(np.array([number]), np.array([head]), np.array([time])))
        with conn.cursor() as cursor:
            written.send(cursor)


def test_marks_that_were_read_are_not_read_again_and_the_horizon_bounds_them(conn: Connection) -> None:
    """P14: a relation that emits no row for a day has tens of thousands of them before its next row."""
    Producer(conn).commit(10, 2)
    tell(conn, (10, 50, 1_000), (10, 60, 2_000), (10, 70, 3_000))
    own = reader(conn)
    assert [own.last_mark_ms(head) for head in (None, 61, 60, 50)] == [3_000, 2_000, 1_000, None]
    [split] = own.with_marks([], 10, 61, None)
    assert read_marks(conn, feed_id(conn), 10, 10, 61).times.tolist() == [1_000, 2_000]
    assert read_marks(conn, feed_id(conn), 10, 10, None, 2_000).times.tolist() == [3_000]
    assert [packet.kind for packet in own.read(split, ReadRequest([MADE], 0, 1))] == ["times", "progress"]


@pytest.mark.parametrize(("keep_from", "kept"), [(None, [2_000, 3_000]), (10, [1_000, 2_000, 3_000])])
def test_old_marks_of_a_relation_without_rows_go_too(conn: Connection, keep_from: int | None, kept: list[int]) -> None:
    Producer(conn).commit(10, 2)
    age(conn, 10)
    tell(conn, (10, 50, 1_000), (10, 60, 2_000), (10, 70, 3_000))
    conn.execute("UPDATE log.mark SET appended_at = now() - interval '1 hour' WHERE time_ms < 3000")
    with conn.transaction():
        trim_sequence(conn, feed_id(conn), 60_000, keep_from)
    assert read_marks(conn, feed_id(conn), 10, 10, None).times.tolist() == kept, (
        "of the old ones the last tells where time stands"
    )
