"""Aggregates of small groups: nulls, edges of types, merging, running values."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

from engine.expressions.types.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    ColumnType,
    Schema,
    decimal,
    parse_type,
)
from engine.operators.aggregation.aggregate import Aggregates
from engine.plan.operators.aggregation import AggregateColumn
from engine.state.sorted.running import Groups

LISTS = parse_type("array<int>")

OF_VALUES = (
    "avg", "collect_list", "collect_set", "first", "first_by_arrival", "histogram", "last", "last_by_arrival", "max", "min", "stddev",
    "sum", "top_k", "variance",
)  # fmt: skip


def partials_of(function: str, values: list[Any], type_: ColumnType) -> tuple[Aggregates, pl.DataFrame]:
    """One partial per value."""
    column = AggregateColumn("out", function, "x", 2 if function == "top_k" else None)  # type: ignore[arg-type]
    aggregates = Aggregates([column], Schema((("x", type_),)))
    frame = pl.DataFrame({"_ts": pl.int_range(len(values), eager=True), "x": pl.Series(values, dtype=type_.polars)})
    return aggregates, pl.DataFrame(aggregates.lift(frame, pl.Series(range(len(values)), dtype=pl.Int64)))


def result(function: str, values: list[Any], type_: ColumnType) -> Any:
    """Merge all values, in two steps, and read the result."""
    aggregates, partials = partials_of(function, values, type_)
    for divisor in (2, len(values)):
        group = pl.int_range(pl.len()) // divisor
        merged = partials.group_by(group.alias("group"), maintain_order=True).agg(aggregates.merge(partials.columns))
        partials = aggregates.run_until_idle(merged.drop("group"))
    columns, _ = aggregates.results(partials)
    assert columns[0].dtype == aggregates.schema[0][1].polars
    return columns[0].to_list()[0]


def running(function: str, groups: list[list[Any]], type_: ColumnType) -> list[Any]:
    """The values after each element of several groups."""
    flat = [value for group in groups for value in group]
    aggregates, partials = partials_of(function, flat, type_)
    ids = pl.DataFrame({"group": [i for i, group in enumerate(groups) for _ in group]})
    columns, _ = aggregates.running(partials, Groups.of(ids))
    return columns[0].to_list()


@pytest.mark.parametrize(
    ("function", "type_", "values", "expected"),
    [
        ("count", BIGINT, [1, None, 1], 2),
        ("count_distinct", STRING, ["a", None, "b", "a", ""], 3),
        ("count_distinct", DOUBLE, [0.0, -0.0, None], 1),
        ("sum", INT, [2**31 - 1, 2**31 - 1, None], 2**32 - 2),
        ("sum", BIGINT, [-5, 3, None], -2),
        ("sum", DOUBLE, [1e16, 1.0, -1e16], 1.0),
        ("sum", DOUBLE, [1.0, float("nan"), float("inf"), None], 1.0),
        ("sum", decimal(10, 2), [Decimal("0.10"), Decimal("0.20"), None], Decimal("0.30")),
        ("avg", BIGINT, [1, 2, None], 1.5),
        ("avg", BIGINT, [2**63 - 1, 2**63 - 1], float(2**63 - 1)),
        ("avg", DOUBLE, [0.5, 1.0], 0.75),
        ("avg", decimal(10, 2), [Decimal("0.10"), Decimal("0.20")], 0.15),
        ("min", STRING, ["b", None, "a"], "a"),
        ("max", STRING, ["b", None, "a"], "b"),
        ("max", DATE, [date(2013, 1, 1), date(2013, 7, 1)], date(2013, 7, 1)),
        ("min", decimal(10, 2), [Decimal("0.10"), Decimal("-0.20")], Decimal("-0.20")),
        ("max", DOUBLE, [float("inf"), 1.0, float("nan")], 1.0),
        ("concat", STRING, ["b", None, "a"], "ba"),
        ("trace", STRING, ["b", None, "a"], "0+b+a"),
        ("variance", BIGINT, [1, 2, None, 3, 4], 5 / 3),
        ("variance", INT, [2**31 - 1, -(2**31)], (2**32 - 1) ** 2 / 2),
        ("stddev", BIGINT, [2**63 - 1, 2**63 - 3], 2**0.5),
        ("stddev", DOUBLE, [1e15 + 1, 1e15 + 2, 1e15 + 3, float("nan")], 1.0),
        ("stddev", DOUBLE, [1e308, -1e308], 1e308 * 2**0.5),
        ("stddev", DOUBLE, [5e-324, 5e-324, 5e-324], 0.0),
        ("stddev", decimal(10, 2), [Decimal("0.10"), Decimal("0.20"), Decimal("0.30")], 0.1),
        ("first", BOOLEAN, [None, True, False], True),
        ("last", DATE, [date(2013, 1, 1), date(2012, 7, 1), None], date(2012, 7, 1)),
        ("first_by_arrival", LISTS, [None, [1, 2], [3]], [1, 2]),
        ("last_by_arrival", BYTES, [b"a", b"b", None], b"b"),
        ("collect_list", LISTS, [[1, 2], None, [], [1, 2]], [[1, 2], [], [1, 2]]),
        ("collect_list", decimal(10, 2), [Decimal("0.10"), Decimal("0.10")], [Decimal("0.10"), Decimal("0.10")]),
        ("collect_set", DATE, [date(2013, 1, 1), date(2012, 7, 1), date(2013, 1, 1)], [date(2013, 1, 1), date(2012, 7, 1)]),
        ("collect_set", BOOLEAN, [True, None, False, True], [True, False]),
        ("top_k", BIGINT, [3, None, 5, 5, 1], [5, 5]),
        ("top_k", STRING, ["b"], ["b"]),
        ("histogram", BOOLEAN, [True, None, False, True], [{"key": "false", "value": 1}, {"key": "true", "value": 2}]),
        ("min", BYTES, [b"b", None, b"a"], b"a"),
        ("attr", LISTS, [[1], [1]], [1]),
        ("attr", STRING, ["a", None], None),
        ("attr", STRING, ["a", "b"], None),
        ("median", decimal(10, 2), [Decimal("0.10"), None, Decimal("0.30")], 0.2),
        ("median", DOUBLE, [1e308, 1e308, 1e308, 1e308], 1e308),
        ("sum_list", LISTS, [[1, 2], None, [], [3, None]], 6),
        ("ksql_sum", INT, [2**31 - 1, 1], None),
        ("ksql_sum", decimal(4, 1), [Decimal("500.9"), Decimal("400.8")], Decimal("901.7")),
        ("ksql_sum", decimal(4, 1), [Decimal("500.9"), Decimal("500.8")], None),
        ("ksql_sum", DOUBLE, [None], 0.0),
        ("ksql_avg", INT, [None], 0.0),
        ("ksql_stddev_samp", INT, [7, None], 0.0),
        ("ksql_collect_list", LISTS, [[1], None, [None]], [[1], None, [None]]),
        ("ksql_collect_set", LISTS, [[1], None, [1], None, []], [[1], None, []]),
        ("ksql_sum_list", ColumnType("array", element=DOUBLE), [[1e16, 1.0], [-1e16]], 1.0),
        ("histogram", decimal(10, 2), [Decimal("1.50"), Decimal("1.5")], [{"key": "1.50", "value": 2}]),
    ],
)
def test_nulls_and_what_is_not_finite_are_ignored(function: str, type_: ColumnType, values: list[Any], expected: Any) -> None:
    assert result(function, values, type_) == (pytest.approx(expected, rel=1e-15) if isinstance(expected, float) else expected)


@pytest.mark.parametrize("function", OF_VALUES)
@pytest.mark.parametrize("type_", [BIGINT, DOUBLE, decimal(10, 2)])
def test_an_aggregate_of_nothing_is_null(function: str, type_: ColumnType) -> None:
    assert result(function, [None, None], type_) is None


def test_a_deviation_of_one_value_is_null() -> None:
    assert (result("stddev", [1.5, None], DOUBLE), result("variance", [1], BIGINT)) == (None, None)


def test_a_variance_that_does_not_fit_is_null_and_known() -> None:
    aggregates, partials = partials_of("variance", [1e308, -1e308], DOUBLE)
    columns, marks = aggregates.results(partials.select(aggregates.merge(partials.columns)))
    assert columns[0].to_list() == [None]
    assert [(reason, mask.tolist()) for reason, mask in marks.masks] == [("sum_overflow", [True])]


def test_equal_event_times_go_by_arrival() -> None:
    columns = [AggregateColumn("first", "first", "x"), AggregateColumn("last", "last", "x")]
    aggregates = Aggregates(columns, Schema((("x", STRING),)))
    frame = pl.DataFrame({"_ts": [5, 1, 1, 5], "x": ["a", "b", "c", "d"]})
    partials = pl.DataFrame(aggregates.lift(frame, pl.Series([10, 20, 30, 40])))[[3, 2, 1, 0]]
    found, _ = aggregates.results(partials.select(aggregates.merge(partials.columns)))
    assert [column.to_list() for column in found] == [["b"], ["d"]]


def test_a_value_taken_out_leaves_the_others() -> None:
    columns = [AggregateColumn("n", "count_distinct", "x"), AggregateColumn("map", "histogram", "x")]
    aggregates = Aggregates(columns, Schema((("x", STRING),)), with_undo=True)
    frame = pl.DataFrame({"x": ["a", "b", "a", "b", "a"]})
    partials = pl.DataFrame(aggregates.lift(frame, pl.Series(range(5)), np.array([1, 1, 1, -1, -1])))
    found, _ = aggregates.running(partials, Groups.of(pl.DataFrame({"group": [0] * 5})))
    assert found[0].to_list() == [1, 2, 2, 1, 1]
    assert [[tuple(entry.values()) for entry in entries] for entries in found[1].to_list()] == [
        [("a", 1)], [("a", 1), ("b", 1)], [("a", 2), ("b", 1)], [("a", 2)], [("a", 1)],
    ]  # fmt: skip


def test_counts_of_nothing_are_zero() -> None:
    assert (result("count", [None, None], BIGINT), result("count_distinct", [None, None], BIGINT)) == (0, 0)


@pytest.mark.parametrize(
    ("type_", "values"),
    [(BIGINT, [2**63 - 1, 1]), (DOUBLE, [1.7e308, 1.7e308]), (decimal(38, 0), [Decimal("9" * 38), Decimal(1)])],
)
def test_a_sum_that_does_not_fit_is_null_and_known(type_: ColumnType, values: list[Any]) -> None:
    aggregates, partials = partials_of("sum", values, type_)
    columns, marks = aggregates.results(partials.select(aggregates.merge(partials.columns)))
    assert columns[0].to_list() == [None]
    assert [(reason, mask.tolist()) for reason, mask in marks.masks] == [("sum_overflow", [True])]


@pytest.mark.parametrize(
    ("function", "type_", "groups", "expected"),
    [
        ("count", BIGINT, [[1, None, 1], [1]], [1, 1, 2, 1]),
        ("sum", BIGINT, [[1, None, 2], [None, 5]], [1, 1, 3, None, 5]),
        ("sum", DOUBLE, [[1e16, 1.0, -1e16], [0.5]], [1e16, 1e16, 1.0, 0.5]),
        ("avg", DOUBLE, [[1.0, 2.0], [None]], [1.0, 1.5, None]),
        ("min", STRING, [["b", "c", "a"], [None, "z"]], ["b", "b", "a", None, "z"]),
        ("max", BIGINT, [[1, None, 3, 2], [-7]], [1, 1, 3, 3, -7]),
        ("count_distinct", STRING, [["a", "a", None, "b"], ["a"]], [1, 1, 1, 2, 1]),
        ("concat", STRING, [["a", None, "b"], [None, "c"]], ["a", "a", "ab", None, "c"]),
    ],
)
def test_running_values_are_those_after_each_record(
    function: str, type_: ColumnType, groups: list[list[Any]], expected: list[Any]
) -> None:
    assert running(function, groups, type_) == expected


def test_the_minimum_shows_zero_as_positive_whichever_came_first() -> None:
    assert [str(result("min", values, DOUBLE)) for values in ([0.0, -0.0], [-0.0, 0.0])] == ["0.0", "0.0"]


def test_partials_near_the_limit_are_carried_and_keep_their_sum() -> None:
    aggregates = Aggregates([AggregateColumn("out", "sum", "x")], Schema((("x", BIGINT),)))
    partials = pl.DataFrame({"a0.n": [1], "a0.l0": [2**62 + 5], "a0.l1": [-(2**30)]})
    settled = aggregates.run_until_idle(partials)
    assert settled.select(pl.col("^a0.l.*$").abs().max()).max_horizontal().item() < 2**32
    assert aggregates.results(settled)[0][0].to_list() == [5]
