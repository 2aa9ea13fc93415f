"""P2, P6 on a real Postgres: a derived feed of several tasks and a log are read as one merge, whatever the batches and splits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import psycopg
import pytest

from engine.frames.clocks import I64
from engine.log import storage as log
from engine.log.sequence import Numbered
from engine.log.sequences import make_result_feed
from engine.plan.model import Feed, Input
from tests.derived_log import append_rows, open_sequence
from tests.integration.batches import Backlog, merged
from tests.integration.test_merged_logs import input_of, post, some_times
from tests.unit.records.relations import relation

MADE = relation({"k": "string", "t": "bigint"}, key=("k",), name="made", event_time=None)
FEED = Feed("log:made", "log", "made", is_derived=True)
Connection = psycopg.Connection[Any]


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM log.feed")
        make_result_feed(connection, "made", 1, None)
        yield connection


def made(index: int) -> Input:
    return Input(index, f"i{index}", MADE, FEED, MADE.columns.names, ("k",))


def rows(times: I64) -> pl.DataFrame:
    return pl.DataFrame({"_ts": times, "t": times}).with_columns(pl.lit(0, pl.Int8).alias("_op"), pl.lit("a").alias("k"))


def produce(conn: Connection, times: I64, heads: I64, tasks: int, seed: int) -> None:
    """Commit one batch of a producer."""
    ordinals = np.random.default_rng(seed).integers(0, tasks, len(times))
    own = [np.flatnonzero(ordinals == ordinal) for ordinal in range(tasks)]
    frame = rows(times)
    with conn.transaction():
        feed = open_sequence(conn, "made")
        numbers = Numbered(own, [heads[places] for places in own], int(heads[-1]))
        append_rows(conn, feed, [frame[places] for places in own], numbers, None, 0)


def old_rows(conn: Connection, parts: list[I64]) -> None:
    """Write batches as versions before 0010 did, numbered as its migration numbers them."""
    feed = log.find_feed(conn, "made")
    assert feed is not None
    log.append_batches(conn, feed.id, [(0, log.encode_batch(rows(times), 0)) for times in parts])
    conn.execute(
        "UPDATE log.batch b SET marks = NULL, sequence = base_offset, sequence_rows = rows, head_ms = "
        "(SELECT max(o.max_ts) FROM log.batch o WHERE o.feed_id = b.feed_id AND o.base_offset <= b.base_offset) WHERE feed_id = %s",
        (feed.id,),
    )
    everything = np.concatenate(parts)
    conn.execute(
        "UPDATE log.feed SET next_sequence = %s, reached_ms = %s WHERE id = %s", (len(everything), int(everything.max()), feed.id)
    )


def check(dsn: str, heads: I64, beside: I64, max_rows: int) -> Backlog:
    """Read everything that was made and a log, both as inputs of one query."""
    backlog = Backlog(dsn, (made(0), input_of("one", 1)), max_rows)
    expected = merged([(range(len(heads)), heads), (range(len(beside)), beside)])
    assert backlog.read() == [(lane, 0, number) for lane, number in expected]
    assert [backlog.heads[0, 0, number] for number in range(len(heads))] == heads.tolist()
    return backlog


@pytest.mark.parametrize("max_rows", [3_000, 20_000, 10**9])
def test_a_result_of_several_tasks_and_a_log_are_one_merge(conn: Connection, dsn: str, max_rows: int) -> None:
    chance = np.random.default_rng(max_rows)
    times, beside = some_times(chance, 60_000, 10**6), some_times(chance, 8_000, 10**6)
    heads = np.maximum.accumulate(times + chance.integers(0, 9_000, len(times)))  # not of these times: of what the producer read
    cuts = np.sort(chance.choice(len(times), 9))
    for number, (part, own) in enumerate(zip(np.split(times, cuts), np.split(heads, cuts), strict=True)):
        if len(part):
            produce(conn, part, own, 1 + number % 4, seed=number)
    post(conn, "one", 1, [(0, beside)])
    assert (check(dsn, heads, beside, max_rows).batches > 1) == (max_rows < 10**9)


@pytest.mark.parametrize("max_rows", [20_000, 10**9])
def test_rows_that_were_written_without_heads_have_those_of_the_whole_log(conn: Connection, dsn: str, max_rows: int) -> None:
    """Also where a split or a batch begins among them, behind later ones."""
    chance = np.random.default_rng(5)
    old = some_times(chance, 300_000, 10**6)
    old[40_000] = 700_000
    old[140_000] = 900_000
    new, beside = some_times(chance, 5_000, 10**5) + 10**6, some_times(chance, 9_000, 10**6)
    old_rows(conn, np.split(old, [50_000, 100_000, 150_000, 200_000, 250_000]))
    heads = np.maximum.accumulate(np.concatenate([old, new]))
    produce(conn, new, heads[len(old) :], 3, seed=1)
    post(conn, "one", 1, [(0, beside)])
    backlog = check(dsn, heads, beside, max_rows)
    assert backlog.splits > 3
