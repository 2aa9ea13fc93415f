"""What an expression cannot compute is NULL and counted by reason, once for each value, only where SQL would evaluate it."""

from __future__ import annotations

import polars as pl
import pytest

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import BIGINT, DOUBLE, INT, STRING, Schema, decimal
from engine.frames.evaluation_errors import GapCounter
from engine.frames.frames import SERVICE_COLUMNS, Counters
from engine.operators.operators import BatchTime
from engine.operators.rows.row_operators import RowFilter, RowProjection
from engine.operators.rows.table_filter import TableFilterer
from engine.operators.windows.hopping import WindowAggregator
from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.row_operators import Filter, Projection
from engine.plan.operators.table_filter import TableFilter
from engine.plan.operators.windows import WindowAggregation
from engine.state.segments.memory import MemorySegmentStore
from tests.lone_operator import LoneOperator

MOST = 2**63 - 1
SCHEMA = Schema((("n", BIGINT), ("m", BIGINT), ("i", INT), ("d", DOUBLE), ("t", STRING), ("c", decimal(10, 2))))
ROWS = [
    {"n": MOST, "m": 1, "i": 2**31 - 1, "d": 1e308, "t": "7", "c": 1},
    {"n": -MOST - 1, "m": 0, "i": 0, "d": -1.0, "t": "x", "c": 0},
    {"n": None, "m": None, "i": None, "d": None, "t": None, "c": None},
    {"n": MOST, "m": 0, "i": 0, "d": 1e308, "t": "x", "c": 0},  # a delete
]


def frame() -> pl.DataFrame:
    rows = pl.DataFrame(ROWS, schema=SCHEMA.polars())
    service = {
        name: pl.Series([0] * len(ROWS)).cast(dtype) if dtype != pl.Binary else pl.Series([None] * len(ROWS), dtype=dtype)
        for name, dtype in SERVICE_COLUMNS.items()
        if name != "_op"
    }
    return rows.with_columns(**service, _op=pl.Series([0, 0, 0, 1], dtype=pl.Int8))


def counted(text: str) -> dict[str, int]:
    counters: Counters = {}
    GapCounter("select", [compile_scalar(text, SCHEMA)]).count(frame(), counters)
    return {reason: count for (_, reason), count in counters.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n + 1", {"number_overflow": 1}),
        ("n - 1", {"number_overflow": 1}),
        ("n * n", {"number_overflow": 2}),
        ("-n", {"number_overflow": 1}),
        ("abs(n)", {"number_overflow": 1}),
        ("i * i", {}),
        ("d * 10", {"number_overflow": 1}),
        ("power(d, 2)", {"number_overflow": 1}),
        ("exp(d)", {"number_overflow": 1}),
        ("c * c", {}),
        ("n / m", {"division_by_zero": 1}),
        ("n % m", {"division_by_zero": 1}),
        ("mod(n, m)", {"division_by_zero": 1}),
        ("n / -1", {"number_overflow": 1}),
        ("c / c", {"division_by_zero": 1}),
        ("n / 2", {}),
        ("1 / 0", {"division_by_zero": 3}),
        ("i + 1 / 0", {"division_by_zero": 3}),
        ("sqrt(d)", {"outside_domain": 1}),
        ("to_timestamp(n)", {"outside_domain": 2}),
        ("cast(t as int)", {"cast_failed": 1}),
        ("cast(n as int)", {"cast_failed": 2}),
        ("cast(i as bigint)", {}),
        ("cast(n as string)", {}),
        ("n + 1 > 5", {"number_overflow": 1}),
        ("coalesce(n + 1, 0)", {"number_overflow": 1}),
        ("coalesce(m, n / 0)", {}),
        ("case when m <> 0 then n / m else 0 end", {}),
        ("case m when 0 then 1 else n / m end", {}),
        ("case when m = 0 then n / m end", {"division_by_zero": 1}),
        ("m <> 0 and n / m > 1", {}),
        ("m = 0 and n / m > 1", {"division_by_zero": 1}),
        ("m = 0 or n / m > 1", {}),
        ("(n + 1) / m", {"number_overflow": 1, "division_by_zero": 1}),
        (" + ".join(["n"] * 60), {"number_overflow": 2}),
    ],
)
def test_each_value_that_is_missing_is_counted_by_its_reason(text: str, expected: dict[str, int]) -> None:
    assert counted(text) == expected


def test_a_select_counts_under_its_own_name_and_a_where_under_its() -> None:
    select = RowProjection(Projection((("next", "n + 1"), ("n", "n"))), SCHEMA, is_forced_known=False)
    assert select.process(frame(), {}, BatchTime()).counters == {("select", "number_overflow"): 1}
    where = RowFilter(Filter("n / m > 0"), SCHEMA)
    output = where.process(frame(), {}, BatchTime())
    assert (output.counters, output.frame.height) == ({("where", "division_by_zero"): 1}, 1)


def test_what_has_all_its_values_counts_nothing() -> None:
    select = RowProjection(Projection((("twice", "i * 2"),)), SCHEMA, is_forced_known=False)
    assert select.process(frame(), {}, BatchTime()).counters == {}


def test_an_aggregate_counts_what_its_argument_cannot_compute() -> None:
    spec = WindowAggregation("w", (("m", "m"),), 10, 10, 0, (AggregateColumn("total", "sum", "n + 1"),), "changes", None)
    windows = LoneOperator(WindowAggregator(spec, SCHEMA, None, MemorySegmentStore()))
    assert windows.process(frame()).counters["w", "number_overflow"] == 1


def test_a_filter_of_a_table_counts_what_it_cannot_compute() -> None:
    filterer = TableFilterer(TableFilter("where", "n / m > 0", ("i",), None), SCHEMA, None, MemorySegmentStore())
    assert filterer.process(frame(), {}, BatchTime()).counters["where", "division_by_zero"] == 1
