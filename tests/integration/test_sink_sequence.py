"""P1, P6: the sink appends what several tasks made in the order of the merge, and notes how far that has come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl
import psycopg
import pytest

from engine.commit.sink import REPLAYED
from engine.commit.views import drop_view
from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME
from engine.log.sequence import CAUSES
from engine.plan.catalog import change_feed
from engine.plan.model import Plan
from engine.sources.packets import Packet
from tests.derived_log import derived_rows, read_derived
from tests.integration.test_sink import QUERY, data, plan, sink_for, table, times

Connection = psycopg.Connection[Any]
Row = tuple[str | None, int, int]
"""Key, head and position of the record that caused it."""


def of_tasks(kind: Any, tasks: int) -> Plan:
    """A plan of so many tasks that reads two partitions of one feed."""
    return replace(plan(kind, {"k": "string"}, ("k",) if kind == "table" else ()), tasks=tasks)


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE log.commit, log.feed, log.counter CASCADE")
        drop_view(connection, "result")
        yield connection
        drop_view(connection, "result")


def made(ordinal: int, *rows: Row) -> Packet:
    """What one task made."""
    frame = pl.DataFrame(
        [(5, 0, key, head, position, None) for key, head, position in rows],
        schema={"_ts": pl.Int64, "_op": pl.Int8, "k": pl.String}
        | dict(zip(CAUSES, (pl.Int64, pl.Int64, pl.Binary), strict=True)),
        orient="row",
    )
    return data(frame, ordinal)


def keys(conn: Connection, name: str = "result") -> list[str]:
    return derived_rows(conn, name)["k"].to_list()


def facts(conn: Connection, name: str = "result") -> tuple[Any, ...]:
    row = conn.execute("SELECT next_sequence, reached_ms, producer, partitions FROM log.feed WHERE name = %s", (name,)).fetchone()
    assert row is not None
    return row


@pytest.mark.parametrize(("kind", "name"), [("stream", "result"), ("table", change_feed("result"))])
def test_rows_of_several_tasks_stand_by_what_caused_them(conn: Connection, dsn: str, kind: str, name: str) -> None:
    sink = sink_for(conn, dsn, of_tasks(kind, 3))
    sink.commit(0, table(made(2, ("b", 2, 1)), made(0, ("a", 1, 0), ("d", 3, 3), ("f", 7, 5)), made(1, ("c", 2, 2), ("e", 4, 4))))
    sink.commit(1, table(made(1, ("h", 9, 7)), made(0, ("g", 8, 6))))
    assert keys(conn, name) == list("abcdefgh")
    found = pl.concat(list(read_derived(conn, name)))
    assert found["_partition"].to_list() == [0, 2, 1, 0, 1, 0, 0, 1]
    assert found["_head"].to_list() == [1, 2, 2, 3, 4, 7, 8, 9]
    assert facts(conn, name) == (8, 9, QUERY, 3)
    sink.close()


def test_what_was_read_without_a_result_moves_on_how_far_the_merge_has_come(conn: Connection, dsn: str) -> None:
    sink = sink_for(conn, dsn, of_tasks("stream", 2))
    sink.commit(0, table(times(3, None)))
    assert facts(conn)[:2] == (0, None)
    sink.commit(1, table(times(5, 40, start=3), times(2, 60, partition=1)))
    assert facts(conn)[:2] == (0, 60)
    sink.commit(2, table(times(6, 50, start=5), made(1, ("late", 50, 5))))
    assert facts(conn)[:2] == (1, 60)
    assert pl.concat(list(read_derived(conn, "result")))["_head"].to_list() == [60], "heads never fall along the numbers"
    sink.close()


def test_what_the_clock_causes_stands_before_the_records_or_behind_them(conn: Connection, dsn: str) -> None:
    sink = sink_for(conn, dsn, of_tasks("stream", 2))
    early, late = (BEFORE_ALL_TIME, 0), (AFTER_ALL_TIME, 3)
    batch = [made(ordinal, (f"{ordinal} early", *early)) for ordinal in (0, 1)]
    batch += [made(1, ("record", 9, 2)), made(0, ("0 late", *late))]
    sink.commit(0, table(times(1, 9), *(replace(packet, first_offset=number) for number, packet in enumerate(batch))))
    assert keys(conn) == ["0 early", "1 early", "record", "0 late"]
    assert pl.concat(list(read_derived(conn, "result")))["_head"].to_list()[2:] == [9, 9]
    sink.close()


def test_replayed_rows_stand_behind_all_others_of_their_batch_and_are_marked(conn: Connection, dsn: str) -> None:
    sink = sink_for(conn, dsn, of_tasks("stream", 2))
    again = pl.DataFrame({"_ts": [5], "_op": pl.Series([0], dtype=pl.Int8), "k": ["again"]})
    sink.commit(0, table(replace(data(again, 1), kind="replayed"), made(0, ("a", 1, 0)), made(1, ("b", 2, 1))))
    found = derived_rows(conn, "result")
    assert found.select("k", REPLAYED).rows() == [("a", None), ("b", None), ("again", True)]
    assert facts(conn)[:2] == (3, 2)
    sink.close()


def test_rows_that_are_left_out_leave_no_gap(conn: Connection, dsn: str) -> None:
    sink = sink_for(conn, dsn, of_tasks("table", 2))
    sink.commit(0, table(made(0, ("a", 1, 0), (None, 1, 1)), made(1, ("b", 2, 2))))
    assert keys(conn, change_feed("result")) == ["a", "b"]
    assert facts(conn, change_feed("result"))[0] == 2
    sink.close()


def test_fewer_tasks_than_before_go_on(conn: Connection, dsn: str) -> None:
    sink = sink_for(conn, dsn, of_tasks("stream", 4))
    sink.commit(0, table(*(made(ordinal, (f"{ordinal}", 1, ordinal)) for ordinal in range(4))))
    sink.close()
    fewer = sink_for(conn, dsn, of_tasks("stream", 2), epoch=2)
    fewer.commit(1, table(made(1, ("5", 2, 5)), made(0, ("4", 2, 4))))
    assert keys(conn) == ["0", "1", "2", "3", "4", "5"]
    fewer.close()
