"""The sink on a real Postgres: exactly once, fenced, typed."""

from __future__ import annotations

import datetime as dt
import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import uuid4

import numpy as np
import polars as pl
import psycopg
import pytest

from engine.commit.sink import Sink
from engine.commit.task_states import (
    CommittedState,
    Layout,
    TaskState,
    begin_state,
    load_changed,
    load_committed_state,
    load_states,
)
from engine.commit.views import create_view
from engine.errors import EpochFenced, InvariantBroken, ResultUnwritable, SinkUnavailable
from engine.expressions.types.types import Schema, parse_type
from engine.frames.arrow_frames import encode_frame
from engine.log.sequences import make_result_feed
from engine.operators.tasks.order import LaneReading
from engine.plan.catalog import change_feed
from engine.plan.model import Feed, Input, LateRecords, Output, Plan, RelationSchema, Stage
from engine.plan.operators.foreign_key_join import ForeignKeyResult
from engine.plan.operators.row_operators import Projection
from engine.plan.operators.suppression import TimeLimitSuppression
from engine.postgres.fence import claim_epoch
from engine.sources.feeds import NO_TS
from engine.sources.lane_times import encode_reading
from engine.sources.packets import Packet, emitted_by
from tests.derived_log import caused, derived_rows, read_derived
from tests.late_frames import late_frame

QUERY, CHECKPOINT = uuid4(), uuid4()


def plan(kind: Any, columns: dict[str, str], key: tuple[str, ...], **more: Any) -> Plan:
    schema = Schema(tuple((name, parse_type(text)) for name, text in columns.items()))
    output = Output(
        "result",
        kind,
        schema,
        key,
        is_windowed=more.get("is_windowed", False),
        is_final=False,
        retention_ms=more.get("retention_ms"),
    )
    stage = Stage(0, schema, 0, (Projection(()),))
    relation = RelationSchema("s", "stream", schema, (), None, None, None, None, None)
    source = Input(0, "s", relation, Feed("log:s", "log", "s"), schema.names, ())
    return Plan("q", 1, (source,), (stage,), output, LateRecords(more.get("max_rows", 100), 10**12))


def data(frame: pl.DataFrame, ordinal: int = 0) -> Packet:
    return Packet(ordinal, "data", 0, ordinal, 0, frame.height, 0, 0, 1_000, encode_frame(frame))


def progress(end: int) -> Packet:
    body = {
        "feed": "log:s", "partition": 0, "start_offset": 0, "end_offset": end, "rows": end, "accepted": end, "max_ts": 7, "head": 7,
    }  # fmt: skip
    return Packet(0, "progress", 0, 0, 0, 0, None, None, 1_000, json.dumps(body).encode())


def times(end: int, head: int | None, start: int = 0, partition: int = 0) -> Packet:
    """What the reader of a split says of its lane: head and time are ``head`` from its first record on; None: no record moves them."""
    first = np.array([start])
    moved = np.array([] if head is None else [start], np.int64), np.array([] if head is None else [head], np.int64)
    reading = LaneReading("log:s", partition, end, (first, np.array([NO_TS if head is None else head])), {0: moved})
    return Packet(0, "times", 0, partition, start, 0, None, None, 1_000, encode_reading(reading))


def stats(counters: list[Any] | None = None, **more: Any) -> Packet:
    body = {"stage": 0, "task": 0, "buffered": {"window": 3}, "counters": counters or [], **more}
    return Packet(0, "stats", 0, 0, 0, 0, None, None, 1_000, json.dumps(body).encode())


def state(task: int, kept: TaskState) -> Packet:
    return Packet(task, "state", -1, task, 0, 0, None, None, 1_000, kept.encoded())


def cursor(end: int, **more: Any) -> Packet:
    return Packet(0, "cursor", 0, 0, 0, 0, None, None, 1_000, json.dumps({"feeds": {"log:s": {"0": end}}, **more}).encode())


def changes(**columns: Any) -> pl.DataFrame:
    frame = pl.DataFrame(columns)
    return caused(
        frame.with_columns(_ts=pl.lit(5, pl.Int64), _op=pl.col("_op").cast(pl.Int8) if "_op" in columns else pl.lit(0, pl.Int8))
    )


