"""Key hashes: which task a record belongs to (without a seed), and where its key lies in the state of a checkpoint (with its seed).

The hash is part of checkpoints and of the log: it must never change between versions, platforms or column types of equal
values (``pl.Expr.hash`` gives no such promise). Without a seed: strings and bytes xxHash64; integers, booleans, dates, times and timestamps
the finaliser of splitmix64 over their 64-bit value, so ``int`` and ``bigint`` keys meet; doubles the same over their bits, with -0.0 as 0.0;
decimals xxHash64 of the text without trailing zeros. Several columns are chained, order matters; so are the fields of a struct and, by
their position, the elements of an array, with a number of its own for a null among them. Maps are no keys: their entries have no order.

Who knows the hash can make keys that share one, which costs time where they meet (``engine.state.sorted.keys`` tells them apart). So a
checkpoint has a random seed. It goes into the values before they are mixed and into the factor of the chain, so a guess fits with a
probability of about 2⁻⁶³, and into XXH3 for texts: of xxHash64 there are texts that meet under every other seed.

A single column of at most 64 bits is mixed by a bijection, under every seed: ``tells_keys`` rests on that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl
import polars_hash  # noqa: F401 - registers the `nchash` namespace

from engine.frames.frames import KEY_HASH

HASH_OF_NOTHING: Final = 0
"""The hash of a key without columns: everything meets in one task."""

_GOLDEN: Final = 0x9E3779B97F4A7C15

_STRUCT: Final = 0x2545F4914F6CDD1D
_NULL_INSIDE: Final = 0x94D049BB133111EB
"""What the fields of a struct are chained to, and what stands for a null among fields or elements. Any number would do, but always the same."""

U64 = np.ndarray[tuple[int], np.dtype[np.uint64]]


@dataclass(frozen=True, slots=True)
class KeyHash:
    """The hash of a checkpoint's keys.

    Attributes:
        seed: 64 bits; 0 is the hash of the log and of what is not kept.
    """

    seed: int = 0

    def of(self, frame: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
        """Hash key columns row by row.

        Returns:
            ``_key_hash`` (UInt64), null where any key column is null (T6).
        """
        if not columns:
            return pl.Series(KEY_HASH, np.full(frame.height, HASH_OF_NOTHING, np.uint64))
        parts = [self._of_column(frame.get_column(name), place) for place, name in enumerate(columns)]
        if len(parts) == 1:
            return parts[0].alias(KEY_HASH)
        factor = np.uint64(self._secret(0) | 1 if self.seed else _GOLDEN)
        combined = parts[0].fill_null(0).to_numpy()
        is_null = parts[0].is_null()
        for part in parts[1:]:
            combined = _finalise(combined * factor + part.fill_null(0).to_numpy())
            is_null = is_null | part.is_null()
        hashes = pl.Series(KEY_HASH, combined)
        return hashes.set(is_null, None) if is_null.any() else hashes

    def _of_column(self, values: pl.Series, place: int) -> pl.Series:
        """Hash one column; null stays null."""
        if values.dtype in (pl.String, pl.Binary):
            return self._of_text(values, place)
        if isinstance(values.dtype, pl.Struct | pl.List):
            hashes = self._of_struct(values, place) if isinstance(values.dtype, pl.Struct) else self._of_array(values, place)
            return hashes.set(values.is_null(), None) if values.null_count() else hashes
        if values.dtype.is_decimal():
            text = values.cast(pl.String)
            digits = text if not values.dtype.scale else text.str.strip_chars_end("0").str.strip_chars_end(".")  # type: ignore[attr-defined]
            return self._of_text(digits, place)
        if values.dtype.is_float():
            bits = (values.cast(pl.Float64).fill_null(0).to_numpy() + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
        elif values.dtype.is_integer() or values.dtype.is_temporal() or values.dtype == pl.Boolean:
            bits = values.cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64)
        else:
            raise TypeError(f"a key column cannot be of type {values.dtype}")
        mixed = _finalise(bits ^ np.uint64(self._secret(2 * place + 1)) if self.seed else bits)
        hashes = pl.Series(values.name, mixed)
        return hashes.set(values.is_null(), None) if values.null_count() else hashes

    def _of_struct(self, values: pl.Series, place: int) -> pl.Series:
        """Chain the hashes of the fields."""
        combined = np.full(len(values), _STRUCT, np.uint64)
        for field in values.struct.fields:
            hashes = self._of_column(values.struct.field(field), place).fill_null(_NULL_INSIDE)
            combined = _finalise(combined * np.uint64(_GOLDEN) + hashes.to_numpy())
        return pl.Series(values.name, combined)

    def _of_array(self, values: pl.Series, place: int) -> pl.Series:
        """Add up the hashes of the elements, each mixed with its position."""
        sizes = values.list.len().fill_null(0).to_numpy().astype(np.uint64)
        inside = values.list.explode(keep_nulls=False, empty_as_null=False)
        ends = np.cumsum(sizes)
        positions = np.arange(len(inside), dtype=np.uint64) - np.repeat(ends - sizes, sizes.astype(np.int64))
        hashes = self._of_column(inside, place).fill_null(_NULL_INSIDE).to_numpy()
        mixed = _finalise(hashes + (positions + np.uint64(1)) * np.uint64(_GOLDEN))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed)])
        ends = ends.astype(np.int64)
        totals = sums[ends] - sums[ends - sizes.astype(np.int64)]
        return pl.Series(values.name, _finalise(totals ^ sizes))

    def _of_text(self, values: pl.Series, place: int) -> pl.Series:
        return values.to_frame().select(_text_hash(self._secret(2 * place + 1) if self.seed else None)).to_series()

    def _secret(self, number: int) -> int:
        """Return one of the numbers that follow from the seed, which tell nothing of each other."""
        return int.from_bytes(hashlib.blake2b(number.to_bytes(8), key=self.seed.to_bytes(8), digest_size=8).digest())


@lru_cache(maxsize=4_096)
def _text_hash(secret: int | None) -> pl.Expr:
    """Return the hash of a text under one of a seed's numbers; None: without. Of a few rows making it costs as much as hashing them (90 µs)."""
    text = pl.first().nchash  # type: ignore[attr-defined]
    hashed: pl.Expr = text.xxhash64() if secret is None else text.xxh3_64(seed=secret)
    return hashed


UNSEEDED: Final = KeyHash()


def key_hash(frame: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Hash key columns row by row without a seed; see ``KeyHash.of``."""
    return UNSEEDED.of(frame, columns)


def _finalise(bits: U64) -> U64:
    """Return the finaliser of splitmix64 (Steele, Lea, Flood 2014) of every value."""
    mixed = bits + np.uint64(_GOLDEN)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
