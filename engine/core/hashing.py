"""Key hashes: which task a record belongs to, and where its key lies in an index.

The hash is part of checkpoints and of the log: it must never change between versions, platforms or column types of equal
values (``pl.Expr.hash`` gives no such promise). Strings and bytes: xxHash64. Integers, booleans, dates, times and timestamps:
the finaliser of splitmix64 over their 64-bit value, so ``int`` and ``bigint`` keys meet. Doubles: the same over their bits, with
-0.0 as 0.0. Decimals: xxHash64 of the text without trailing zeros. Several columns are chained, order matters.

Two keys out of n share a hash with probability n²/2⁶⁵: 3e-6 for ten million keys. Segment merges notice it (``InvariantBroken``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import polars_hash  # noqa: F401 - registers the `nchash` namespace

from engine.core.frames import KEY_HASH

HASH_OF_NOTHING = 0
"""The hash of a key without columns: everything meets in one task."""

U64 = np.ndarray[tuple[int], np.dtype[np.uint64]]


def key_hash(frame: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Hash key columns row by row.

    Returns:
        ``_key_hash`` (UInt64), null where any key column is null (T6).
    """
    if not columns:
        return pl.Series(KEY_HASH, np.full(frame.height, HASH_OF_NOTHING, np.uint64))
    parts = [_column_hash(frame.get_column(name)) for name in columns]
    if len(parts) == 1:
        return parts[0].alias(KEY_HASH)
    combined = parts[0].fill_null(0).to_numpy()
    is_null = parts[0].is_null()
    for part in parts[1:]:
        combined = _finalise(combined * np.uint64(0x9E3779B97F4A7C15) + part.fill_null(0).to_numpy())
        is_null = is_null | part.is_null()
    hashes = pl.Series(KEY_HASH, combined)
    return hashes.set(is_null, None) if is_null.any() else hashes


def _column_hash(values: pl.Series) -> pl.Series:
    """Hash one column; null stays null."""
    if values.dtype in (pl.String, pl.Binary):
        return _text_hash(values)
    if values.dtype.is_decimal():
        text = values.cast(pl.String)
        return _text_hash(text if not values.dtype.scale else text.str.strip_chars_end("0").str.strip_chars_end("."))  # type: ignore[attr-defined]
    if values.dtype.is_float():
        bits = (values.cast(pl.Float64).fill_null(0).to_numpy() + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    elif values.dtype.is_integer() or values.dtype.is_temporal() or values.dtype == pl.Boolean:
        bits = values.cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64)
    else:
        raise TypeError(f"a key column cannot be of type {values.dtype}")
    hashes = pl.Series(values.name, _finalise(bits))
    return hashes.set(values.is_null(), None) if values.null_count() else hashes


def _text_hash(values: pl.Series) -> pl.Series:
    return values.to_frame().select(pl.first().nchash.xxhash64()).to_series()  # type: ignore[attr-defined]


def _finalise(bits: U64) -> U64:
    """Return the finaliser of splitmix64 (Steele, Lea, Flood 2014) of every value."""
    mixed = bits + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
