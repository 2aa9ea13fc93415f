"""CAST as ksqlDB has it."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any

import polars as pl
import pytest

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema, parse_type
from engine.expressions.values.operands import ExpressionInvalid


def found(source: str, target: str, values: list[Any]) -> list[Any]:
    schema = Schema((("s.x", parse_type(source)),))
    scalar = compile_scalar(f"ksql_cast(x, '{target}')", schema)
    series = pl.DataFrame({"s.x": values}, schema=schema.polars()).select(scalar.expr.alias("x")).to_series()
    assert series.dtype == parse_type(target).polars
    return series.to_list()


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("source", "target", "values", "expected"),
    [
        ("string", "date", ["2013", "2013-02", " 2013-02-03 ", "2013-02-30", "13", "", "2013-2", None], [
            date(2013, 1, 1), date(2013, 2, 1), date(2013, 2, 3), None, None, None, None, None,
        ]),
        ("string", "timestamp", ["2013", "2013-02", "2013-02-03", "2013-02-03T", "2013-02-03T04", "2013-02-03T04:05", "2013-02T04"], [
            at(2013, 1, 1), at(2013, 2, 1), at(2013, 2, 3), at(2013, 2, 3), at(2013, 2, 3, 4), at(2013, 2, 3, 4, 5), None,
        ]),
        ("string", "timestamp", ["2013-02-03T04:05:06.007Z", "2013-02-03T04+0130", "2013-02-03T04:05:06.007-01:00", "x", None], [
            at(2013, 2, 3, 4, 5, 6, 7_000), at(2013, 2, 3, 2, 30), at(2013, 2, 3, 5, 5, 6, 7_000), None, None,
        ]),
        ("string", "time", ["04:05", "04:05:06", "04:05:06.0079", "4:05", "24:00", None], [
            time(4, 5), time(4, 5, 6), time(4, 5, 6, 7_000), None, None, None,
        ]),
        ("timestamp", "string", [at(2013, 2, 3), None], ["2013-02-03T00:00:00.000", None]),
        ("time", "string", [time(4, 5), time(4, 5, 6, 7_000), None], ["04:05", "04:05:06", None]),
        ("string", "boolean", ["TRUE", " ye", "t", "on", "", None], [True, True, True, False, False, None]),
        ("string", "int", [" 7 ", "x", None], [7, None, None]),
        ("bigint", "int", [2**31, -(2**31) - 1, 5, None], [-(2**31), 2**31 - 1, 5, None]),
        ("double", "int", [3e9, -3e9, 1.9, -1.9, None], [2**31 - 1, -(2**31), 1, -1, None]),
        ("double", "bigint", [1e300, -1e300, 2.0**53], [2**63 - 1, -(2**63), 2**53]),
        ("double", "string", [0.5, 1e7, 1e-4, 0.0, 9999999.0, None], ["0.5", "1.0E7", "1.0E-4", "0.0", "9999999.0", None]),
        ("array<double>", "string", [[1.0, None, 1e7], [], None], ["[1.0, null, 1.0E7]", "[]", None]),
        ("array<bigint>", "array<int>", [[2**31, None]], [[-(2**31), None]]),
        ("map<string,int>", "string", [[{"key": "a", "value": 1}, {"key": "b", "value": None}], None], ["{a=1, b=null}", None]),
    ],
)  # fmt: skip
def test_a_cast_gives(source: str, target: str, values: list[Any], expected: list[Any]) -> None:
    assert found(source, target, values) == expected


@pytest.mark.parametrize("call", ["ksql_cast(1, 'number')", "ksql_cast(1, x)", "ksql_cast(x, 'date')"])
def test_a_cast_that_there_is_not_is_refused(call: str) -> None:
    with pytest.raises(ExpressionInvalid):
        compile_scalar(call, Schema((("s.x", parse_type("int")),)))
