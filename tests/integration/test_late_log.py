"""What is kept of late records: the newest up to a cap, for a time; and what that costs where many are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import polars as pl
import psycopg
import pytest

from engine.commit.late_log import LateLog
from engine.frames.frames import LATE_SCHEMA
from engine.plan.model import LateRecords

DAY_MS = 86_400_000
Connection = psycopg.Connection[Any]


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE log.late_record")
        yield connection


def late(times: Sequence[int], reasons: Sequence[str] | str = "late_dropped") -> pl.DataFrame:
    frame = pl.DataFrame({"event_time_ms": times}, schema={"event_time_ms": pl.Int64}).with_columns(
        input=pl.lit("s"),
        reason=pl.lit(reasons) if isinstance(reasons, str) else pl.Series(reasons),
        stream_time_ms=pl.lit(9, pl.Int64),
        offset=pl.lit(None, pl.Int64),
        record=pl.lit('{"text": "a,\\"b\\n\\\\."}'),
        _pos=pl.int_range(pl.len()),
        _rank=pl.lit(None, pl.Binary),
    )
    return frame.select(*LATE_SCHEMA)


def keep(conn: Connection, log: LateLog, frame: pl.DataFrame, now_ms: int = 0) -> int:
    with conn.transaction(), conn.cursor() as cursor:
        return log.keep(cursor, frame, now_ms)


def kept(conn: Connection, query_id: UUID) -> list[int]:
    rows = conn.execute("SELECT event_time_ms FROM log.late_record WHERE query_id = %s ORDER BY id", (query_id,)).fetchall()
    return [row[0] for row in rows]


def test_the_newest_stay_and_the_others_are_counted(conn: Connection) -> None:
    log = LateLog(uuid4(), LateRecords(3, DAY_MS))
    assert [keep(conn, log, late(times)) for times in ([1, 2], [3, 4], [5, 6, 7, 8], [])] == [0, 1, 4, 0]
    assert kept(conn, log.query_id) == [6, 7, 8]


def test_what_another_launch_kept_counts(conn: Connection) -> None:
    query_id = uuid4()
    keep(conn, LateLog(query_id, LateRecords(5, DAY_MS)), late([1, 2, 3, 4, 5]))
    assert keep(conn, LateLog(query_id, LateRecords(2, DAY_MS)), late([6])) == 4
    assert kept(conn, query_id) == [5, 6]


def test_what_was_not_committed_does_not_count(conn: Connection) -> None:
    log = LateLog(uuid4(), LateRecords(3, DAY_MS))
    keep(conn, log, late([1, 2]))
    with conn.cursor() as cursor, conn.transaction(force_rollback=True):
        log.keep(cursor, late([3, 4, 5]), 0)
    log.forget()
    assert keep(conn, log, late([6])) == 0
    assert kept(conn, log.query_id) == [1, 2, 6]


def test_what_is_older_than_the_retention_leaves_diverted_or_not(conn: Connection) -> None:
    log = LateLog(uuid4(), LateRecords(2, DAY_MS))
    keep(conn, log, late([1, 2], ["late_dropped", "late_diverted"]), 1_000)
    keep(conn, log, late([3]), 2_000)
    assert keep(conn, log, late([4], "late_diverted"), DAY_MS + 1_001) == 0
    assert kept(conn, log.query_id) == [3, 4]
    assert keep(conn, log, late([5, 6]), DAY_MS + 1_002) == 1
    assert kept(conn, log.query_id) == [4, 5, 6]


def test_nothing_is_kept_where_nothing_may_be(conn: Connection) -> None:
    query_id = uuid4()
    keep(conn, LateLog(query_id, LateRecords(9, DAY_MS)), late([1, 2]))
    assert keep(conn, LateLog(query_id, LateRecords(0, DAY_MS)), late([3]), 1) == 3
    assert kept(conn, query_id) == []


def test_records_of_other_queries_are_left_alone(conn: Connection) -> None:
    one, other = LateLog(uuid4(), LateRecords(1, DAY_MS)), LateLog(uuid4(), LateRecords(1, DAY_MS))
    keep(conn, one, late([1]))
    keep(conn, other, late([2, 3]), 3 * DAY_MS)
    assert (kept(conn, one.query_id), kept(conn, other.query_id)) == ([1], [3])


def test_an_expiry_reads_what_it_removes(conn: Connection) -> None:
    log = LateLog(uuid4(), LateRecords(50_000, DAY_MS))
    keep(conn, log, late(range(10)), 0)
    keep(conn, log, late(range(49_980)), 2)
    conn.execute("ANALYZE log.late_record")
    read = _rows_read(conn)
    assert keep(conn, log, late([1] * 20), DAY_MS + 1) == 0
    assert keep(conn, log, late([]), DAY_MS + 1) == 0
    assert _rows_read(conn) - read < 1_000
    assert len(kept(conn, log.query_id)) == 50_000


def test_a_trim_reads_what_it_removes(conn: Connection) -> None:
    log = LateLog(uuid4(), LateRecords(50_000, DAY_MS))
    keep(conn, log, late(range(50_000)))
    conn.execute("ANALYZE log.late_record")
    read = _rows_read(conn)
    assert keep(conn, log, late([1] * 10)) == 10
    assert _rows_read(conn) - read < 1_000


def test_a_clock_that_was_wrong_holds_rows_back_until_the_next_launch(conn: Connection) -> None:
    query_id = uuid4()
    log = LateLog(query_id, LateRecords(9, DAY_MS))
    keep(conn, log, late([1]), 100 * DAY_MS)
    keep(conn, log, late([2]), 0)
    keep(conn, log, late([3]), 2 * DAY_MS)
    assert kept(conn, query_id) == [1, 2, 3]
    keep(conn, LateLog(query_id, LateRecords(9, DAY_MS)), late([4]), 2 * DAY_MS)
    assert kept(conn, query_id) == [1, 3, 4]


def _rows_read(conn: Connection) -> int:
    conn.execute("SELECT pg_stat_force_next_flush()")
    row = conn.execute(
        "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables"
        " WHERE schemaname = 'log' AND relname = 'late_record'"
    ).fetchone()
    assert row is not None
    return int(row[0])
