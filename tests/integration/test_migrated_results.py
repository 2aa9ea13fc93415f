"""Migration 0010 on a database in which version 0009 wrote results: their offsets become numbers, and what comes behind goes on with them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
import psycopg
import pytest

from engine.log import storage as log
from engine.log.sequence import Numbered
from engine.plan.model import Feed
from engine.sources.connector_kinds import open_feed
from engine.sources.feeds import FeedReader, Limit
from tests.conftest import database, migrate
from tests.derived_log import append_rows, derived_rows, open_sequence, read_derived

ALL = Limit(10**9, 10**12)
QUERY, MATERIALISATION = uuid.UUID(int=1), uuid.UUID(int=2)
Connection = psycopg.Connection[Any]

_APPEND = """
WITH head AS (
    UPDATE log.head SET next_offset = next_offset + %(rows)s
    WHERE feed_id = %(feed_id)s AND partition = %(partition)s RETURNING next_offset - %(rows)s AS base
)
INSERT INTO log.batch (feed_id, partition, base_offset, rows, min_ts, max_ts, payload)
SELECT %(feed_id)s, %(partition)s, base, %(rows)s, %(min_ts)s, %(max_ts)s, %(payload)s FROM head
"""
"""As version 0009 appended."""


def make_feed(conn: Connection, name: str, partitions: int = 1) -> int:
    row = conn.execute("INSERT INTO log.feed (name, partitions) VALUES (%s, %s) RETURNING id", (name, partitions)).fetchone()
    assert row is not None
    conn.execute("INSERT INTO log.head (feed_id, partition) SELECT %s, generate_series(0, %s - 1)", (row[0], partitions))
    return int(row[0])


def append(conn: Connection, feed_id: int, times: Sequence[int], partition: int = 0) -> None:
    batch = log.encode_batch(rows(times), 7)
    params = {"feed_id": feed_id, "partition": partition, "rows": batch.rows, "min_ts": batch.min_ts, "max_ts": batch.max_ts}
    conn.execute(_APPEND, {**params, "payload": batch.payload})


def rows(times: Sequence[int]) -> pl.DataFrame:
    return pl.DataFrame({"_ts": times, "v": times}, schema={"_ts": pl.Int64, "v": pl.Int64}).with_columns(_op=pl.lit(0, pl.Int8))


def relate(conn: Connection, kind: str, name: str, producer: uuid.UUID | None, kept: Any = None, **definition: Any) -> None:
    origin = "source" if producer is None and kept is None else "derived"
    conn.execute(
        "INSERT INTO slackwater.relation (id, name, kind, definition, origin, produced_by, kept) VALUES (%s, %s, %s, %s, %s, %s, %s)",
        (uuid.uuid4(), name, kind, json.dumps(definition), origin, producer, None if kept is None else json.dumps(kept)),
    )


def fill(conn: Connection) -> None:
    """What version 0009 leaves: a stream and a table that a query makes, a kept table, a materialised source and plain logs."""
    for identity, name in ((QUERY, "q"), (MATERIALISATION, "materialize:prices")):
        conn.execute(
            "INSERT INTO slackwater.query (id, name, definition, desired_state, checkpoint_id) VALUES (%s, %s, '{}', 'running', %s)",
            (identity, name, identity),
        )
    relate(conn, "stream", "made", QUERY)
    relate(conn, "table", "totals", QUERY)
    relate(conn, "table", "kept", None, kept={"query": "gone"})
    relate(conn, "table", "prices", None, materialize=True)
    relate(conn, "stream", "orders", None)
    made = make_feed(conn, "made")
    for times in ([5, 9, 3], [4], [2, 12]):
        append(conn, made, times)
    append(conn, make_feed(conn, "changes:totals"), [1, 2])
    append(conn, make_feed(conn, "changes:kept"), [3])
    make_feed(conn, "changes:prices")
    for name in ("prices", "orders"):
        feed_id = make_feed(conn, name, 2)
        append(conn, feed_id, [7], 0)
        append(conn, feed_id, [8, 6], 1)
    # Retention has removed the first batch of this one.
    conn.execute("DELETE FROM log.batch WHERE feed_id = %s AND base_offset = 0", (made,))
    conn.execute("UPDATE log.head SET start_offset = 3 WHERE feed_id = %s", (made,))


@pytest.fixture(scope="module")
def migrated(postgres_dsn: str) -> Iterator[str]:
    with database(postgres_dsn, "migrated") as dsn:
        migrate(dsn, "0009")
        with psycopg.connect(dsn, autocommit=True) as connection:
            fill(connection)
        migrate(dsn)
        yield dsn


@pytest.fixture
def conn(migrated: str) -> Iterator[Connection]:
    with psycopg.connect(migrated, autocommit=True) as connection:
        yield connection


def reader(conn: Connection, name: str) -> FeedReader:
    return open_feed(conn.info.dsn, Feed(f"log:{name}", "log", name, is_derived=True), [])


def test_results_have_numbers_and_their_producers_and_sources_have_none(conn: Connection) -> None:
    columns = "name, start_sequence, next_sequence, reached_ms, producer"
    assert conn.execute(f"SELECT {columns} FROM log.feed ORDER BY name").fetchall() == [
        ("changes:kept", 0, 1, 3, None),
        ("changes:prices", 0, 0, None, MATERIALISATION),
        ("changes:totals", 0, 2, 2, QUERY),
        ("made", 3, 6, 12, QUERY),
        ("orders", None, None, None, None),
        ("prices", None, None, None, None),
    ]
    numbered = "SELECT count(*) FROM log.batch JOIN log.feed ON id = feed_id WHERE (sequence IS NULL) <> (next_sequence IS NULL)"
    assert conn.execute(numbered).fetchone() == (0,)


def test_rows_are_read_by_the_offsets_that_they_had(conn: Connection) -> None:
    own = reader(conn, "made")
    assert (own.starts("earliest"), own.ends()) == ({0: 3}, {0: 6})
    found = pl.concat(list(read_derived(conn, "made")))
    assert found.select("_offset", "_partition", "_partition_offset", "v", "_head").rows() == [
        (3, 0, 3, 4, 4), (4, 0, 4, 2, 2), (5, 0, 5, 12, 12),
    ]  # fmt: skip
    [chunk] = own.chunks(0, 3, ALL, is_dated=True)
    assert (chunk.end_offset, chunk.rows, chunk.max_ts) == (6, 3, 12)
    assert [own.first_at(0, 3, 6, bound) for bound in (0, 4, 5, 12, 13)] == [3, 3, 5, 5, 6]


def test_sources_are_read_as_before(conn: Connection) -> None:
    own = open_feed(conn.info.dsn, Feed("log:orders", "log", "orders"), [])
    assert own.ends() == {0: 1, 1: 2}
    assert [(chunk.end_offset, chunk.rows, chunk.max_ts) for chunk in own.chunks(1, 0, ALL, is_dated=True)] == [(2, 2, 8)]


@pytest.mark.parametrize(("name", "before"), [("changes:totals", [1, 2]), ("changes:kept", [3]), ("changes:prices", [])])
def test_a_producer_goes_on_with_several_tasks(conn: Connection, name: str, before: list[int]) -> None:
    with conn.transaction():
        feed = open_sequence(conn, name)
        assert (feed.next_sequence, feed.reached_ms) == (len(before), max(before, default=None))
        numbers = Numbered([np.array([0, 2]), np.array([1])], [np.array([20, 22]), np.array([21])], 22)
        append_rows(conn, feed, [rows([20, 22]), rows([21])], numbers, QUERY, 0)
    assert derived_rows(conn, name)["v"].to_list() == [*before, 20, 21, 22]
    assert reader(conn, name).ends() == {0: len(before) + 3}
    feed_id = log.find_feed(conn, name).id  # type: ignore[union-attr] - it is there
    assert [(head.partition, head.next_offset) for head in log.heads(conn, feed_id)] == [(0, len(before) + 2), (1, 1)]
