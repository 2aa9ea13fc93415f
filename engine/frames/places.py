"""The place of a row in the one order in which a query takes its inputs (T2), and the order of rows that stand at one place (P6).

``_pos`` is the position of the record that caused the row, over all lanes and tasks. ``_rank`` orders the rows of one position; null, it stands
before all others: a record as it was read. It is bytes that sort as they are:

- *levels*, 5 bytes each: where a record makes several rows, each further one has a place of its own right behind (T1b). A level says which
  further row; the next level which one of the rows made of that row. Rows with the same position and the same levels stand at one place.
- a zero byte, then what orders the rows of one place: numbers, the most important one first, and last the place and rank of the row that
  arrived (``arrivals``).
- a last byte. Its lowest bit says whether time released the row: what is made of such a row stands at its place, however many rows it
  becomes (T1b), or the second one would be judged by a time that has passed it (P15). The other bits count levels of zero behind those that are
  written: of how many operators the row is the first of several. So what a later one makes of it stands before its second row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.frames.clocks import I64, Bools
from engine.frames.frames import POS, RANK, values_taken, with_series

_LEVEL: Final = 1
"""Begins each level."""

_LEVEL_BYTES: Final = 5

_RELEASED: Final = 1
"""In the last byte of a rank: time released the row."""

_ZERO_LEVEL: Final = 2
"""What each level of zero adds to the last byte."""

_SIGN: Final = np.uint64(1 << 63)

Bytes = NDArray[np.uint8]

Part = I64 | Bools | Bytes | int | pl.Series
"""What a rank is made of: 8 bytes of an integer of each row, one of a truth value, of a byte or of a number that all have, bytes as they are."""


def place_order(frame: pl.DataFrame) -> I64:
    """Return the rows' indices by position and rank; what is equal in both stays as it stands."""
    positions = frame.get_column(POS).to_numpy()
    order: I64 = np.argsort(positions, kind="stable")
    if frame.get_column(RANK).null_count() == frame.height:
        return order
    ascending = positions[order]
    is_same = np.zeros(len(order) + 1, np.bool_)
    is_same[1:-1] = ascending[1:] == ascending[:-1]
    tied = np.flatnonzero(is_same[1:] | is_same[:-1])
    if len(tied):
        rows = frame.select(POS, RANK)[order[tied]].with_row_index("_row").sort(POS, RANK, nulls_last=False, maintain_order=True)
        order[tied] = order[tied][rows.get_column("_row").to_numpy()]
    return order


def begins_place(frame: pl.DataFrame) -> Bools:
    """Say which rows, in the order of their places, are the first ones at theirs."""
    positions = frame.get_column(POS).to_numpy()
    begins = np.ones(len(positions), np.bool_)
    begins[1:] = positions[1:] != positions[:-1]
    behind = np.flatnonzero(~begins)
    if len(behind) and is_further(frame.get_column(RANK)) is not None:
        own = levels(frame.get_column(RANK))
        begins[behind] = (own[behind] != own[behind - 1]).to_numpy()
    return begins


def is_further(ranks: pl.Series) -> Bools | None:
    """Say which rows stand at a place behind that of their record; None where none does."""
    if ranks.null_count() == len(ranks):
        return None
    further: Bools = ranks.bin.starts_with(bytes([_LEVEL])).fill_null(value=False).to_numpy()
    return further if further.any() else None


def unranked(rows: int) -> pl.Series:
    """Return the ranks of records as they were read."""
    return pl.Series(RANK, [None], dtype=pl.Binary).new_from_index(0, rows)


def no_levels(rows: int) -> pl.Series:
    """Return the levels of rows that stand at places of records."""
    return pl.Series([b""], dtype=pl.Binary).new_from_index(0, rows)


def levels(ranks: pl.Series) -> pl.Series:
    """Return the levels of each rank, empty where there are none."""
    if is_further(ranks) is None:
        return no_levels(len(ranks))
    sizes = np.zeros(len(ranks), np.int64)
    rest = ranks.fill_null(b"")
    while (further := is_further(rest)) is not None:
        sizes += further * _LEVEL_BYTES
        rest = _parts(ranks.fill_null(b""), sizes)[1]
    return _parts(ranks.fill_null(b""), sizes)[0]


def are_released(ranks: pl.Series) -> Bools:
    """Say which rows time released: these share a place."""
    released: Bools = _ends(ranks) & _RELEASED > 0
    return released


