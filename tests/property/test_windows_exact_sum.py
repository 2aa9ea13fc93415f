"""Exact sums under any order and any grouping."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.operators.aggregation.accumulators.exact_sum import (
    DOUBLE_UNIT,
    Limbs,
    carried,
    double_limbs,
    int_limbs,
    to_double,
    to_int64,
)

DOUBLES = st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e307, max_value=1e307), min_size=1, max_size=30)
INTS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=10)


def added(parts: list[Limbs]) -> Limbs:
    total: Limbs = {}
    for part in parts:
        for q, column in part.items():
            total[q] = total.get(q, np.zeros(1, np.int64)) + column.sum()
    return total


@given(DOUBLES)
def test_the_sum_of_doubles_is_that_of_fsum(values: list[float]) -> None:
    assert to_double(added([double_limbs(np.array(values))]), 1, DOUBLE_UNIT)[0][0] == math.fsum(values)


@given(DOUBLES, st.randoms(use_true_random=False), st.integers(1, 7))
def test_order_and_grouping_do_not_change_a_single_bit(values: list[float], source: object, size: int) -> None:
    shuffled = list(values)
    source.shuffle(shuffled)  # type: ignore[attr-defined]
    parts = [carried(added([double_limbs(np.array(shuffled[i : i + size]))])) for i in range(0, len(shuffled), size)]
    regrouped = to_double(added(parts), 1, DOUBLE_UNIT)[0]
    assert regrouped.tobytes() == to_double(added([double_limbs(np.array(values))]), 1, DOUBLE_UNIT)[0].tobytes()


@given(INTS)
def test_the_sum_of_integers_is_exact_or_does_not_fit(values: list[int]) -> None:
    totals, fits = to_int64(added([int_limbs(np.array(values, dtype=np.int64))]), 1)
    assert bool(fits[0]) == (-(2**63) <= sum(values) < 2**63)
    assert not fits[0] or int(totals[0]) == sum(values)
