"""Aggregation over tables in small: what the regrouper sends, what the aggregator makes of it."""

from __future__ import annotations

from typing import Any

import polars as pl

from engine.expressions.types.types import BIGINT, DOUBLE, STRING, Schema
from engine.frames.frames import SERVICE_COLUMNS
from engine.frames.hashing import key_hash
from engine.frames.places import begins_place, place_order
from engine.operators.aggregation.table_aggregate import TableAggregator, TableRegrouper
from engine.operators.operators import BatchTime, OperatorOutput
from engine.plan.operators.aggregation import AggregateColumn, TableAggregation, TableRegrouping
from engine.state.segments.memory import MemorySegmentStore
from engine.state.sorted.segment_list import MIN_MERGED
from tests.batch_times import RunningTimes

SCHEMA = Schema((("t.key", STRING), ("t.group", STRING), ("t.x", BIGINT)))
COUNT_AND_SUM = (
    AggregateColumn("rows", "count", None),
    AggregateColumn("total", "sum", "t.x"),
    AggregateColumn("mean", "avg", "t.x"),
)

Put = tuple[int, str | None, str | None, int | None]
"""Event time, key, group, x. A group of "-" stands for a tombstone."""


def regrouper(retention_ms: int | None = None) -> TableRegrouper:
    spec = TableRegrouping("t", ("t.key",), retention_ms, ("t.group",), ("t.x",))
    return TableRegrouper(spec, SCHEMA, None, MemorySegmentStore())


def aggregator(having: str | None = None) -> TableAggregator:
    spec = TableAggregation("t", (("group", "t.group"),), COUNT_AND_SUM, having)
    return TableAggregator(spec, regrouper().schema, None, MemorySegmentStore())


def puts(*rows: Put, first: int = 0) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "_pos": range(first, first + len(rows)),
            "_ts": [row[0] for row in rows],
            "_op": [int(row[2] == "-") for row in rows],
            "_key_hash": [None if row[1] is None else 0 for row in rows],
            "_offset": [100 + i for i in range(len(rows))],
            "_rank": [None] * len(rows),
            "t.key": [row[1] for row in rows],
            "t.group": [None if row[2] == "-" else row[2] for row in rows],
            "t.x": [row[3] for row in rows],
        },
        schema={**SERVICE_COLUMNS, **SCHEMA.polars()},
    )


def messages(*rows: Put, retention_ms: int | None = None) -> list[tuple[Any, ...]]:
    frame = puts(*rows)
    output = regrouper(retention_ms).process(frame, {}, RunningTimes().at([frame], is_table=True))
    return output.frame.select("_pos", "_ts", "_offset", "t.group", "t.$old.t.x", "t.$new.t.x", "t.$has_old", "t.$has_new").rows()


def results(*rows: Put, having: str | None = None) -> list[tuple[Any, ...]]:
    output = aggregator(having).process(regrouper().process(puts(*rows), {}, BatchTime()).frame, {}, BatchTime())
    return output.frame.select("group", "_ts", "_op", "rows", "total", "mean").rows()


def test_a_row_that_stays_in_its_group_is_one_message() -> None:
    assert messages((1, "a", "x", 5), (2, "a", "x", 7))[1:] == [(1, 2, 101, "x", 5, 7, True, True)]


def test_a_row_that_moves_leaves_its_old_group_first() -> None:
    moved = messages((1, "a", "z", 5), (2, "a", "b", 7))[1:]
    assert moved == [(1, 2, 101, "z", 5, None, True, False), (1, 2, 101, "b", None, 7, False, True)]


def test_the_new_groups_message_has_a_place_of_its_own_behind_the_old_groups() -> None:
    """T1b: time rises between the two."""
    frame = regrouper().process(puts((1, "a", "z", 5), (2, "a", "b", 7), (3, "a", None, 7)), {}, BatchTime()).frame
    assert frame["_pos"].to_list() == [0, 1, 1, 2]
    assert begins_place(frame).tolist() == [True] * 4
    assert place_order(frame[::-1]).tolist() == [3, 2, 1, 0]


def test_a_message_is_keyed_by_its_group() -> None:
    frame = regrouper().process(puts((1, "a", "z", 5), (2, "a", "b", 7)), {}, BatchTime()).frame
    assert frame["_key_hash"].to_list() == key_hash(frame, ["t.group"]).to_list()


def test_a_row_without_a_group_is_counted_and_sends_nothing() -> None:
    output = regrouper().process(
        puts((1, "a", "x", 5), (2, "a", None, 7), (3, "a", None, 8), (4, "b", "-", None)), {}, BatchTime()
    )
    assert output.frame.select("t.group", "t.$has_old", "t.$has_new").rows() == [("x", False, True), ("x", True, False)]
    assert output.counters == {("t", "null_group"): 2}


def test_a_put_out_of_order_counts_in_an_unversioned_table_and_not_in_a_versioned_one() -> None:
    rows: tuple[Put, ...] = ((5, "a", "x", 5), (3, "a", "y", 3))
    assert [message[3] for message in messages(*rows)] == ["x", "x", "y"]
    assert [message[3] for message in messages(*rows, retention_ms=10)] == ["x"]