def apart(frame: pl.DataFrame, ordinals: I64) -> pl.DataFrame:
    """Give the further rows that a record makes places of their own (T1b). What time released stays at one place.

    Args:
        frame: rows with the position and rank of the row that made them; those of one follow each other.
        ordinals: which of that row's results each is, from 0 on.
    """
    if not ordinals.any():
        return frame
    ranks = frame.get_column(RANK)
    is_first = (ordinals == 0) & np.append(ordinals[1:] > 0, False)
    if ranks.null_count() == len(ranks):
        return with_series(frame, _of_records(ordinals, is_first).alias(RANK))
    ends = _ends(ranks)
    is_own = ends & _RELEASED == 0
    further, firsts = np.flatnonzero(is_own & (ordinals > 0)), np.flatnonzero(is_own & is_first)
    if not len(further):
        return frame
    own = ranks[further].fill_null(b"\0\0")
    before = levels(own)
    behind = _parts(own, before.bin.size().cast(pl.Int64).to_numpy())[1]
    zeros = pl.Series([bytes([_LEVEL, 0, 0, 0, 0]) * count for count in range(1 + ends.max() // _ZERO_LEVEL)], dtype=pl.Binary)
    skipped = zeros[pl.Series(ends[further] // _ZERO_LEVEL)]
    level = _fixed([np.full(len(further), _LEVEL, np.uint8), ordinals[further].astype(">u4")])
    moved = joined_bytes(before, skipped, level, _ended(behind, np.zeros(len(further), np.uint8)))
    marked = _ended(ranks[firsts].fill_null(b"\0\0"), ends[firsts] + np.uint8(_ZERO_LEVEL))
    return with_series(frame, ranks.scatter(further, moved).scatter(firsts, marked).alias(RANK))


def _of_records(ordinals: I64, is_first: Bools) -> pl.Series:
    """Return what ``apart`` gives rows of records as they were read: few different ranks, taken for all rows at once."""
    further = np.arange(1, int(ordinals.max()) + 1)
    flags = np.zeros((2, len(further)), np.uint8)
    apart_ranks = _fixed([np.full(len(further), _LEVEL, np.uint8), further.astype(">u4"), *flags])
    known = pl.concat([unranked(1), pl.Series([bytes([0, _ZERO_LEVEL])], dtype=pl.Binary), apart_ranks])
    return values_taken(known, np.where(ordinals > 0, ordinals + 1, is_first))


def ordinals(causes: I64) -> I64:
    """Return which of its cause's rows each one is, from 0 on.

    Args:
        causes: what made each row; those of one cause follow each other.
    """
    is_first = np.append(True, causes[1:] != causes[:-1])[: len(causes)]
    rows = np.arange(len(causes))
    return rows - np.maximum.accumulate(np.where(is_first, rows, 0))


def ranked(
    frame: pl.DataFrame, *parts: Part, within: pl.Series | None = None, is_released: Bools | bool | None = None
) -> pl.DataFrame:
    """Give rows their order at their places.

    Args:
        frame: rows with their positions, and the ranks they had.
        parts: what decides, the most important first.
        within: the levels of their places; None: they are places of records.
        is_released: whether time releases them; None: where they are at places of records.
    """
    if is_released is None:
        is_released = within is None
    ends: int | Bytes = _RELEASED
    if is_released is not True:
        own = _ends(frame.get_column(RANK))
        ends = own if is_released is False else np.where(is_released, _RELEASED, own)
    rank = packed(frame.height, 0, *parts, ends)
    if within is not None and int(within.bin.size().sum()):
        rank = joined_bytes(within, rank)
    return with_series(frame, rank.alias(RANK))


def arrival(frame: pl.DataFrame) -> tuple[Part, ...]:
    """Return when each row arrives at an operator, as the last parts of a rank: its place, and its rank where one is there."""
    ranks = frame.get_column(RANK)
    positions = frame.get_column(POS).to_numpy()
    return (positions,) if ranks.null_count() == frame.height else (positions, ranks)


def arrivals(frame: pl.DataFrame) -> pl.Series:
    """Return the place and rank of each row as bytes that sort like them: when it arrives at an operator."""
    return packed(frame.height, *arrival(frame))


def packed(rows: int, *parts: Part) -> pl.Series:
    """Put columns into one of bytes that sort like them, row by row.

    Args:
        rows: how many.
        parts: see ``Part``.
    """
    joined: list[pl.Series] = []
    fixed: list[NDArray[Any]] = []
    for part in parts:
        if isinstance(part, pl.Series):
            if part.null_count() == rows:
                continue
            joined += [_fixed(fixed), part] if fixed else [part]
            fixed = []
        elif isinstance(part, int):
            fixed.append(np.full(rows, part, np.uint8))
        elif part.dtype in (np.bool_, np.uint8):
            fixed.append(part.view(np.uint8))
        else:
            fixed.append((part.astype(np.int64).view(np.uint64) ^ _SIGN).astype(">u8"))
    if fixed:
        joined.append(_fixed(fixed))
    return joined[0] if len(joined) == 1 else joined_bytes(*joined)


def joined_bytes(*columns: pl.Series) -> pl.Series:
    """Put bytes one behind the other, row by row; null is nothing."""
    # With nulls skipped pyarrow 26 leaves rows out where all values are null.
    arrays = [column.fill_null(b"").to_arrow() for column in columns]
    separator = pa.scalar(b"", pa.large_binary())
    return pl.Series(pc.binary_join_element_wise(*arrays, separator), dtype=pl.Binary)


def _ends(ranks: pl.Series) -> Bytes:
    """Return the last byte of each rank, 0 for that of a record as it was read."""
    if ranks.null_count() == len(ranks):
        return np.zeros(len(ranks), np.uint8)
    ends: Bytes = ranks.bin.slice(-1).bin.reinterpret(dtype=pl.UInt8).fill_null(0).to_numpy()
    return ends


def _ended(ranks: pl.Series, ends: Bytes) -> pl.Series:
    """Put another last byte into each rank."""
    return joined_bytes(_parts(ranks, ranks.bin.size().cast(pl.Int64).to_numpy() - 1)[0], _fixed([ends]))


def _parts(values: pl.Series, sizes: I64) -> tuple[pl.Series, pl.Series]:
    """Return the first bytes of each value, and the others."""
    columns = pl.DataFrame({"value": values, "size": sizes})
    value, size = pl.col("value"), pl.col("size")
    split = columns.select(value.bin.head(size).alias("head"), value.bin.slice(size).alias("tail"))
    return split.get_column("head"), split.get_column("tail")


def _fixed(columns: Sequence[NDArray[Any]]) -> pl.Series:
    """Put arrays of bytes or big-endian numbers side by side, as one column of bytes of one length."""
    rows = len(columns[0])
    table = np.empty(rows, [(str(number), column.dtype) for number, column in enumerate(columns)])
    for number, column in enumerate(columns):
        table[str(number)] = column
    offsets = np.arange(0, (rows + 1) * table.itemsize, table.itemsize)
    return pl.Series(
        pa.LargeBinaryArray.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(table)])
    )
