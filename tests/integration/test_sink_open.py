"""The sink's table of open windows: what they have now, until their final rows come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl
import psycopg
import pytest

from engine.commit.views import drop_view
from engine.frames.arrow_frames import encode_frame
from engine.frames.frames import OPEN_DELETE, OPEN_ROW
from engine.plan.catalog import change_feed
from engine.sources.packets import Packet
from tests.derived_log import caused, derived_rows
from tests.integration.test_sink import data, plan, sink_for, table

PLAN = plan("table", {"k": "string", "v": "bigint"}, ("k",))
PLAN = replace(PLAN, output=replace(PLAN.output, is_final=True, has_open=True))


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection
        drop_view(connection, "result")
        connection.execute("TRUNCATE log.commit, log.feed CASCADE")


def rows(*given: tuple[str, int | None, int]) -> pl.DataFrame:
    columns = {"_ts": pl.Int64, "_op": pl.Int8, "k": pl.String, "v": pl.Int64}
    return pl.DataFrame([(5, op, key, value) for key, value, op in given], schema=columns, orient="row")


def opened(*given: tuple[str, int | None, int]) -> Packet:
    return replace(data(pl.DataFrame()), kind="opened", rows=len(given), blob=encode_frame(rows(*given)))


def found(conn: psycopg.Connection[Any], schema: str) -> list[tuple[str, int]]:
    return sorted(conn.execute(f"SELECT k, v FROM {schema}.result").fetchall())


def test_open_rows_are_kept_apart_from_results(conn: psycopg.Connection[Any], dsn: str) -> None:
    sink = sink_for(conn, dsn, PLAN)
    sink.commit(0, table(opened(("a", 1, OPEN_ROW), ("b", 1, OPEN_ROW), ("c", 1, OPEN_ROW), ("a", 2, OPEN_ROW))))
    assert found(conn, "open") == [("a", 2), ("b", 1), ("c", 1)]
    assert found(conn, "views") == []
    sink.commit(1, table(opened(("c", None, OPEN_DELETE), ("a", 3, OPEN_ROW)), data(caused(rows(("b", 9, 0), ("a", 3, 0))))))
    assert found(conn, "open") == []
    assert found(conn, "views") == [("a", 3), ("b", 9)]
    sink.close()


def test_open_rows_are_no_changes_and_are_not_counted(conn: psycopg.Connection[Any], dsn: str) -> None:
    sink = sink_for(conn, dsn, PLAN, epoch=2)
    sink.commit(0, table(opened(("a", 1, OPEN_ROW)), data(caused(rows(("b", 9, 0))))))
    assert derived_rows(conn, change_feed("result"))["k"].to_list() == ["b"]
    detail = conn.execute("SELECT detail FROM log.commit").fetchone()
    assert detail is not None
    assert detail[0]["emitted_rows"] == 1
    sink.close()