def test_a_put_older_than_retention_is_counted_and_kept_as_late() -> None:
    frame = puts((10, "a", "x", 5), (6, "b", "x", 3), (7, None, "x", 1))
    output: OperatorOutput = regrouper(3).process(frame, {}, RunningTimes().at([frame], is_table=True))
    assert output.counters == {("t", "table_history_expired"): 1, ("t", "null_key"): 1}
    assert output.late.select("reason", "event_time_ms", "stream_time_ms", "offset").rows() == [
        ("table_history_expired", 6, 10, 101)
    ]


def test_an_emptied_group_stays_with_zeros_and_nulls() -> None:
    assert results((1, "a", "x", 5), (2, "a", "-", None)) == [("x", 1, 0, 1, 5, 5.0), ("x", 2, 0, 0, 0, None)]


def test_a_sum_of_nulls_alone_is_null_until_the_group_is_empty() -> None:
    assert [row[4] for row in results((1, "a", "x", None), (2, "a", "-", None))] == [None, 0]


def test_the_result_time_never_falls() -> None:
    assert [row[1] for row in results((9, "a", "x", 5), (4, "b", "x", 5), (6, "a", "-", None))] == [9, 9, 9]


def test_having_deletes_a_group_that_became_empty() -> None:
    rows: tuple[Put, ...] = ((1, "a", "x", 5), (2, "a", "-", None), (3, "a", "-", None), (4, "a", "x", 6))
    assert results(*rows, having="rows > 0") == [("x", 1, 0, 1, 5, 5.0), ("x", 2, 1, None, None, None), ("x", 4, 0, 1, 6, 6.0)]


def test_zeros_of_both_signs_are_one_group() -> None:
    schema = Schema((("t.key", STRING), ("t.group", DOUBLE)))
    own = TableRegrouper(TableRegrouping("t", ("t.key",), None, ("t.group",), ()), schema, None, MemorySegmentStore())
    frame = puts((1, "a", "-", None), (2, "a", "-", None)).drop("t.x")
    frame = frame.with_columns(pl.Series("t.group", [0.0, -0.0]), pl.lit(0, pl.Int8).alias("_op"))
    assert own.process(frame, {}, BatchTime()).frame["t.$has_old"].to_list() == [False, True]


def test_a_put_is_judged_by_the_puts_of_all_tasks_before_it() -> None:
    times, own = RunningTimes(), regrouper(3)
    of_others = puts((10, "b", "x", 5))
    own.process(of_others.clear(), {}, times.at([of_others], is_table=True))
    frame = puts((6, "a", "x", 5), (7, "a", "x", 6), first=1)
    output = own.process(frame, {}, times.at([frame], is_table=True))
    assert (output.frame["_pos"].to_list(), output.late["stream_time_ms"].to_list()) == ([2], [10])


def test_a_trace_keeps_its_order_over_batches() -> None:
    columns = (AggregateColumn("trace", "trace", "cast(t.x as string)"),)
    store = MemorySegmentStore()
    first = regrouper()
    second = TableAggregator(TableAggregation("t", (("group", "t.group"),), columns), first.schema, None, store)
    batches: list[list[Put]] = [[(1, "a", "x", 1), (2, "b", "x", 2), (3, "a", "x", 3)], [(4, "b", "-", None)], [(5, "c", "x", 4)]]
    frames = [second.process(first.process(puts(*rows), {}, BatchTime()).frame, {}, BatchTime()).frame for rows in batches]
    traces = [trace for frame in frames for trace in frame["trace"].to_list()]
    assert traces == ["0+1", "0+1+2", "0+1+2-1+3", "0+1+2-1+3-2", "0+1+2-1+3-2+4"]


def test_a_tombstone_of_a_versioned_table_is_remembered_as_long_as_an_older_put_is_accepted() -> None:
    own, times = regrouper(10), RunningTimes()
    rows = [(5, "a", "-", None), *((6, f"b{i}", "x", i) for i in range(MIN_MERGED)), (4, "a", "x", 1)]
    for place, row in enumerate(rows):
        frame = puts(row, first=place)
        output = own.process(frame, {}, times.at([frame], is_table=True))
    assert (output.frame.height, output.counters) == (0, {("t", "out_of_order"): 1})


def test_a_tombstone_of_a_versioned_table_is_forgotten_once_no_older_put_is_accepted() -> None:
    own, times = regrouper(10), RunningTimes()
    for place, row in enumerate((*((5, f"a{i}", "-", None) for i in range(MIN_MERGED - 1)), (16, "b", "x", 1))):
        frame = puts(row, first=place)
        own.process(frame, {}, times.at([frame], is_table=True))
    assert kept_rows(own) == 1


def test_a_delete_of_an_unversioned_table_is_forgotten_with_the_row_it_deleted() -> None:
    own = regrouper()
    kept = []
    for number in range(0, 4000, 20):
        rows: list[Put] = [(number + i, f"k{number + i}", "x", 1) for i in range(20)]
        own.process(puts(*rows), {}, BatchTime())
        own.process(puts(*((ts, key, "-", None) for ts, key, _, _ in rows)), {}, BatchTime())
        kept.append(kept_rows(own))
    assert max(kept) < 1200


def test_a_put_after_a_delete_of_an_unversioned_table_is_in_order_whatever_its_time() -> None:
    output = regrouper().process(puts((5, "a", "x", 5), (6, "a", "-", None), (3, "a", "y", 3)), {}, BatchTime())
    assert [message[0] for message in output.frame.select("t.group").rows()] == ["x", "x", "y"]
    assert output.counters == {}


def kept_rows(own: TableRegrouper) -> int:
    return sum(segment["rows"] for segment in own.snapshot()["rows"])
