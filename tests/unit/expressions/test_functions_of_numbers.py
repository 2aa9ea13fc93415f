"""Functions of numbers, angles and places: what they give at the edges."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, ROUND_HALF_DOWN, ROUND_HALF_UP, Context, Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema, parse_type
from engine.expressions.values.operands import ExpressionInvalid

SCHEMA = Schema(
    tuple((name, parse_type(kind)) for name, kind in {"x": "double", "n": "int", "m": "decimal(5,2)", "b": "bigint"}.items())
)


def frame(**columns: list[Any]) -> pl.DataFrame:
    height = max(map(len, columns.values()))
    rows = {name: columns.get(name, [None] * height) for name in SCHEMA}
    return pl.DataFrame(rows, schema=SCHEMA.polars())


def values(text: str, table: pl.DataFrame) -> list[Any]:
    return table.select(compile_scalar(text, SCHEMA).expr.alias("found"))["found"].to_list()


def counted(text: str, table: pl.DataFrame) -> int:
    return sum(table.select(gap.is_met.sum()).item() for gap in compile_scalar(text, SCHEMA).gaps)


@pytest.mark.parametrize(
    ("text", "given_x", "expected"),
    [
        ("ksql_round(x)", [0.5, -0.5, 1.5, -1.5, 0.49999999999999994, None], [1, 0, 2, -1, 0, None]),
        ("ksql_round(x)", [1e300, -1e300, math.nan, math.inf], [2**63 - 1, -(2**63), 0, 2**63 - 1]),
        ("ksql_round(x, 1)", [0.25, -0.25, 0.35, -0.04, 1e300], [0.3, -0.2, 0.4, 0.0, 1e300]),
        ("ksql_round(x, -2)", [149.9, 150.0, -150.0, -151.0, 49.0], [100.0, 200.0, -100.0, -200.0, 0.0]),
        ("ksql_round(x, 400)", [1.25], [1.25]),
        ("ksql_round(x, NULL)", [1.25], [None]),
        ("trunc(x)", [1.9, -1.9, 1e300, None], [1, -1, 2**63 - 1, None]),
        ("trunc(x, 1)", [1.99, -1.99, 0.3], [1.9, -1.9, 0.3]),
        ("trunc(x, -1)", [19.9, -19.9], [10.0, -10.0]),
    ],
)
def test_doubles_are_rounded(text: str, given_x: list[float], expected: list[Any]) -> None:
    assert values(text, frame(x=given_x)) == expected


@given(st.lists(st.tuples(st.decimals("-99999", "99999", places=4), st.integers(-3, 6)), min_size=1))
def test_doubles_are_rounded_as_the_decimals_that_they_are_written_as(pairs: list[tuple[Decimal, int]]) -> None:
    table = frame(x=[float(value) for value, _ in pairs], n=[digits for _, digits in pairs])
    context = Context(prec=60)

    def expected(value: Decimal, digits: int, rounding: str) -> float:
        return float(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), rounding, context))

    assert values("ksql_round(x, n)", table) == [
        expected(value, digits, ROUND_HALF_UP if value > 0 else ROUND_HALF_DOWN) for value, digits in pairs
    ]
    assert values("trunc(x, n)", table) == [expected(value, digits, ROUND_DOWN) for value, digits in pairs]


def test_decimals_are_rounded_exactly_and_keep_their_scale_with_digits() -> None:
    table = frame(m=[Decimal("1.25"), Decimal("-1.25"), Decimal("999.99"), None])
    assert values("ksql_round(m, 1)", table) == [Decimal("1.30"), Decimal("-1.20"), Decimal("1000.00"), None]
    assert values("ksql_round(m)", table) == [Decimal(1), Decimal(-1), Decimal(1000), None]
    assert values("ksql_round(m, -2)", table) == [Decimal("0.00"), Decimal("0.00"), Decimal("1000.00"), None]
    assert values("trunc(m, 1)", table) == [Decimal("1.20"), Decimal("-1.20"), Decimal("999.90"), None]
    assert str(compile_scalar("ksql_round(m)", SCHEMA).type) == "decimal(4,0)"


def test_whole_numbers_stay_whole_without_digits() -> None:
    table = frame(b=[2**62 + 1, None], n=[7, None])
    assert values("ksql_round(b)", table) == values("trunc(b)", table) == [2**62 + 1, None]
    assert values("ksql_round(n, -1)", table) == [10.0, None]


def test_a_size_has_the_type_of_the_number() -> None:
    table = frame(n=[-(2**31), -7, None], b=[-5, 5, -(2**63)])
    assert values("ksql_abs(n)", table) == [None, 7, None]
    assert values("ksql_abs(b)", table) == [5, 5, None]
    assert counted("ksql_abs(n)", table) == counted("ksql_abs(b)", table) == 1
    assert str(compile_scalar("ksql_abs(n)", SCHEMA).type) == "int"


@pytest.mark.parametrize("name", ["sqrt", "ln", "asin", "acos", "log"])
def test_outside_of_its_domain_ours_is_null_and_counted_and_that_of_ksqldb_is_nan(name: str) -> None:
    table = frame(x=[-2.0, None])
    assert values(f"{name}(x)", table) == [None, None]
    assert counted(f"{name}(x)", table) == 1
    first, second = values(f"ksql_{name}(x)", table)
    assert math.isnan(first)
    assert second is None
    assert counted(f"ksql_{name}(x)", table) == 0


def test_infinite_results_are_null_here_and_infinite_in_ksqldb() -> None:
    table = frame(x=[0.0, 1000.0])
    assert values("ksql_ln(x)", table)[0] == values("ksql_log(x)", table)[0] == -math.inf
    assert values("ksql_cot(x)", table)[0] == math.inf
    assert (
        values("ksql_exp(x)", table)[1] == values("ksql_cosh(x)", table)[1] == values("ksql_power(10, x)", table)[1] == math.inf
    )
    assert values("cosh(x)", table)[1] is values("cot(x)", table)[0] is None


def test_a_logarithm_has_a_base() -> None:
    table = frame(x=[1.0, 0.0, 10.0, None])
    assert values("log(x, 100)", table) == [None, None, pytest.approx(2.0), None]
    first, second, *_ = values("ksql_log(x, 100)", table)
    assert math.isnan(first)
    assert math.isnan(second)


def test_a_distance_needs_places_on_the_earth_and_a_unit() -> None:
    table = frame(x=[0.0, 90.5, None])
    assert values("round(geo_distance(0, 0, x, 180), 1)", table) == [20015.1, None, None]
    assert counted("geo_distance(0, 0, x, 180)", table) == 1
    in_miles = values("geo_distance(0, 0, 0, 180, ' Miles ')", table)[0]
    assert in_miles == pytest.approx(math.pi * 3959)
    assert values("geo_distance(0, 0, 0, 180, NULL)", table)[0] == pytest.approx(math.pi * 6371)
    with pytest.raises(ExpressionInvalid, match="km or miles"):
        compile_scalar("geo_distance(0, 0, 0, 0, 'yards')", SCHEMA)


def test_angles_turn_from_degrees_to_radians_and_back() -> None:
    table = frame(x=[-180.0, 45.0, None])
    assert values("degrees(radians(x))", table) == [pytest.approx(-180.0), pytest.approx(45.0), None]
    assert values("atan2(x, 0)", table) == [pytest.approx(-math.pi / 2), pytest.approx(math.pi / 2), None]
    assert values("cbrt(x)", table)[0] == pytest.approx(-(180 ** (1 / 3)))
