"""Exact, order-independent sums: numbers cut into 32-bit limbs at fixed exponents.

A number is written as ``Σ limb[q] · 2^(32·q) · unit``: the unit is 1 for integers and unscaled decimals and 2^-1074, the smallest
double, for doubles. Limbs are int64 columns, so adding is plain integer addition: exact, associative and commutative, hence
the same for every slicing of the input (T3). Only the conversion back rounds, once, to the nearest (ties to even), from a
canonical carry normalisation; so a sum of doubles equals ``math.fsum``. Each limb of one number is below 2^32: 2^31 numbers
fit before a column could overflow.

This is the idea of Neal, "Fast Exact Summation Using Small and Large Superaccumulators" (2015), kept as columns.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Limbs = dict[int, Int64s]

DOUBLE_UNIT: Final = -1074
"""Exponent of the unit of doubles' limbs: every finite double is a multiple of 2^-1074."""

INTEGER_UNIT: Final = 0
"""Exponent of the unit of integers' and unscaled decimals' limbs."""

BITS: Final = 32
MASK: Final = np.int64((1 << BITS) - 1)
_NONE: Final = np.zeros(0, dtype=np.int64)
_GUARD_LIMBS: Final = 3
"""Zero limbs kept below the lowest: the rounding looks at the three limbs below the highest non-zero one."""

_DECIMAL_LIMIT: Final = 10**38
"""Unscaled decimals must stay below it: ``Decimal(38, s)`` is the widest there is."""


def double_limbs(values: NDArray[np.float64]) -> Limbs:
    """Split finite doubles into limbs of unit 2^-1074.

    Args:
        values: finite doubles; the caller has replaced nulls and non-finite ones by 0.

    Returns:
        One column per limb index that any value touches; a 53-bit mantissa touches at most three.
    """
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
    exponent = (bits >> 52) & 0x7FF
    mantissa = (bits & ((1 << 52) - 1)) | ((exponent > 0).astype(np.int64) << 52)
    shift = np.maximum(exponent, 1) - 1
    place, shift = shift >> 5, shift & 31
    low = (mantissa & MASK) << shift  # below 2^63
    high = ((mantissa >> BITS) << shift) + (low >> BITS)
    sign = np.where(bits < 0, np.int64(-1), np.int64(1))
    parts = ((low & MASK) * sign, (high & MASK) * sign, (high >> BITS) * sign)
    limbs: Limbs = {}
    for q in np.unique(place[mantissa != 0]).tolist():
        here = place == q
        for k, part in enumerate(parts):
            chosen = np.where(here, part, 0)
            if chosen.any():
                limbs[q + k] = limbs[q + k] + chosen if q + k in limbs else chosen
    return limbs


def int_limbs(values: Int64s) -> Limbs:
    """Split int64 values into two limbs: the low 32 bits, and the signed rest."""
    return {0: values & MASK, 1: values >> BITS}


