"""CAST as ksqlDB does it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema, parse_type
from engine.expressions.values.operands import ExpressionInvalid

UTC = dt.UTC


def values(kind: str, given: list[Any], target: str) -> list[Any]:
    schema = Schema((("v", parse_type(kind)),))
    frame = pl.DataFrame({"v": given}, schema=schema.polars())
    return frame.select(compile_scalar(f"ksql_cast(v, '{target}')", schema).expr.alias("found"))["found"].to_list()


CASES: list[tuple[str, str, list[Any], list[Any]]] = [
    ("bigint", "int", [2**31, -(2**31) - 1, 7, None], [-(2**31), 2**31 - 1, 7, None]),
    ("decimal(12,1)", "int", [Decimal("4294967297.9"), Decimal("-1.9")], [1, -1]),
    ("double", "int", [1e10, -1e10, 1.9, -1.9, None], [2**31 - 1, -(2**31), 1, -1, None]),
    ("double", "bigint", [1e30, -1e30], [2**63 - 1, -(2**63)]),
    ("double", "string", [1.0, 1e7, 0.0001, None], ["1.0", "1.0E7", "1.0E-4", None]),
    ("decimal(5,2)", "string", [Decimal("1.50")], ["1.50"]),
    ("int", "decimal(3,1)", [99, 100], [Decimal("99.0"), None]),
    ("string", "boolean", ["true", "TR", " yes ", "no", "", "2", None], [True, True, True, False, False, False, None]),
    ("string", "int", [" 12 ", "1.5", "x"], [12, None, None]),
    ("string", "bytes", ["dGVh", "?"], [b"tea", None]),
    (
        "string",
        "date",
        ["2013-02-03", "2013", "2013-02-03T00:00:00", "tea"],
        [dt.date(2013, 2, 3), dt.date(2013, 1, 1), None, None],
    ),
    ("string", "timestamp", ["2013-02-03T04", "no"], [dt.datetime(2013, 2, 3, 4, tzinfo=UTC), None]),
    ("timestamp", "string", [dt.datetime(2013, 2, 3, tzinfo=UTC), None], ["2013-02-03T00:00:00.000", None]),
    ("time", "string", [dt.time(1, 2), dt.time(1, 2, 3)], ["01:02", "01:02:03"]),
    ("array<int>", "string", [[1, None], [], None], ["[1, null]", "[]", None]),
    ("array<double>", "array<string>", [[1e10, None], None], [["1.0E10", None], None]),
    ("array<bigint>", "array<int>", [[2**32 + 5]], [[5]]),
    ("map<string,double>", "string", [[{"key": "a", "value": 1.5}]], ["{a=1.5}"]),
    ("struct<a:int,b:boolean>", "string", [{"a": None, "b": True}], ["Struct{b=true}"]),
]


@pytest.mark.parametrize(("kind", "target", "given", "expected"), CASES, ids=lambda each: str(each)[:40])
def test_a_cast_gives(kind: str, target: str, given: list[Any], expected: list[Any]) -> None:
    assert values(kind, given, target) == expected


@pytest.mark.parametrize(
    ("kind", "target"),
    [("boolean", "int"), ("bytes", "string"), ("date", "bigint"), ("array<int>", "map<string,int>"), ("int", "boolean")],
)
def test_a_cast_that_ksqldb_has_not_is_refused(kind: str, target: str) -> None:
    with pytest.raises(ExpressionInvalid, match="cannot be cast"):
        values(kind, [], target)


def test_a_cast_that_fails_is_counted() -> None:
    schema = Schema((("v", parse_type("string")),))
    scalar = compile_scalar("ksql_cast(v, 'date')", schema)
    frame = pl.DataFrame({"v": ["tea", "2013", None]})
    assert [frame.select(gap.is_met).to_series().to_list() for gap in scalar.gaps] == [[True, False, False]]
