"""Finding keys in sorted arrays and putting rows in order, in the access patterns that are fast. Numbers only.

Two things make these cheap: needles in ascending order walk through memory instead of jumping in it, and arrays that already consist
of a few sorted runs are merged, not sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.frames.clocks import I64, Bools

U64 = NDArray[np.uint64]

SORTED_FROM: Final = 1_000
"""Needles from which on sorting them first pays, measured with 100 to 1,000,000 rows to search."""


class Runs(NamedTuple):
    """Rows of some keys in a sorted array, by key.

    Attributes:
        keys: index of each key that is there, ascending.
        starts: its first row.
        stops: the row behind its last one.
    """

    keys: I64
    starts: I64
    stops: I64


def search(ascending: NDArray[Any], wanted: NDArray[Any], side: Literal["left", "right"] = "left") -> I64:
    """Do what ``np.searchsorted`` does, faster for many needles in no order."""
    if len(wanted) < SORTED_FROM:
        return np.searchsorted(ascending, wanted, side)
    order = np.argsort(wanted)
    places = np.empty(len(wanted), np.int64)
    places[order] = np.searchsorted(ascending, wanted[order], side)
    return places


def distinct(values: U64) -> U64:
    """Return the values in ascending order, each once (``np.unique`` without an inverse hashes them, which is slower)."""
    found = np.sort(values)
    is_first = np.ones(len(found), np.bool_)
    is_first[1:] = found[1:] != found[:-1]
    return found[is_first]


def stable_order(values: NDArray[np.uint64] | I64) -> I64:
    """Return what a stable ``argsort`` does, for hashes or for numbers from 0 on.

    Values are sorted several times as fast as indexes: what is sorted are the values with the rows' numbers behind them, instead of
    their own lower bits where there is no room. Hashes hardly ever differ in those only; where they do it is done again.
    """
    bits = np.uint64(len(values).bit_length())
    plain: U64 = values.view(np.uint64)
    has_room = bool(len(plain)) and int(plain.max()) >> (64 - int(bits)) == 0
    packed = plain << bits if has_room else (plain >> bits) << bits
    packed |= np.arange(len(plain), dtype=np.uint64)
    packed.sort()
    rows = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    if not has_room:
        found = plain[rows]
        if (found[1:] < found[:-1]).any():
            return np.argsort(plain, kind="stable")
    return rows


def time_order(times: I64) -> I64:
    """Return what a stable ``argsort`` does, for event times."""
    return stable_order(times - times.min()) if len(times) else np.empty(0, np.int64)


def pair_order(firsts: I64, hashes: U64, *, is_merge: bool) -> I64:
    """Return the rows by (first, hash), equal ones as they stand.

    Numbers are sorted several times as fast as pairs: what is sorted is the rank of the first with the upper bits of the hash behind it. Hashes
    that differ in the lower bits only are rare; where they are in the wrong order it is done again.

    Args:
        firsts: of which few are distinct.
        hashes: of the rows.
        is_merge: the rows are a few runs that have this order already.
    """
    values = np.unique(firsts)
    bits = len(values).bit_length()
    ranks = search(values, firsts).view(np.uint64)
    codes = (ranks << np.uint64(64 - bits)) | (hashes >> np.uint64(bits)) if bits else hashes
    rows = np.argsort(codes, kind="stable") if is_merge else stable_order(codes)
    own, found = firsts[rows], hashes[rows]
    if ((found[1:] < found[:-1]) & (own[1:] == own[:-1])).any():
        return np.lexsort((hashes, firsts))
    return rows


def are_shared(*columns: NDArray[Any]) -> Bools:
    """Say which rows agree in all columns, by which they are sorted, with the row before or behind them."""
    is_same = np.logical_and.reduce([column[1:] == column[:-1] for column in columns])
    shared: Bools = np.append(False, is_same) | np.append(is_same, False)
    return shared[: len(columns[0])]


def numbered(hashes: U64) -> tuple[U64, I64, I64]:
    """Return the distinct hashes in ascending order, the index of each row's hash among them, and the first row of each."""
    rows = stable_order(hashes)
    found = hashes[rows]
    is_first = np.ones(len(found), np.bool_)
    is_first[1:] = found[1:] != found[:-1]
    numbers = np.empty(len(found), np.int64)
    numbers[rows] = np.cumsum(is_first) - 1
    return found[is_first], numbers, rows[is_first]


