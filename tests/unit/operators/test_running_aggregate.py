"""Running aggregation in small."""

from __future__ import annotations

from typing import Any

import polars as pl

from engine.expressions.types.types import BIGINT, DOUBLE, Schema
from engine.frames.frames import SERVICE_COLUMNS
from engine.operators.aggregation.running_aggregate import RunningAggregator
from engine.operators.operators import BatchTime
from engine.plan.operators.aggregation import AggregateColumn, RunningAggregation
from engine.state.segments.memory import MemorySegmentStore

SCHEMA = Schema((("s.group", DOUBLE), ("s.x", BIGINT)))


def operator(*, group: tuple[tuple[str, str], ...] = (("group", "s.group"),), having: str | None = None) -> RunningAggregator:
    columns = (AggregateColumn("rows", "count", None), AggregateColumn("total", "sum", "s.x"))
    return RunningAggregator(RunningAggregation("r", group, columns, having), SCHEMA, None, MemorySegmentStore())


def records(*rows: tuple[int, float | None, int | None], nulls: tuple[int, ...] = ()) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "_pos": range(len(rows)),
            "_ts": [row[0] for row in rows],
            "_op": [int(i in nulls) for i in range(len(rows))],
            "_key_hash": [0] * len(rows),
            "_offset": range(len(rows)),
            "_rank": [None] * len(rows),
            "s.group": [row[1] for row in rows],
            "s.x": [row[2] for row in rows],
        },
        schema={**SERVICE_COLUMNS, **SCHEMA.polars()},
    )


def shown(own: RunningAggregator, frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return own.process(frame, {}, BatchTime()).frame.select("_ts", "_op", "group", "rows", "total").rows()


def test_every_record_is_a_change_with_the_greatest_time_so_far() -> None:
    assert shown(operator(), records((5, 1.0, 2), (3, 1.0, None), (4, 2.0, 7))) == [
        (5, 0, 1.0, 1, 2), (5, 0, 1.0, 2, 2), (4, 0, 2.0, 1, 7),
    ]  # fmt: skip


def test_zeros_of_both_signs_are_one_group() -> None:
    assert [row[3] for row in shown(operator(), records((1, 0.0, 1), (2, -0.0, 1)))] == [1, 2]


def test_null_keys_and_null_values_are_dropped_and_counted() -> None:
    own = operator()
    output = own.process(records((1, 1.0, 1), (9, None, 1), (8, 1.0, 1), nulls=(2,)), {}, BatchTime())
    assert output.frame.height == 1
    assert output.counters == {("r", "null_key"): 1, ("r", "null_value"): 1}


def test_a_group_without_columns_is_the_whole_stream() -> None:
    output = operator(group=()).process(records((1, 1.0, 1), (2, None, 4)), {}, BatchTime())
    assert output.frame.select("rows", "total").rows() == [(1, 1), (2, 5)]


def test_a_sum_that_does_not_fit_is_null_and_counted_at_every_change() -> None:
    output = operator().process(records((1, 1.0, 2**63 - 1), (2, 1.0, 1), (3, 1.0, -1)), {}, BatchTime())
    assert output.frame["total"].to_list() == [2**63 - 1, None, 2**63 - 1]
    assert output.counters == {("r", "sum_overflow"): 1}


def test_a_group_that_never_matched_having_is_never_deleted() -> None:
    own = operator(having="total > 2")
    assert shown(own, records((1, 1.0, 1), (2, 1.0, 1), (3, 1.0, 1))) == [(3, 0, 1.0, 3, 3)]
    assert shown(own, records((4, 1.0, -1), (5, 1.0, -1))) == [(4, 1, 1.0, None, None)]


def test_nothing_waits() -> None:
    own = operator()
    own.process(records((1, 1.0, 1)), {}, BatchTime(now_ms=5))
    assert (own.buffered_rows, own.due_ms, own.wakes_at_ms) == (0, None, None)