def table(*packets: Packet) -> list[Packet]:
    return list(packets)


@pytest.fixture
def conn(dsn: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "DROP TABLE IF EXISTS views.result; TRUNCATE log.commit, log.task_state, log.counter, log.late_record; DELETE FROM log.feed"
        )
        yield connection


def sink_for(conn: psycopg.Connection[Any], dsn: str, a_plan: Plan, epoch: int = 1) -> Sink:
    with conn.transaction():
        if a_plan.output.kind == "table":
            create_view(conn, a_plan.output)
            make_result_feed(conn, change_feed("result"), 1, None)
        else:
            make_result_feed(conn, "result", 1, None)
    claim_epoch(conn, QUERY, CHECKPOINT, epoch)
    return Sink(dsn, a_plan, QUERY, CHECKPOINT, epoch)


def test_a_batch_is_folded_to_the_last_value_per_key_and_the_change_feed_keeps_all(conn: Any, dsn: str) -> None:
    sink = sink_for(conn, dsn, plan("table", {"k": "string", "v": "bigint"}, ("k",)))
    sink.commit(0, table(data(changes(k=["a", "b", "a"], v=[1, 2, 3])), progress(3), times(3, 9), stats()))
    assert sorted(conn.execute("SELECT k, v, _ts FROM views.result").fetchall()) == [("a", 3, 5), ("b", 2, 5)]
    assert derived_rows(conn, change_feed("result")).height == 3
    position, clock, detail = conn.execute("SELECT position, stream_time_ms, detail FROM log.commit").fetchone()
    assert position == {"log:s": {"0": 3}}
    assert clock == 7
    assert detail["emitted_rows"] == 3
    assert (detail["times"]["times"], detail["times"]["next_position"]) == ({"0": 9}, 4)
    sink.close()


def test_a_delete_removes_the_row_and_a_later_upsert_in_the_batch_brings_it_back(conn: Any, dsn: str) -> None:
    sink = sink_for(conn, dsn, plan("table", {"k": "string", "v": "bigint"}, ("k",)))
    sink.commit(0, table(data(changes(k=["a", "b"], v=[1, 2]))))
    sink.commit(1, table(data(changes(k=["a", "b", "b"], v=[None, None, 4], _op=[1, 1, 0]))))
    assert conn.execute("SELECT k, v FROM views.result").fetchall() == [("b", 4)]
    sink.close()


def test_state_and_cursor_are_committed_with_the_results_and_not_otherwise(conn: Any, dsn: str) -> None:
    sink = sink_for(conn, dsn, plan("stream", {"k": "string"}, ()))
    begin_state(conn, QUERY, 1, Layout(2, 0, 2**63), {"feeds": {"log:s": {"0": 0}}}, {})
    old, new = TaskState.of({"next_pos": 1}), TaskState.of({"next_pos": 2})
    sink.commit(0, table(data(changes(k=["a"])), state(0, old), state(1, old), cursor(1)))
    sink.commit(1, table(data(changes(k=["b"])), state(1, new), cursor(2)))
    late = Sink(dsn, plan("stream", {"k": "string"}, ()), QUERY, CHECKPOINT, 0)
    with pytest.raises(EpochFenced):
        late.commit(2, table(state(0, new), cursor(3)))
    late.close()
    assert load_committed_state(conn, QUERY, CHECKPOINT) == CommittedState(1, {"feeds": {"log:s": {"0": 2}}}, Layout(2, 0, 2**63))
    assert load_states(conn, QUERY) == {(0, 0): old, (0, 1): new}
    states, times_behind = load_changed(conn, QUERY, 0, {0: old.token, 1: old.token, 2: None})
    assert states == {1: new, 2: None}
    assert times_behind is not None
    assert times_behind["next_position"] == 2
    sink.close()


def test_another_checkpoint_has_nothing_of_the_one_before(conn: Any, dsn: str) -> None:
    sink = sink_for(conn, dsn, plan("stream", {"k": "string"}, ()))
    begin_state(conn, QUERY, 1, Layout(1), {"feeds": {}}, {})
    sink.commit(0, table(state(0, TaskState.of({})), cursor(1)))
    claim_epoch(conn, QUERY, CHECKPOINT, 2)
    assert load_committed_state(conn, QUERY, CHECKPOINT).layout == Layout(1)
    other = uuid4()
    claim_epoch(conn, QUERY, other, 3)
    assert load_committed_state(conn, QUERY, other) == CommittedState()
    assert load_states(conn, QUERY) == {}
    sink.close()