def runs_of(own: U64, hashes: U64) -> Runs:
    """Find the rows of some keys; the cost is bounded by the smaller of both arrays.

    Args:
        own: hash of each row, ascending.
        hashes: of the keys, distinct and ascending, at least one.
    """
    if len(own) < len(hashes):
        places = np.minimum(np.searchsorted(hashes, own), len(hashes) - 1)
        rows = np.flatnonzero(hashes[places] == own)
        keys = places[rows]
        firsts = np.flatnonzero(np.append(keys[:1] >= 0, keys[1:] != keys[:-1]))
        starts = rows[firsts]
        return Runs(keys[firsts], starts, starts + np.diff(np.append(firsts, len(rows))))
    places = np.searchsorted(own, hashes)
    keys = np.flatnonzero(own[np.minimum(places, len(own) - 1)] == hashes)
    starts = places[keys]
    return Runs(keys, starts, _run_ends(own, starts))


def _run_ends(own: U64, starts: I64) -> I64:
    """Return where the run of equal values that begins at each start ends; most runs have one row."""
    stops = starts + 1
    longer = np.flatnonzero(stops < len(own))
    longer = longer[own[stops[longer]] == own[starts[longer]]]
    stops[longer] = np.searchsorted(own, own[starts[longer]], "right")
    return stops


def expand(starts: I64, stops: I64) -> I64:
    """Return all indexes of the ranges ``[start, stop)``, one range after the other."""
    sizes = stops - starts
    if (sizes == 1).all():
        return starts
    ends = np.cumsum(sizes)
    indexes: I64 = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + sizes, sizes)
    return indexes


def upper_bound(values: NDArray[Any], wanted: NDArray[Any], starts: I64, stops: I64) -> I64:
    """Return for each range ``[start, stop)`` of ``values``, ascending inside, the first index with a value above the wanted."""
    return _bound(lambda middle: values[middle] <= wanted, starts, stops)


def lower_bound(values: NDArray[Any], wanted: NDArray[Any], starts: I64, stops: I64) -> I64:
    """Return for each range ``[start, stop)`` of ``values``, ascending inside, the first index with a value not below the wanted."""
    return _bound(lambda middle: values[middle] < wanted, starts, stops)


def _bound(lies_behind: Callable[[I64], Bools], starts: I64, stops: I64) -> I64:
    """Bisect all ranges at once; what is looked for lies behind the places of which ``lies_behind`` says so."""
    low: I64 = starts.copy()
    high: I64 = stops.copy()
    while (active := low < high).any():
        middle = np.where(active, (low + high) >> 1, 0)
        goes_up = active & lies_behind(middle)
        low[goes_up] = middle[goes_up] + 1
        high = np.where(active & ~goes_up, middle, high)
    return low


class KeyOrder(NamedTuple):
    """Rows by (hash, time, position), or by (hash, position).

    Attributes:
        rows: the rows in order.
        is_same: whether each has the hash of the one before.
        times: event time of each; None where it orders nothing.
    """

    rows: I64
    is_same: Bools
    times: I64 | None


def key_order(hashes: U64, times: I64 | None, positions: I64, *, is_merge: bool) -> KeyOrder:
    """Order rows by hash, then by time and position.

    Args:
        hashes: of the rows.
        times: event times; None: they order nothing.
        positions: where rows come nearly always in ascending order.
        is_merge: the rows are a few runs that have this order already.
    """
    rows = np.argsort(hashes, kind="stable") if is_merge else stable_order(hashes)
    found = hashes[rows]
    is_same = np.zeros(len(rows), np.bool_)
    is_same[1:] = found[1:] == found[:-1]
    wrong = _misplaced(rows, is_same, times, positions)
    if len(wrong):
        groups = np.cumsum(~is_same) - 1
        is_wrong = np.zeros(int(groups[-1]) + 1, np.bool_)
        is_wrong[groups[wrong]] = True
        places = np.flatnonzero(is_wrong[groups])
        own = rows[places]
        within = (positions[own],) if times is None else (positions[own], times[own])
        rows[places] = own[np.lexsort((*within, groups[places]))]
    return KeyOrder(rows, is_same, None if times is None else times[rows])


def _misplaced(rows: I64, is_same: Bools, times: I64 | None, positions: I64) -> I64:
    """Return the places whose row belongs before the row of the same hash in front of it."""
    places = np.flatnonzero(is_same)
    own, before = rows[places], rows[places - 1]
    if times is None:
        return places[positions[own] < positions[before]]
    own_times, times_before = times[own], times[before]
    is_wrong = own_times < times_before
    tied = np.flatnonzero(own_times == times_before)
    is_wrong[tied] = positions[own[tied]] < positions[before[tied]]
    return places[is_wrong]
