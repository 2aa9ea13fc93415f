"""Whole columns read from places in a buffer, eight bytes at a time: compared with a literal, read as digits, returned as texts.

Places are arrays of byte positions. This module does not know the meaning of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

MAX_DIGITS: Final = 18
"""A number with this many digits always fits into 64 bits with its sign."""

_WORD: Final = 8
MARGIN: Final = 16
"""Bytes on both sides, so that a word can be loaded next to every place."""

_KEPT: Final = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)
"""By a number of bytes: the mask of a word's first bytes; words are read with the first byte lowest."""

_INLINE: Final = 12
"""Arrow keeps texts up to this size in the view itself."""

_ZEROS, _TOO_GREAT, _HIGH = (np.uint64(int(2 * text * 4, 16)) for text in ("30", "76", "80"))
_PAIRS, _UPPER, _LOWER = np.uint64(0x000000FF000000FF), np.uint64(0x000F424000000064), np.uint64(0x0000271000000001)
_MINUS, _ZERO = 45, 48


class ByteWords:
    """A buffer, and reads at places of it.

    Args:
        data: at most 2 GB.
        has_margins: no place is nearer to either end than ``MARGIN``. Otherwise the data is copied, with some bytes around it.
    """

    def __init__(self, data: bytes, *, has_margins: bool = False) -> None:
        padded = np.frombuffer(data, np.uint8)
        self._before = 0 if has_margins else MARGIN
        if not has_margins:
            padded = np.zeros(len(data) + 2 * MARGIN, np.uint8)
            padded[MARGIN:-MARGIN] = np.frombuffer(data, np.uint8)
        self._padded = padded
        self._bytes = padded[self._before :]
        self._words: U64 = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded.data, strides=(1,))

    @classmethod
    def of_lines(cls, data: bytes, starts: I64, ends: I64) -> ByteWords:
        """Return data in which every place is inside of lines; at least one line."""
        return cls(data, has_margins=bool(starts[0] >= MARGIN and len(data) - ends[-1] >= MARGIN))

    def is_at(self, literal: bytes, places: I64) -> bool:
        """Whether a literal is at every one of these places. Bytes after the end of the data equal nothing but NUL."""
        return all(not (self._masked(start, part, places) != _word(part)).any() for start, part in _parts(literal))

    def are_at(self, literal: bytes, places: I64) -> Mask:
        """Return which of these places have a literal; no place is nearer to the end of the data than the literal's length."""
        found: Mask = np.ones(len(places), np.bool_)
        for start, part in _parts(literal):
            found &= self._masked(start, part, places) == _word(part)
        return found

    def _masked(self, start: int, part: bytes, places: I64) -> U64:
        """Return the bytes that a part of a literal is compared with."""
        words = self._load(places + start)
        if len(part) < _WORD:
            words &= _KEPT[len(part)]
        return words

    def is_word(self, word: bytes, starts: I64, ends: I64) -> Mask:
        """Return where ``[start, end)`` is a given word of at most 8 bytes."""
        found = self._load(starts)
        found &= _KEPT[len(word)]
        is_word: Mask = (found == np.uint64(int.from_bytes(word, "little"))) & (ends - starts == len(word))
        return is_word

    def are_natural(self, starts: I64, ends: I64) -> bool:
        """Whether each of these ranges of digits is a number: not empty, and without a leading zero."""
        sizes = ends - starts
        return bool(((sizes == 1) | ((sizes > 1) & (self._bytes[starts] != _ZERO))).all())

    def integers(self, starts: I64, ends: I64, *, are_digits: bool = False) -> tuple[I64, Mask | None]:
        """Read whole numbers as JSON writes them.

        Args:
            starts: where they begin.
            ends: where they end.
            are_digits: the ranges have only digits.

        Returns:
            The numbers, and a mask of ranges that are no number or have more than ``MAX_DIGITS``; None if all are numbers.
        """
        first = self._bytes[starts]
        is_negative = first == _MINUS
        if has_negative := not are_digits and bool(is_negative.any()):
            starts = starts + is_negative
            first = self._bytes[starts]
        sizes = ends - starts
        bad = (sizes < 1) | (sizes > MAX_DIGITS) | ((first == _ZERO) & (sizes > 1))
        total: I64 = np.zeros(len(starts), np.int64)
        faults: U64 | None = None if are_digits else np.zeros(len(starts), np.uint64)
        most = min(int(sizes.max(initial=0)), MAX_DIGITS)
        for place in range(0, most, _WORD):
            words = self._digits(ends - place, sizes - place, faults)
            total += words * 10**place if place else words
        if faults is not None:
            bad |= faults != 0
        if has_negative:
            np.negative(total, out=total, where=is_negative)
        return total, bad if bad.any() else None

    def _digits(self, ends: I64, sizes: I64, faults: U64 | None) -> I64:
        """Read up to the last eight digits; mark other bytes, if there can be any."""
        words = self._load(ends - _WORD)
        words ^= _ZEROS
        absent = (np.uint64(_WORD) - np.clip(sizes, 0, _WORD).astype(np.uint64)) * np.uint64(8)
        words >>= absent
        words <<= absent
        if faults is not None:
            faults |= ((words + _TOO_GREAT) | words) & _HIGH
        words = words * np.uint64(10) + (words >> np.uint64(8))
        low = (words & _PAIRS) * _UPPER
        words >>= np.uint64(16)
        words &= _PAIRS
        words *= _LOWER
        words += low
        words >>= np.uint64(32)
        return words.view(np.int64)

    def texts(self, starts: I64, ends: I64, is_null: Mask | None = None) -> pl.Series:
        """Return ``[start, end)`` as texts, which are UTF-8. Long ones stay in the buffer."""
        sizes = (ends - starts).astype(np.uint64)
        head, tail = self._load(starts), self._load(starts + _WORD)
        views = np.empty((len(starts), 2), np.uint64)
        half = np.uint64(32)
        views[:, 0] = sizes | ((head & _KEPT[np.minimum(sizes, 4)]) << half)
        inline = ((head >> half) | (tail << half)) & _KEPT[np.minimum(sizes - np.minimum(sizes, 4), _WORD)]
        views[:, 1] = np.where(sizes <= _INLINE, inline, (starts + self._before).astype(np.uint64) << half)
        valid = None if is_null is None else pa.array(~is_null).buffers()[1]
        array = pa.Array.from_buffers(pa.string_view(), len(starts), [valid, pa.py_buffer(views), pa.py_buffer(self._padded)])
        return cast("pl.Series", pl.from_arrow(array))

    def _load(self, places: I64) -> U64:
        """Return the eight bytes from each place on; places may be up to sixteen bytes before the data."""
        return self._words[places + self._before if self._before else places]


def _parts(literal: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield a literal word by word, each with its place; the last word of a long one overlaps the one before."""
    for start in range(0, len(literal), _WORD):
        part = literal[start : start + _WORD]
        yield (start, part) if len(part) == _WORD or len(literal) < _WORD else (len(literal) - _WORD, literal[-_WORD:])


def _word(part: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(part, "little"))
