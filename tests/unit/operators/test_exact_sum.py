"""Exact sums by limbs: edges of each number type."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from engine.operators.aggregation.accumulators.exact_sum import (
    DOUBLE_UNIT,
    INTEGER_UNIT,
    Limbs,
    carried,
    decimal_limbs,
    double_limbs,
    int_limbs,
    to_decimal,
    to_double,
    to_int64,
)


def summed(limbs: Limbs) -> Limbs:
    return {q: np.array([column.sum()]) for q, column in limbs.items()}


def sum_doubles(values: list[float]) -> float:
    total, _ = to_double(summed(double_limbs(np.array(values))), 1, DOUBLE_UNIT)
    return float(total[0])


def sum_ints(values: list[int]) -> int | None:
    totals, fits = to_int64(summed(int_limbs(np.array(values, dtype=np.int64))), 1)
    return int(totals[0]) if fits[0] else None


def sum_decimals(values: list[str], scale: int = 2) -> Decimal | None:
    totals, fits = to_decimal(summed(decimal_limbs(pl.Series(values).cast(pl.Decimal(38, scale)))), 1, scale)
    value: Decimal = totals[0]
    return value if fits[0] else None


@pytest.mark.parametrize(
    "values",
    [
        [1e16, 1.0, -1e16],
        [0.1] * 10,
        [1e308, 1e-308, -1e308],
        [5e-324, 5e-324, 5e-324],
        [2.2250738585072014e-308, -5e-324],
        [1.7976931348623157e308, -1.7976931348623157e308, 3.5],
        [9007199254740992.0, 1.0, 1e-300],
        [9007199254740992.0, 1.0, -1e-300],
        [-1.0, 2.0**-1074],
        [1.0],
    ],
)
def test_sums_of_doubles_are_rounded_once(values: list[float]) -> None:
    assert sum_doubles(values) == math.fsum(values)


def test_a_sum_of_doubles_that_cancels_is_positive_zero() -> None:
    assert math.copysign(1.0, sum_doubles([-0.0, 1.5, -1.5])) == 1.0


def test_a_sum_of_doubles_may_pass_the_largest_double_on_the_way() -> None:
    assert sum_doubles([1e308, 1e308, -1e308]) == 1e308


def test_a_sum_beyond_the_largest_double_is_not_finite() -> None:
    _, is_finite = to_double(summed(double_limbs(np.array([1.7e308, 1.7e308]))), 1, DOUBLE_UNIT)
    assert not is_finite[0]


def test_no_limbs_mean_zero() -> None:
    totals, is_finite = to_double(double_limbs(np.array([0.0, -0.0])), 2, DOUBLE_UNIT)
    assert totals.tolist() == [0.0, 0.0]
    assert is_finite.all()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2**63 - 1], 2**63 - 1),
        ([-(2**63)], -(2**63)),
        ([2**63 - 1, 1], None),
        ([-(2**63), -1], None),
        ([2**63 - 1, 2**63 - 1, -(2**63 - 1)], 2**63 - 1),
        ([-1, 1], 0),
        ([-1, -1], -2),
    ],
)
def test_sums_of_integers_are_exact_or_known_not_to_fit(values: list[int], expected: int | None) -> None:
    assert sum_ints(values) == expected


def test_the_mean_of_integers_may_use_a_sum_that_does_not_fit_int64() -> None:
    total, _ = to_double(summed(int_limbs(np.array([2**63 - 1] * 4, dtype=np.int64))), 1, INTEGER_UNIT)
    assert total[0] == float(4 * (2**63 - 1))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1.10", "2.20", "-0.05"], "3.25"),
        (["-1.10", "0.10"], "-1.00"),
        (["9" * 36 + ".99", "0.01"], None),
        (["-" + "9" * 36 + ".99", "-0.01"], None),
        (["9" * 36 + ".99", "0.01", "-0.01"], "9" * 36 + ".99"),
        (["-" + "9" * 36 + ".99"], "-" + "9" * 36 + ".99"),
    ],
)
def test_sums_of_decimals_are_exact_or_known_not_to_fit(values: list[str], expected: str | None) -> None:
    assert sum_decimals(values) == (None if expected is None else Decimal(expected))


def test_null_decimals_count_as_zero_also_in_a_slice() -> None:
    values = pl.Series(["7.00", None, "1.50", None]).cast(pl.Decimal(10, 2)).slice(1)
    totals, _ = to_decimal(decimal_limbs(values), 3, 2)
    assert totals.to_list() == [Decimal("0.00"), Decimal("1.50"), Decimal("0.00")]


def test_carrying_keeps_the_sum_and_bounds_the_limbs() -> None:
    limbs = {0: np.array([2**62, -(2**62)]), 1: np.array([2**62, 5])}
    smaller = carried(limbs)
    assert all(int(abs(column).max()) <= 2**32 for column in smaller.values())
    assert to_double(smaller, 2, INTEGER_UNIT)[0].tolist() == [2**62 + 2**94, -(2**62) + 5 * 2**32]