def test_state_begins_for_the_launch_that_holds_the_fence_alone(conn: Any, dsn: str) -> None:
    sink_for(conn, dsn, plan("stream", {"k": "string"}, ()), epoch=4).close()
    with pytest.raises(EpochFenced):
        begin_state(conn, QUERY, 3, Layout(1), {"feeds": {}}, {(0, 0): TaskState.of({})})
    assert load_states(conn, QUERY) == {}


def test_an_older_epoch_is_fenced_and_writes_nothing(conn: Any, dsn: str) -> None:
    old = sink_for(conn, dsn, plan("stream", {"k": "string"}, ()))
    claim_epoch(conn, QUERY, CHECKPOINT, 2)
    with pytest.raises(EpochFenced):
        old.commit(0, table(data(changes(k=["a"]))))
    with pytest.raises(EpochFenced):
        claim_epoch(conn, QUERY, CHECKPOINT, 2)
    assert list(read_derived(conn, "result")) == []
    old.close()


def test_a_new_checkpoint_counts_batches_from_the_start_and_forgets_positions(conn: Any, dsn: str) -> None:
    first = plan("stream", {"k": "string"}, ())
    sink = sink_for(conn, dsn, first)
    sink.commit(0, table(data(changes(k=["a"])), progress(9)))
    other = uuid4()
    claim_epoch(conn, QUERY, other, 2)
    again = Sink(dsn, first, QUERY, other, 2)
    again.commit(0, table(data(changes(k=["b"])), progress(1)))
    assert conn.execute("SELECT position FROM log.commit").fetchone()[0] == {"log:s": {"0": 1}}
    sink.close()
    again.close()


def test_every_type_survives_the_way_into_the_view(conn: Any, dsn: str) -> None:
    columns = {
        "k": "string", "flag": "boolean", "i": "int", "d": "double", "n": "decimal(10,2)", "b": "bytes", "day": "date",
        "t": "time", "at": "timestamp", "list": "array<int>", "m": "map<string,int>",
    }  # fmt: skip
    a_plan = plan("table", columns, ("k",))
    moment = dt.datetime(2025, 6, 1, 12, 30, 0, 123456, tzinfo=dt.UTC)
    row = {
        "k": 'sa"y,\n', "flag": True, "i": -3, "d": 0.1, "n": Decimal("12.30"), "b": b"\x00\xff", "day": dt.date(2025, 6, 1),
        "t": dt.time(1, 2, 3), "at": moment, "list": [1, 2], "m": [{"key": "x", "value": 1}],
    }  # fmt: skip
    empty = {**dict.fromkeys(row), "k": ""}
    frame = pl.DataFrame([row, empty], schema=a_plan.output.columns.polars()).with_columns(
        _ts=pl.lit(5, pl.Int64), _op=pl.lit(0, pl.Int8)
    )
    sink = sink_for(conn, dsn, a_plan)
    sink.commit(0, table(data(caused(frame))))
    got = {r[0]: r[1:-1] for r in conn.execute("SELECT * FROM views.result").fetchall()}
    assert got[row["k"]] == (True, -3, 0.1, Decimal("12.30"), b"\x00\xff", row["day"], row["t"], moment, [1, 2], {"x": 1})
    assert got[""] == (None,) * 10
    sink.close()


def test_values_inside_values_are_json_as_records_write_it(conn: Any, dsn: str) -> None:
    columns = {"id": "string", "parts": "array<bytes>", "deep": "struct<at: timestamp, by: map<string, array<decimal(6,2)>>>"}
    a_plan = plan("table", columns, ("id",))
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    row = {"id": "a", "parts": [b"\xff", None], "deep": {"at": at, "by": [{"key": "x", "value": [Decimal("1.50")]}]}}
    frame = pl.DataFrame([row], schema=a_plan.output.columns.polars()).with_columns(
        _ts=pl.lit(5, pl.Int64), _op=pl.lit(0, pl.Int8)
    )
    sink = sink_for(conn, dsn, a_plan)
    sink.commit(0, table(data(caused(frame))))
    sink.close()
    assert conn.execute("SELECT parts, deep FROM views.result").fetchone() == (
        ["/w==", None],
        {"at": "2026-01-02T03:04:05Z", "by": {"x": ["1.50"]}},
    )


