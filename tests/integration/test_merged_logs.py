"""P2 on a real Postgres: the batches of a backlog of logs, one behind the other, are the merge of the whole; heads do not depend on cuts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import psycopg
import pytest

from engine.frames.clocks import I64
from engine.log import storage as log
from engine.plan.model import Feed, Input
from engine.runtime.planning.batch_planner import FIRST_ROWS
from engine.sources.connector_kinds import open_feed
from engine.sources.feeds import Limit
from tests.integration.batches import Backlog, merged
from tests.unit.records.relations import relation

EVENTS = relation({"k": "string", "t": "bigint"}, key=("k",), event_time="t")
ALL = Limit(10**9, 10**12)
Connection = psycopg.Connection[Any]


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM log.feed")
        yield connection


def feed_of(name: str) -> Feed:
    return Feed(f"log:{name}", "log", name)


def input_of(name: str, index: int) -> Input:
    return Input(index, f"i{index}", EVENTS, feed_of(name), EVENTS.columns.names, ("k",))


def post(conn: Connection, feed: str, partitions: int, batches: list[tuple[int, I64]]) -> None:
    """Append batches of event times to partitions of a feed."""
    found = log.ensure_feed(conn, feed, partitions)
    pairs = []
    for partition, times in batches:
        frame = pl.DataFrame({"_ts": times, "t": times}).with_columns(pl.lit(0, pl.Int8).alias("_op"), pl.lit("a").alias("k"))
        pairs += [(partition, batch) for batch in log.encode_batches(frame, 0)]
    log.append_batches(conn, found.id, pairs)


def some_times(chance: np.random.Generator, rows: int, span_ms: int) -> I64:
    """Times that rise by and large, with ties, disorder and a few late records and jumps."""
    times = np.linspace(0, span_ms, rows).astype(np.int64) + chance.integers(-span_ms // 50, span_ms // 50 + 1, rows)
    times[chance.random(rows) < 0.01] = 0
    times[chance.random(rows) < 0.0002] += span_ms // 10
    clipped: I64 = np.clip(times, 0, None) // 7 * 7
    return clipped


@pytest.mark.parametrize(("max_rows", "seed"), [(9_000, 1), (40_000, 2), (70_000, 3), (10**9, 4)])
def test_batches_of_several_logs_are_the_merge_of_the_whole(conn: Connection, dsn: str, max_rows: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    sizes = {("one", 0): 70_000, ("one", 1): 15_000, ("one", 2): 0, ("two", 0): 35_000}
    assert sum(sizes.values()) <= FIRST_ROWS
    times = {lane: some_times(chance, rows, 10**6) for lane, rows in sizes.items()}
    for (feed, partition), own in times.items():
        cuts = np.sort(chance.choice(len(own), 12)) if len(own) else []
        batches = [(partition, part) for part in np.split(own, cuts) if len(part)]
        post(conn, feed, 3 if feed == "one" else 1, batches)
    backlog = Backlog(dsn, (input_of("one", 0), input_of("two", 1)), max_rows)
    read = backlog.read()
    lanes = [(0, partition) for partition in range(3)] + [(1, 0)]
    expected = merged([(range(len(own)), own) for own in times.values()])
    assert read == [(*lanes[lane], offset) for lane, offset in expected]
    assert (backlog.batches > 1) == (max_rows < 10**9)
    for (index, partition), own in zip(lanes, times.values(), strict=True):
        assert [backlog.heads[index, partition, offset] for offset in range(len(own))] == np.maximum.accumulate(own).tolist()


def test_records_of_large_batches_read_in_several_splits_have_the_heads_of_the_whole_partition(
    conn: Connection, dsn: str
) -> None:
    own = some_times(np.random.default_rng(5), 420_000, 10**6)
    post(conn, "one", 2, [(0, own), (1, own[:10])])
    heads = np.maximum.accumulate(own)
    splits = open_feed(dsn, feed_of("one"), [EVENTS]).splits(0, 0, len(own))
    assert [(split.start, split.end) for split in splits] == [
        *((first.end if first else 0, split.end) for first, split in zip([None, *splits], splits, strict=False)),
    ]
    assert len(splits) > 2
    backlog = Backlog(dsn, (input_of("one", 0),), 10**9)
    backlog.read()
    assert (backlog.batches, backlog.splits) == (3, len(splits) + 1), "125,000 records, twice as many, and the rest"
    assert [backlog.heads[0, 0, offset] for offset in range(len(own))] == heads.tolist()


@pytest.mark.parametrize("start", [0, 1, 4_095, 4_096, 4_097, 8_192, 29_999])
def test_chunks_of_a_large_batch_end_at_its_marks_with_what_is_greatest_up_to_there(
    conn: Connection, dsn: str, start: int
) -> None:
    own = np.arange(30_000, dtype=np.int64) // 3  # a rise begins at every third record: there a batch may have ended
    own[10_001] = 9_500
    start -= start % 3
    post(conn, "one", 1, [(0, own)])
    chunks = open_feed(dsn, feed_of("one"), [EVENTS]).chunks(0, start, ALL, is_dated=True)
    assert chunks[-1].end_offset == len(own)
    assert sum(chunk.rows for chunk in chunks) == len(own) - start
    assert all(chunk.end_offset % log.MARK_ROWS == 0 for chunk in chunks[:-1])
    greatest = [int(own[start : chunk.end_offset].max()) for chunk in chunks]
    assert np.maximum.accumulate([chunk.max_ts for chunk in chunks]).tolist() == greatest


def test_the_first_record_of_a_time_is_found_wherever_one_begins_and_ends(conn: Connection, dsn: str) -> None:
    chance = random.Random(6)
    own = some_times(np.random.default_rng(6), 30_000, 10**5)
    post(conn, "one", 1, [(0, own[:20_000]), (0, own[20_000:20_001]), (0, own[20_001:])])
    reader = open_feed(dsn, feed_of("one"), [EVENTS])
    for _ in range(60):
        start, end = sorted(chance.sample(range(len(own) + 1), 2))
        bound = chance.choice([0, int(own.max()), int(own.max()) + 1, chance.randrange(110_000)])
        found = np.flatnonzero(own[start:end] >= bound)
        assert reader.first_at(0, start, end, bound) == (start + int(found[0]) if len(found) else end)


def test_batches_written_before_there_were_marks_are_read_in_one_piece(conn: Connection, dsn: str) -> None:
    own, other = some_times(np.random.default_rng(7), 30_000, 10**5), some_times(np.random.default_rng(8), 5_000, 10**5)
    post(conn, "one", 1, [(0, own)])
    post(conn, "two", 1, [(0, other)])
    conn.execute("UPDATE log.batch SET marks = NULL")
    assert len(open_feed(dsn, feed_of("one"), [EVENTS]).chunks(0, 0, ALL, is_dated=True)) == 1
    backlog = Backlog(dsn, (input_of("one", 0), input_of("two", 1)), 10_000)
    assert backlog.read() == [(lane, 0, offset) for lane, offset in merged([(range(30_000), own), (range(5_000), other)])]


def test_one_partition_alone_is_read_by_size_and_its_own_order(conn: Connection, dsn: str) -> None:
    own = some_times(np.random.default_rng(9), 50_000, 10**5)
    post(conn, "one", 1, [(0, own)])
    backlog = Backlog(dsn, (input_of("one", 0),), 10_000)
    assert backlog.read() == [(0, 0, offset) for offset in range(len(own))]
    assert backlog.batches >= 5


def test_two_inputs_of_one_feed_keep_its_order(conn: Connection, dsn: str) -> None:
    own, other = (some_times(np.random.default_rng(seed), 20_000, 10**5) for seed in (10, 11))
    post(conn, "one", 2, [(0, own), (1, other)])
    few = replace(input_of("one", 1), where="t % 2 = 0")
    backlog = Backlog(dsn, (input_of("one", 0), few), 9_000)
    expected = []
    for partition, offset in merged([(range(20_000), own), (range(20_000), other)]):
        expected.append((0, partition, offset))
        if (own, other)[partition][offset] % 2 == 0:
            expected.append((1, partition, offset))
    assert backlog.read() == expected