def decimal_limbs(values: pl.Series) -> Limbs:
    """Split the unscaled values of a ``pl.Decimal`` series into four limbs; a null counts as 0."""
    filled = values.fill_null(0) if values.null_count() else values
    array = filled.rechunk().to_arrow()
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    words = np.frombuffer(array.buffers()[1], dtype=np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    low, high = words[0::2], words[1::2]
    return {0: low & MASK, 1: (low >> BITS) & MASK, 2: high & MASK, 3: high >> BITS}


def added(first: Limbs, second: Limbs) -> Limbs:
    """Add numbers row by row."""
    return {
        q: first[q] + second[q] if q in first and q in second else first.get(q, second.get(q, _NONE)) for q in {*first, *second}
    }


def carried(limbs: Limbs) -> Limbs:
    """Carry limbs over without changing the sum, so that a column that was added to often cannot overflow."""
    rows = len(next(iter(limbs.values()))) if limbs else 0
    lowest, digits = normalise(limbs, rows)
    return {lowest + i: digits[i] for i in range(len(digits)) if digits[i].any()}


def to_int64(limbs: Limbs, rows: int) -> tuple[Int64s, NDArray[np.bool_]]:
    """Convert integer sums back.

    Returns:
        The values, and which of them fit int64; the others are meaningless.
    """
    lowest, digits = normalise({0: np.zeros(rows, dtype=np.int64), 1: np.zeros(rows, dtype=np.int64)} | limbs, rows)
    rest = digits[2 - lowest :]
    low = digits[0] | (digits[1] << BITS)
    extension = np.where(low < 0, np.int64(-1), np.int64(0))
    return low, _is_sign_extension(rest, extension)


def to_decimal(limbs: Limbs, rows: int, scale: int) -> tuple[pl.Series, NDArray[np.bool_]]:
    """Convert decimal sums back to ``pl.Decimal(38, scale)``.

    Returns:
        The values, and which of them have at most 38 digits; the others are 0.
    """
    zeros = np.zeros(rows, dtype=np.int64)
    _, digits = normalise(dict.fromkeys(range(4), zeros) | limbs, rows)
    low, high = digits[0] | (digits[1] << BITS), digits[2] | (digits[3] << BITS)
    is_valid = _is_sign_extension(digits[4:], np.where(high < 0, np.int64(-1), np.int64(0)))
    is_negative = high < 0
    size_low = np.where(is_negative, -low, low).view(np.uint64)
    size_high = np.where(is_negative, ~high + (low == 0), high).view(np.uint64)
    limit_low, limit_high = np.uint64(_DECIMAL_LIMIT & (2**64 - 1)), np.uint64(_DECIMAL_LIMIT >> 64)
    is_valid &= (size_high < limit_high) | ((size_high == limit_high) & (size_low < limit_low))
    words = np.zeros(2 * rows, dtype=np.int64)
    words[0::2], words[1::2] = np.where(is_valid, low, 0), np.where(is_valid, high, 0)
    array = pa.Array.from_buffers(pa.decimal128(38, scale), rows, [None, pa.py_buffer(words.tobytes())])
    return pl.Series(values=array, dtype=pl.Decimal(38, scale)), is_valid


def to_double(limbs: Limbs, rows: int, unit: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Round sums to the nearest double, ties to even.

    Args:
        limbs: the sums.
        rows: how many sums there are.
        unit: exponent of the limbs' unit, ``DOUBLE_UNIT`` or ``INTEGER_UNIT``.

    Returns:
        The values, and which of them are finite. A sum of zero is +0.0.
    """
    significand, exponent = rounded(limbs, rows)
    with np.errstate(over="ignore"):
        result = np.ldexp(significand, (exponent + unit).astype(np.int32))
    return result, np.isfinite(result)


def rounded(limbs: Limbs, rows: int) -> tuple[NDArray[np.float64], Int64s]:
    """Round sums to 53 bits, ties to even, whatever their size.

    Returns:
        Significands (whole numbers below 2^64) and exponents: a sum is ``significand * 2^exponent`` units. Zero is +0.0.
    """
    lowest, digits = normalise(limbs, rows)
    if not len(digits):
        return np.zeros(rows), np.zeros(rows, dtype=np.int64)
    is_negative = make_positive(digits)
    padded = np.concatenate([np.zeros((_GUARD_LIMBS, rows), dtype=np.int64), digits])
    is_set = padded != 0
    top = np.maximum(len(padded) - 1 - np.argmax(is_set[::-1], axis=0), _GUARD_LIMBS)
    column = np.arange(rows)
    first, second, third = (padded[top - k, column].astype(np.uint64) for k in range(3))
    has_more = np.logical_or.accumulate(is_set, axis=0)[top - 3, column]
    free = (BITS - np.frexp(first.astype(np.float64))[1]).astype(np.uint64)  # leading zeros of the top limb
    kept = BITS - free
    window = (((first << np.uint64(BITS)) | second) << free) | (third >> kept)
    has_more |= (third & ((np.uint64(1) << kept) - np.uint64(1))) != 0
    window |= has_more.astype(np.uint64)  # the sticky bit: eleven bits below the last one that is kept
    significand = window.astype(np.float64)
    exponent = BITS * (top - 2 - _GUARD_LIMBS + lowest) + kept.astype(np.int64)
    return np.where(is_negative, -significand, significand), exponent


def make_positive(digits: Int64s) -> NDArray[np.bool_]:
    """Replace normalised sums by their magnitudes, in place; return which were negative."""
    is_negative: NDArray[np.bool_] = digits[-1] < 0
    digits[:, is_negative] *= -1
    _carry(digits)
    return is_negative


def normalise(limbs: Limbs, rows: int) -> tuple[int, Int64s]:
    """Carry so that every digit is in ``[0, 2^32)`` but the last, which is signed.

    Returns:
        The index of the lowest digit, and the digits as (index, row).
    """
    if not limbs:
        return 0, np.zeros((0, rows), dtype=np.int64)
    lowest, highest = min(limbs), max(limbs)
    digits = np.zeros((highest - lowest + 2, rows), dtype=np.int64)
    for q, column in limbs.items():
        digits[q - lowest] = column
    _carry(digits)
    return lowest, digits


def _carry(digits: Int64s) -> None:
    for i in range(len(digits) - 1):
        digits[i + 1] += digits[i] >> BITS
        digits[i] &= MASK


def _is_sign_extension(rest: Int64s, extension: Int64s) -> NDArray[np.bool_]:
    """True where the digits above the result only repeat its sign."""
    is_valid: NDArray[np.bool_] = rest[-1] == extension
    for digit in rest[:-1]:
        is_valid &= digit == (extension & MASK)
    return is_valid