def test_nested_values_that_jsonb_or_a_calendar_cannot_hold_are_null_and_stop_nothing(conn: Any, dsn: str) -> None:
    columns = {"id": "string", "numbers": "array<double>", "times": "map<string,timestamp>", "text": "struct<a:string>"}
    a_plan = plan("table", columns, ("id",))
    frame = pl.DataFrame(
        {
            "id": ["a", "b"],
            "numbers": [[1.5, math.nan, math.inf, -math.inf], None],
            "times": pl.Series([[{"key": "far", "value": 2**62}, {"key": "near", "value": 0}], []]).cast(
                columns_of(a_plan, "times")
            ),
            "text": [{"a": "\\u0000"}, {"a": None}],
        }
    ).with_columns(_ts=pl.lit(5, pl.Int64), _op=pl.lit(0, pl.Int8))
    sink = sink_for(conn, dsn, a_plan)
    sink.commit(0, table(data(frame)))
    sink.close()
    assert conn.execute("SELECT numbers, times, text FROM views.result ORDER BY id").fetchall() == [
        ([1.5, None, None, None], {"far": None, "near": "1970-01-01T00:00:00Z"}, {"a": "\\u0000"}),
        (None, {}, {"a": None}),
    ]


def columns_of(a_plan: Plan, name: str) -> pl.DataType:
    return a_plan.output.columns[name].polars


def test_late_rows_are_kept_up_to_the_cap_and_the_overflow_is_counted(conn: Any, dsn: str) -> None:
    sink = sink_for(conn, dsn, plan("stream", {"k": "string"}, (), max_rows=3))
    late = late_frame([("s", "window_closed", number, 9, number, "{}") for number in range(5)])
    packet = Packet(0, "late", 0, 0, 0, 5, None, None, 1_000, encode_frame(late))
    sink.commit(0, table(packet))
    sink.commit(1, table(packet))
    assert [row[0] for row in conn.execute("SELECT event_time_ms FROM log.late_record ORDER BY id")] == [2, 3, 4]
    assert conn.execute("SELECT count FROM log.counter WHERE reason = 'late_records_overflow'").fetchone()[0] == 7
    sink.close()


