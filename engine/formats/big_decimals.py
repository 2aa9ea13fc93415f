"""Decimals in the encoding of Avro and Kafka Connect: the digits as an integer in two's complement, highest byte first.

Whole columns at a time.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from engine.expressions.types.types import ColumnType

_WIDTH: Final = 16
_MOST: Final = 10**38
"""Decimals have at most 38 digits."""

_HIGH_MOST: Final = (_MOST >> 64) - 1
"""A number whose upper half is within this is certainly below the bound."""


def decimals_of(values: pl.Series, scale: int, declared: ColumnType) -> tuple[pl.Series, pl.Series | None]:
    """Return the decimals that bytes stand for.

    Args:
        values: bytes.
        scale: digits after the point.
        declared: the column's type: a decimal of this or another scale, or a number.

    Returns:
        The values, and a mask of the invalid ones: empty, or of more than 38 digits.
    """
    if values.dtype != pl.Binary:
        return values, None
    offsets, data = _buffers(values)
    sizes = np.diff(offsets)
    wide = _widened(offsets, data)
    high, is_null = wide.view(np.int64)[:, 1], values.is_null().to_numpy()
    doubtful = ~is_null & ((sizes == 0) | (sizes > _WIDTH) | (high > _HIGH_MOST) | (high < -_HIGH_MOST))
    bad = _repaired(values, wide, doubtful)
    valid = pa.array(~(is_null | bad)).buffers()[1]
    whole = pa.Array.from_buffers(pa.decimal128(38, scale), len(values), [valid, pa.py_buffer(wide)])
    series = pl.Series(values.name, whole)
    if declared.kind == "decimal" and declared.scale == scale:
        fitting = series.cast(declared.polars, strict=False)
        beyond = fitting.is_null().to_numpy() & ~is_null
        return fitting, pl.Series(beyond) if beyond.any() else None
    return series, pl.Series(bad) if bad.any() else None


def bytes_of(values: pl.Series, scale: int) -> list[bytes | None]:
    """Write decimals of this scale. Raises ValueError if one does not fit without rounding."""
    written: list[bytes | None] = []
    for value in values.to_list():
        if value is None:
            written.append(None)
            continue
        digits = Decimal(value).scaleb(scale)
        if digits != digits.to_integral_value():
            raise ValueError(f"{value} does not fit into a decimal of scale {scale} without rounding")
        number = int(digits)
        written.append(number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True))
    return written


def _buffers(values: pl.Series) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    array = values.to_arrow()
    whole = array.cast(pa.large_binary())
    _, offsets, data = whole.buffers()
    starts = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    return starts, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def _widened(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return each number in 16 bytes, lowest first, padded with its sign."""
    starts, ends = offsets[:-1], offsets[1:]
    if not len(data):
        return np.zeros((len(starts), _WIDTH), np.uint8)
    signs = np.where((ends > starts) & (data[np.minimum(starts, len(data) - 1)] >= 128), np.uint8(255), np.uint8(0))
    wide = np.repeat(signs[:, None], _WIDTH, axis=1)
    longest = min(int((ends - starts).max(initial=0)), _WIDTH)
    for place in range(longest):
        at = ends - 1 - place
        has = at >= starts
        wide[has, place] = data[at[has]]
    return np.ascontiguousarray(wide)


def _repaired(values: pl.Series, wide: npt.NDArray[np.uint8], doubtful: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Check the few numbers whose size decides nothing, one by one; return which are no decimals."""
    bad = np.zeros(len(values), bool)
    for place in np.flatnonzero(doubtful).tolist():
        digits = values[place]
        number = int.from_bytes(digits, "big", signed=True) if 0 < len(digits) <= 64 else _MOST
        if -_MOST < number < _MOST:
            wide[place] = np.frombuffer(number.to_bytes(_WIDTH, "little", signed=True), np.uint8)
        else:
            bad[place] = True
    return bad
