"""P2, P6 on a real Postgres: a derived feed of several tasks and a log are read as one merge, whatever the batches and splits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import psycopg
import pytest

from engine.frames.clocks import I64
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