@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_late_records_are_kept_in_the_order_of_their_places(conn: Any, dsn: str, tasks: int) -> None:
    """Whatever tasks and stages judged them (T1, P6); at one place the earlier stage's comes first."""
    sink = sink_for(conn, dsn, plan("stream", {"k": "string"}, (), max_rows=99))
    late = late_frame([("s", "window_closed", number, 9, number, "{}") for number in range(8)])
    packets = [
        Packet(task, "late", emitted_by(stage), task, 0, own.height, None, None, 1_000, encode_frame(own))
        for stage in (1, 0)
        for task in range(tasks)
        if (own := late.filter(pl.col("_pos") * 7 // 3 % tasks == task).with_columns(input=pl.lit(str(stage)))).height
    ]
    sink.commit(0, table(*packets))
    kept = conn.execute("SELECT event_time_ms, input FROM log.late_record ORDER BY id").fetchall()
    assert kept == [(number, stage) for number in range(8) for stage in "01"]
    sink.close()


def test_late_records_of_a_commit_that_failed_do_not_count(conn: Any, dsn: str) -> None:
    sink = sink_for(conn, dsn, plan("table", {"k": "string", "v": "bigint"}, ("k",), max_rows=3))
    late = late_frame([("s", "window_closed", number, 9, 0, "{}") for number in (1, 2)])
    packet = Packet(0, "late", 0, 0, 0, 2, None, None, 1_000, encode_frame(late))
    sink.commit(0, table(data(changes(k=["a"], v=[1]))))
    conn.execute("ALTER TABLE log.counter ADD CONSTRAINT no_nulls CHECK (reason <> 'null_key')")
    try:
        with pytest.raises(ResultUnwritable):
            sink.commit(1, table(packet, data(changes(k=pl.Series([None], dtype=pl.String), v=[1]))))
    finally:
        conn.execute("ALTER TABLE log.counter DROP CONSTRAINT no_nulls")
    for batch_id in (1, 2):
        sink.commit(batch_id, table(packet))
    assert conn.execute("SELECT count(*) FROM log.late_record").fetchone() == (3,)
    assert conn.execute("SELECT count FROM log.counter WHERE reason = 'late_records_overflow'").fetchone() == (1,)
    sink.close()


def test_windows_leave_after_their_retention(conn: Any, dsn: str) -> None:
    columns = {"window_start": "timestamp", "window_end": "timestamp", "n": "bigint"}
    a_plan = plan("table", columns, ("window_start", "window_end"), is_windowed=True, retention_ms=1)
    ends = [dt.datetime(1970, 1, 1, 0, 0, second, tzinfo=dt.UTC) for second in (1, 9)]
    frame = pl.DataFrame(
        {"window_start": ends, "window_end": ends, "n": [1, 2]}, schema=a_plan.output.columns.polars()
    ).with_columns(_ts=pl.lit(5, pl.Int64), _op=pl.lit(0, pl.Int8))
    sink = sink_for(conn, dsn, a_plan)
    late_clock = json.loads(progress(1).blob) | {"max_ts": 9_000}
    sink.commit(0, table(data(caused(frame)), Packet(0, "progress", 0, 0, 0, 0, None, None, 1, json.dumps(late_clock).encode())))
    assert [row[0] for row in conn.execute("SELECT n FROM views.result")] == [2]
    sink.close()


def test_a_row_without_its_key_is_dropped_and_counted(conn: Any, dsn: str) -> None:
    sink = sink_for(conn, dsn, plan("table", {"k": "string", "v": "bigint"}, ("k",)))
    sink.commit(0, table(data(changes(k=["a", None], v=[1, 2]))))
    sink.commit(1, table(data(changes(k=pl.Series([None], dtype=pl.String), v=[3]))))
    assert conn.execute("SELECT k FROM views.result").fetchall() == [("a",)]
    assert conn.execute("SELECT input, reason, count FROM log.counter").fetchall() == [("result", "null_key", 2)]
    sink.close()


def test_a_value_that_postgres_cannot_hold_is_the_users_to_mend(conn: Any, dsn: str) -> None:
    sink = sink_for(conn, dsn, plan("table", {"k": "string", "v": "bigint"}, ("k",)))
    with pytest.raises(ResultUnwritable, match="result"):
        sink.commit(0, table(data(changes(k=["a\x00b"], v=[1]))))
    sink.commit(0, table(data(changes(k=["a"], v=[1]))))
    assert conn.execute("SELECT k FROM views.result").fetchall() == [("a",)]
    sink.close()


def test_keys_that_look_like_copy_syntax_are_keys(conn: Any, dsn: str) -> None:
    keys = ["\\.", "\\N", "", "NULL", "a,b", 'q"', "two\nlines"]
    sink = sink_for(conn, dsn, plan("table", {"k": "string"}, ("k",)))
    sink.commit(0, table(data(changes(k=keys))))
    assert sorted(row[0] for row in conn.execute("SELECT k FROM views.result")) == sorted(keys)
    sink.commit(1, table(data(changes(k=keys, _op=[1] * len(keys)))))
    assert conn.execute("SELECT count(*) FROM views.result").fetchone() == (0,)
    sink.close()


def test_diverted_records_are_not_capped(conn: Any, dsn: str) -> None:
    sink = sink_for(conn, dsn, plan("stream", {"k": "string"}, (), max_rows=1))
    reasons = ["late_diverted", "late_dropped", "late_diverted", "late_dropped", "expired_diverted"]
    late = late_frame([("s", reason, number, 9, number, "{}") for number, reason in enumerate(reasons)])
    for batch_id in range(2):
        sink.commit(batch_id, table(Packet(0, "late", 0, 0, 0, 5, None, None, 1_000, encode_frame(late))))
    kept = [row[0] for row in conn.execute("SELECT event_time_ms FROM log.late_record ORDER BY id")]
    assert kept == [0, 2, 4, 0, 2, 3, 4]
    assert conn.execute("SELECT count FROM log.counter WHERE reason = 'late_records_overflow'").fetchone() == (3,)
    sink.close()


def test_refused_records_are_kept_once_for_all_queries_that_read_them(conn: Any, dsn: str) -> None:
    conn.execute("TRUNCATE log.reject")
    feed = Feed("log:s", "log", "s")
    schema = Schema((("k", parse_type("string")),))
    relation = RelationSchema("s", "stream", schema, (), None, None, None, None, None)
    a_plan = replace(plan("stream", {"k": "string"}, ()), inputs=(Input(0, "alias", relation, feed, ("k",), ()),))
    sink = sink_for(conn, dsn, a_plan)
    refused = pl.DataFrame({"offset": [7], "reason": ["wrong_type"], "detail": ["d"], "excerpt": ["e"]})
    packet = Packet(0, "reject", 0, 2, 0, 1, None, None, 1_000, encode_frame(refused))
    for batch_id in range(2):
        sink.commit(batch_id, table(packet))
    assert conn.execute('SELECT owner, feed, partition, "offset", reason FROM log.reject').fetchall() == [
        ("s", "log:s", 2, 7, "wrong_type")
    ]
    assert conn.execute("SELECT input, reason, count FROM log.counter").fetchall() == [("alias", "rejected_wrong_type", 2)]
    sink.close()


def test_queries_that_refuse_the_same_records_do_not_wait_for_each_other(conn: Any, dsn: str) -> None:
    conn.execute("TRUNCATE log.reject")
    schema = Schema((("k", parse_type("string")),))
    relation = RelationSchema("s", "stream", schema, (), None, None, None, None, None)
    a_plan = replace(plan("stream", {"k": "string"}, ()), inputs=(Input(0, "s", relation, Feed("f", "log", "s"), ("k",), ()),))
    sink = sink_for(conn, dsn, a_plan)
    refused = pl.DataFrame({"offset": [7], "reason": ["wrong_type"], "detail": ["d"], "excerpt": ["e"]})
    packets = [
        Packet(task, "reject", 0, partition, 0, 1, None, None, 1_000, encode_frame(refused))
        for task, partition in enumerate((1, 0))
    ]
    insert = "INSERT INTO log.reject VALUES (DEFAULT, 's', 'f', %s, 7, 'wrong_type', 'd', 'e', now())"
    waiting = "SELECT FROM pg_stat_activity WHERE application_name LIKE 'slackwater-sink %' AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as other:
        other.execute(insert, (0,))
        committing = pool.submit(sink.commit, 0, table(*packets))
        while not conn.execute(waiting).rowcount:
            assert not committing.done(), "it waits for what the other one has kept"
        other.execute(insert, (1,))
        other.commit()
        committing.result()
    assert conn.execute("SELECT count(*) FROM log.reject").fetchone() == (2,)
    sink.close()


def test_a_large_result_is_appended_in_batches_that_can_be_read(conn: Any, dsn: str) -> None:
    sink = sink_for(conn, dsn, plan("stream", {"k": "bigint"}, ()))
    sink.commit(0, table(data(changes(k=range(150_000)))))
    assert [frame.height for frame in read_derived(conn, "result")] == [65_536, 65_536, 18_928]
    sink.close()


def test_a_batch_that_is_committed_already_is_refused(conn: Any, dsn: str) -> None:
    sink = sink_for(conn, dsn, plan("stream", {"k": "string"}, ()))
    sink.commit(0, table(data(changes(k=["a"]))))
    with pytest.raises(InvariantBroken, match="batch 0 is to be committed behind batch 0"):
        sink.commit(0, table(data(changes(k=["b"]))))
    assert derived_rows(conn, "result").height == 1
    sink.close()


def test_a_batch_behind_some_that_the_database_has_lost_is_left_to_the_next_launch(conn: Any, dsn: str) -> None:
    sink = sink_for(conn, dsn, plan("stream", {"k": "string"}, ()))
    sink.commit(0, table(data(changes(k=["a"]))))
    with pytest.raises(SinkUnavailable, match="batch 2 was to come next and the results end with batch 0") as refused:
        sink.commit(2, table(data(changes(k=["b"]))))
    assert refused.value.retryable
    claim_epoch(conn, QUERY, other := uuid4(), 2)
    lost = Sink(dsn, plan("stream", {"k": "string"}, ()), QUERY, other, 2)
    with pytest.raises(SinkUnavailable, match="no batch"):
        lost.commit(1, table(data(changes(k=["b"]))))
    assert derived_rows(conn, "result").height == 1
    sink.close()
    lost.close()


def test_a_view_whose_bounds_were_renamed_expires_by_its_end(conn: Any, dsn: str) -> None:
    columns = {"window_end": "timestamp", "we": "timestamp", "n": "bigint"}
    a_plan = plan("table", columns, ("window_end", "we"), is_windowed=True, retention_ms=1)
    start, end = (dt.datetime(1970, 1, 1, 0, 0, second, tzinfo=dt.UTC) for second in (1, 9))
    frame = pl.DataFrame({"window_end": [start], "we": [end], "n": [1]}, schema=a_plan.output.columns.polars()).with_columns(
        _ts=pl.lit(5, pl.Int64), _op=pl.lit(0, pl.Int8)
    )
    sink = sink_for(conn, dsn, a_plan)
    clock = json.loads(progress(1).blob) | {"max_ts": 5_000}
    sink.commit(0, table(data(caused(frame)), Packet(0, "progress", 0, 0, 0, 0, None, None, 1, json.dumps(clock).encode())))
    assert [row[0] for row in conn.execute("SELECT n FROM views.result")] == [1]
    sink.close()


def test_operators_of_one_name_are_told_apart_by_their_stage_and_what_no_longer_waits_is_gone(conn: Any, dsn: str) -> None:
    a_plan = plan("table", {"k": "string", "v": "bigint"}, ("k",))
    first, last = (
        (ForeignKeyResult("c", "inner", ("k",), ("k",)), TimeLimitSuppression("suppress", ("k",), 5, None)),
        a_plan.stages[0],
    )
    stages = (replace(last, operators=first, exchange_key=("k",)), replace(last, index=1, operators=(first[0], *last.operators)))
    sink = sink_for(conn, dsn, replace(a_plan, stages=stages))

    def report(stage: int, **parts: Any) -> Packet:
        body = {"stage": stage, "task": 0, "buffered": {"c": 0}, "counters": [], "work_ms": 7, **parts}
        return Packet(0, "stats", 0, 0, 0, 0, None, None, 1_000, json.dumps(body).encode())

    held = {"buffered": {"c": 4, "suppress": 2}, "buffered_bytes": {"suppress": 90}, "oldest_ms": {"suppress": 11, "c": 5}}
    sink.commit(0, table(report(0, **held), report(1), times(3, 9)))
    detail, clock = conn.execute("SELECT detail, stream_time_ms FROM log.commit").fetchone()
    assert detail["clocks"] == {"c@0": 9, "suppress": 9, "c@1": 4}, "one time for all tasks, behind what waited before"
    assert detail["buffered"] == {"c@0": {"0": 4}, "suppress": {"0": 2}, "c@1": {"0": 0}}
    assert (detail["buffered_bytes"], detail["oldest_ms"]) == ({"suppress": {"0": 90}}, {"suppress": {"0": 11}, "c@0": {"0": 5}})
    assert detail["phases_ms"]["process"] == 14
    assert clock == 4
    sink.commit(1, table(report(0, buffered={"c": 0, "suppress": 1}, oldest_ms={"suppress": 20})), {"spark_plan": 3})
    (detail,) = conn.execute("SELECT detail FROM log.commit").fetchone()
    assert detail["oldest_ms"] == {"suppress": {"0": 20}}
    assert detail["clocks"]["c@0"] == 9
    assert (detail["phases_ms"].keys(), detail["phases_ms"]["spark_plan"]) == ({"process", "sink", "spark_plan"}, 3)
    sink.commit(2, table(report(0)))
    (detail,) = conn.execute("SELECT detail FROM log.commit").fetchone()
    assert detail["phases_ms"].keys() == {"process", "sink"}
    sink.close()
