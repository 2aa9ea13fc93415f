"""Exact sums of squares and the variances they give: the same for every order and every slicing (T3), rounded once.

With the exact count n, sum s and sum of squares q of a group, the sample variance is ``(n·q - s²) / (n·(n - 1))``. The numerator is
computed in limbs (see ``exact_sum``), so nothing cancels, however far the values lie from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.operators.aggregation.accumulators.exact_sum import (
    BITS,
    DOUBLE_UNIT,
    MASK,
    Int64s,
    Limbs,
    added,
    make_positive,
    normalise,
    rounded,
)

DOUBLE_SQUARE_UNIT: Final = 2 * DOUBLE_UNIT
"""Exponent of the unit of squared doubles' limbs."""

_SHIFT = np.uint64(BITS)
_LOW = np.uint64(MASK)


def squared(limbs: Limbs, rows: int) -> Limbs:
    """Square numbers given as limbs; the limbs' unit is squared too. Each limb stays below 2^40."""
    if not limbs:
        return {}
    lowest, digits = normalise(limbs, rows)
    make_positive(digits)
    magnitudes = digits.astype(np.uint64)
    used = [i for i in range(len(magnitudes)) if magnitudes[i].any()]
    result: Limbs = {}
    for place, i in enumerate(used):
        for j in used[place:]:
            product = magnitudes[i] * magnitudes[j]
            times = 1 if i == j else 2
            _add(result, 2 * lowest + i + j, (product & _LOW).astype(np.int64) * times)
            _add(result, 2 * lowest + i + j + 1, (product >> _SHIFT).astype(np.int64) * times)
    return result


def double_squares(values: NDArray[np.float64]) -> Limbs:
    """Square finite doubles into limbs of unit 2^-2148: a mantissa's square has 106 bits and touches at most five limbs.

    Args:
        values: finite doubles; the caller has replaced nulls and non-finite ones by 0.
    """
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
    exponent = (bits >> 52) & 0x7FF
    mantissa = ((bits & ((1 << 52) - 1)) | ((exponent > 0).astype(np.int64) << 52)).astype(np.uint64)
    shift = 2 * (np.maximum(exponent, 1) - 1)
    place, free = shift >> 5, (shift & 31).astype(np.uint64)
    parts: list[Int64s] = []
    carry = np.zeros(len(bits), dtype=np.uint64)
    for digit in (*_mantissa_squares(mantissa), np.uint64(0)):
        shifted = (digit << free) + carry
        parts.append((shifted & _LOW).astype(np.int64))
        carry = shifted >> _SHIFT
    limbs: Limbs = {}
    for q in np.unique(place[mantissa != 0]).tolist():
        here = place == q
        for k, part in enumerate(parts):
            chosen = np.where(here, part, 0)
            if chosen.any():
                _add(limbs, q + k, chosen)
    return limbs


def _mantissa_squares(mantissa: NDArray[np.uint64]) -> list[NDArray[np.uint64]]:
    """Return the four 32-bit digits of the squares of 53-bit numbers."""
    low, high = mantissa & _LOW, mantissa >> _SHIFT
    lows, mixed, highs = low * low, np.uint64(2) * low * high, high * high
    second = (lows >> _SHIFT) + (mixed & _LOW)
    third = (second >> _SHIFT) + (mixed >> _SHIFT) + (highs & _LOW)
    return [lows & _LOW, second & _LOW, third & _LOW, (third >> _SHIFT) + (highs >> _SHIFT)]


def variances(
    counts: Int64s, sums: Limbs, squares: Limbs, unit: int, scale: int, *, is_root: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return sample variances, or with ``is_root`` standard deviations.

    Args:
        counts: n of each group, below 2^31.
        sums: s of each group.
        squares: q of each group.
        unit: exponent of the squares' unit, ``DOUBLE_SQUARE_UNIT`` or ``INTEGER_UNIT``.
        scale: decimal digits behind the point of what was summed.
        is_root: take the square root, which may be a double where the variance is not.

    Returns:
        The values, and which of them are doubles. Those of fewer than two values mean nothing.
    """
    significand, exponent = rounded(_spread(counts, sums, squares), len(counts))
    pairs = np.maximum(counts * (counts - 1), 1).astype(np.float64)
    quotient = significand / (pairs * 10.0 ** (2 * scale))
    exponent = exponent + unit
    if is_root:
        is_odd = (exponent & 1) == 1
        quotient = np.sqrt(np.where(is_odd, 2 * quotient, quotient))
        exponent = (exponent - is_odd) >> 1
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(quotient, exponent.astype(np.int32))
    return result, np.isfinite(result)


def correlations(counts: Int64s, sums: Sequence[Limbs]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return Pearson's correlations, from -1 to 1.

    Args:
        counts: n of each group, below 2^31.
        sums: of x, of y, of x², of y² and of (x + y)², all exact and of one unit and its square.

    Returns:
        The values, NaN where one of the columns does not vary; and where none is.
    """
    rows = len(counts)
    first, second, first_squares, second_squares, together = sums
    spreads = [_spread(counts, first, first_squares), _spread(counts, second, second_squares)]
    both: Limbs = {}
    for sign, limbs in ((1, _spread(counts, added(first, second), together)), (-1, spreads[0]), (-1, spreads[1])):
        lowest, digits = normalise(limbs, rows)
        for i in range(len(digits)):
            _add(both, lowest + i, sign * digits[i])
    shared, exponent = rounded(both, rows)  # of twice the covariance
    (left, left_exponent), (right, right_exponent) = (rounded(spread, rows) for spread in spreads)
    is_known = (left > 0) & (right > 0)
    below = left_exponent + right_exponent
    is_odd = (below & 1) == 1
    product = np.where(is_known, left * right, np.nan)
    quotient = shared / 2 / np.sqrt(np.where(is_odd, 2 * product, product))
    values = np.ldexp(quotient, (exponent - ((below - is_odd) >> 1)).astype(np.int32))
    return np.clip(values, -1.0, 1.0), is_known


def _spread(counts: Int64s, sums: Limbs, squares: Limbs) -> Limbs:
    """Return ``n·q - s²`` of each group."""
    numerator: Limbs = {}
    lowest, digits = normalise(squares, len(counts))
    for i in range(len(digits)):
        _add(numerator, lowest + i, digits[i] * counts)
    for q, limb in squared(sums, len(counts)).items():
        _add(numerator, q, -limb)
    return numerator


def _add(limbs: Limbs, q: int, values: Int64s) -> None:
    limbs[q] = limbs[q] + values if q in limbs else values
