"""What a commit costs Postgres beside its rows: nothing in the catalogs, no row twice, no look at rows that stay."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import polars as pl
import psycopg
import pytest

from engine.commit.sink import Sink
from engine.commit.views import add_columns, create_view, drop_view, expire_windows
from engine.expressions.types.types import Schema, parse_type
from engine.frames.frames import OPEN_ROW
from engine.plan.model import Output, Plan
from tests.derived_log import caused
from tests.integration.test_sink import data, plan, sink_for, table
from tests.integration.test_sink_open import opened

COLUMNS = {"k": "string", "v": "bigint"}
PLAIN = plan("table", COLUMNS, ("k",))
VERSIONED = replace(PLAIN, output=replace(PLAIN.output, history_retention_ms=1_000))
OPEN = replace(PLAIN, output=replace(PLAIN.output, is_final=True, has_open=True))
CATALOG_WRITES = """
    SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_sys_tables
    WHERE relname IN ('pg_class', 'pg_attribute', 'pg_type', 'pg_depend', 'pg_index')
"""


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection
        drop_view(connection, "result")
        connection.execute("TRUNCATE log.commit, log.feed CASCADE")


def rows(time_ms: int, *given: tuple[str, int | None, int]) -> pl.DataFrame:
    columns = {"_ts": pl.Int64, "_op": pl.Int8, "k": pl.String, "v": pl.Int64}
    return caused(pl.DataFrame([(time_ms, op, key, value) for key, value, op in given], schema=columns, orient="row"))


def catalog_writes(conn: psycopg.Connection[Any], sink: Sink, first: int, count: int) -> int:
    """Commit on a connection of its own and return how often it wrote to Postgres's catalogs."""

    def written() -> int:
        row = conn.execute(CATALOG_WRITES).fetchone()
        assert row is not None
        return int(row[0])

    conn.execute("SELECT pg_stat_clear_snapshot(), pg_stat_force_next_flush()")
    before = written()
    for batch in range(first, first + count):
        packets = [data(rows(batch, ("a", batch, 0), (f"k{batch}", 1, 0), (f"k{batch - 1}", None, 1)))]
        sink.commit(batch, table(*packets, opened(("o", batch, OPEN_ROW))))
    sink.close()
    busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'slackwater-sink%'"
    deadline = time.monotonic() + 20
    while conn.execute(busy).fetchone() != (0,):  # a session counts when it ends
        assert time.monotonic() < deadline
    conn.execute("SELECT pg_stat_clear_snapshot()")
    return written() - before


@pytest.mark.parametrize("a_plan", [PLAIN, VERSIONED, OPEN], ids=["plain", "versioned", "open"])
def test_commits_leave_nothing_in_the_catalogs(conn: psycopg.Connection[Any], dsn: str, a_plan: Plan) -> None:
    sink = sink_for(conn, dsn, a_plan, epoch=int(time.time()))
    conn.execute("SELECT pg_stat_force_next_flush()")
    catalog_writes(conn, sink, 0, 1)
    one = catalog_writes(conn, sink, 1, 1)
    many = catalog_writes(conn, sink, 2, 12)
    assert many <= one + 2, (one, many)


def test_a_versioned_row_is_updated_in_place(conn: psycopg.Connection[Any], dsn: str) -> None:
    sink = sink_for(conn, dsn, VERSIONED, epoch=int(time.time()) + 1)
    sink.commit(0, table(data(rows(1, ("a", 1, 0), ("b", 1, 0)))))
    sink.commit(1, table(data(rows(2, ("a", 2, 0), ("b", None, 1)))))
    sink.commit(2, table(data(rows(0, ("b", 0, 0)))))
    assert conn.execute("SELECT k, v, _ts FROM views.result").fetchall() == [("a", 2, 2)]
    sink.commit(3, table(data(rows(3, ("b", 3, 0)))))
    assert conn.execute("SELECT k, v, _ts FROM views.result ORDER BY k").fetchall() == [("a", 2, 2), ("b", 3, 3)]
    sink.close()
    conn.execute("SELECT pg_stat_clear_snapshot()")
    deadline = time.monotonic() + 20
    counted = "SELECT n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_all_tables WHERE schemaname = 'views' AND relname = 'result'"
    while (found := conn.execute(counted).fetchone()) != (3, 1, 1):
        assert time.monotonic() < deadline, found
        conn.execute("SELECT pg_stat_clear_snapshot()")


def test_windows_leave_the_history_by_an_index(conn: psycopg.Connection[Any]) -> None:
    columns = {"k": "string", "window_start": "timestamp", "window_end": "timestamp", "v": "bigint"}
    schema = Schema(tuple((name, parse_type(text)) for name, text in columns.items()))
    key = ("k", "window_start", "window_end")
    output = Output("result", "table", schema, key, is_windowed=True, is_final=False, retention_ms=1, history_retention_ms=1)
    create_view(conn, output)
    conn.execute(
        "INSERT INTO history.result SELECT 'k', to_timestamp(n), to_timestamp(n + 1), 1, n, false FROM generate_series(1, 20000) n"
    )
    conn.execute("ANALYZE history.result")
    plan_of = "EXPLAIN DELETE FROM history.result v WHERE v.window_end < to_timestamp(10)"
    text = "\n".join(line for (line,) in conn.execute(plan_of))
    assert "Seq Scan" not in text, text
    with conn.cursor() as cursor:
        expire_windows(cursor, output, 10_000)
    assert conn.execute("SELECT min(_ts) FROM history.result").fetchone() == (9,)


def test_columns_come_to_tables_in_the_order_in_which_a_commit_writes_them(conn: psycopg.Connection[Any], dsn: str) -> None:
    create_view(conn, VERSIONED.output)
    wider = replace(VERSIONED.output, columns=Schema((*VERSIONED.output.columns.items(), ("more", parse_type("bigint")))))
    waiting = "SELECT FROM pg_stat_activity WHERE application_name = 'an edit' AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn, application_name="an edit") as edit, psycopg.connect(dsn) as sink:
        sink.execute("SET LOCAL lock_timeout = '5s'; LOCK TABLE history.result IN ROW EXCLUSIVE MODE")
        adding = pool.submit(add_columns, edit, wider)
        while not conn.execute(waiting).rowcount:
            assert not adding.done(), "it waits for the commit"
        sink.execute("LOCK TABLE views.result IN ROW EXCLUSIVE MODE")
        sink.commit()
        adding.result()
        edit.commit()
    shown = "SELECT count(*) FROM information_schema.columns WHERE table_name = 'result' AND column_name = 'more'"
    assert conn.execute(shown).fetchone() == (2,)


def test_what_is_updated_has_room_on_its_pages_and_is_vacuumed_soon(conn: psycopg.Connection[Any]) -> None:
    create_view(conn, VERSIONED.output)
    found = conn.execute(
        "SELECT c.oid::regclass::text, array_to_string(c.reloptions, ' ') FROM pg_class c WHERE c.oid = ANY(%s::regclass[])",
        (
            [
                "views.result",
                "history.result",
                "slackwater.query_status",
                "slackwater.driver",
                "log.feed",
                "log.head",
                "log.commit",
            ],
        ),
    ).fetchall()
    options = dict(found)
    assert len(options) == 7
    assert all("autovacuum_vacuum_scale_factor" in (text or "") for text in options.values()), options
    assert all("fillfactor" in text for name, text in options.items() if name != "history.result"), options
