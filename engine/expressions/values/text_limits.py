"""How many bytes of texts lambdas may make for one record.

A lambda that gives a text of a megabyte for each of ten thousand elements would ask for ten gigabytes. What is behind the bound is NULL, and the
record is counted (``text_too_long``). Whether a value belongs depends on the values before it alone, however they are cut into steps.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from engine.expressions.limits import MAX_TEXT_BYTES
from engine.expressions.types.types import ColumnType
from engine.expressions.values.exploding import I64, Bools, Exploded, sizes_of


def holds_texts(kind: ColumnType) -> bool:
    """Whether values of a type are, or hold, strings or bytes."""
    return kind.kind in ("string", "bytes") or any(holds_texts(part) for part in kind.inner)


def text_bytes(column: pl.Series) -> I64:
    """Return how many bytes the strings and bytes in each value have."""
    return sizes_of(column, _bytes_of, 0)


class Room:
    """What may still be made for each record: ``MAX_TEXT_BYTES``, and as much as its elements hold."""

    def __init__(self, given: Exploded) -> None:
        self._left = MAX_TEXT_BYTES + text_bytes(given.lists)

    def is_left(self, rows: I64) -> Bools:
        """Return whether there is any for elements of these records."""
        return self._left[rows] > 0

    def takes(self, made: pl.Series, rows: I64) -> Bools:
        """Return which values there is room for, and take the room of all.

        Args:
            made: the next values, in the order of their elements.
            rows: which record each belongs to.
        """
        sizes = text_bytes(made)
        owners, firsts, counts = np.unique(rows, return_index=True, return_counts=True)
        before = np.cumsum(sizes) - sizes
        has_room: Bools = before - np.repeat(before[firsts], counts) < self._left[rows]
        if len(owners):
            self._left[owners] -= np.add.reduceat(sizes, firsts)
        return has_room


def is_cut(lists: pl.Series, made: pl.Series) -> pl.Series:
    """Return where lists that were made lack values that had no room: those before their last value fill it."""
    before_last = text_bytes(made) - text_bytes(made.list.last())
    return pl.Series(before_last >= MAX_TEXT_BYTES + text_bytes(lists))


def _bytes_of(column: pl.Series) -> I64:
    match column.dtype:
        case pl.String:
            found = column.str.len_bytes()
        case pl.Binary:
            found = column.bin.size()
        case _:
            return np.zeros(len(column), np.int64)
    return found.fill_null(0).to_numpy().astype(np.int64)
