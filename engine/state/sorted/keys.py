"""Keys distinguished by their values where they share a 64-bit hash: numbers for the keys that a batch concerns.

State is sorted and searched by hash. A hash may be that of several keys, so what was found by it is compared with the key's columns here.
Keys of one hash are as good as never there, and then this costs one comparison of columns: the exact way, in Python, is for the rows of such
hashes only. A hash of one column of at most 64 bits is a bijection (``engine.frames.hashing``): where it tells the keys, nothing is compared.

A null equals every key: null keys are never looked up (T6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from engine.frames.clocks import I64, Bools
from engine.frames.frames import values_taken
from engine.state.sorted.sorted_search import U64, numbered, search

NO_KEY: Final = -1
"""Number of a row whose key is not among those asked for."""

_NOTHING: Final = np.empty(0, np.int64)


def tells_keys(types: Sequence[pl.DataType]) -> bool:
    """Say whether two keys with columns of these types have the same hash only if they are equal."""
    if len(types) != 1:
        return not types
    return types[0].is_integer() or types[0].is_float() or types[0].is_temporal() or types[0] == pl.Boolean()


@dataclass(frozen=True, slots=True)
class Keys:
    """Distinct keys by hash. A key's number is its place.

    Attributes:
        hashes: of each, ascending; keys that share a hash stand together.
        columns: values of each; none where the hash tells the keys.
    """

    hashes: U64
    columns: tuple[pl.Series, ...] = ()

    @staticmethod
    def of(hashes: U64, columns: Sequence[pl.Series]) -> tuple[Keys, I64]:
        """Return the distinct keys of some rows, and the number of each row's key.

        Args:
            hashes: of the rows.
            columns: the key's columns in these rows.
        """
        found, numbers, firsts = numbered(hashes)
        if tells_keys([column.dtype for column in columns]):
            return Keys(found), numbers
        keys = Keys(found, _gathered(columns, _whole(firsts, numbers, columns)))
        others = keys.differing(numbers, columns) if len(found) < len(hashes) else _NOTHING
        return _split(hashes, columns, numbers, others) if len(others) else (keys, numbers)

    @property
    def are_shared(self) -> Bools:
        """Whether each key's hash is another one's too."""
        is_shared = np.zeros(len(self.hashes), np.bool_)
        is_same = self.hashes[1:] == self.hashes[:-1]
        is_shared[1:] |= is_same
        is_shared[:-1] |= is_same
        return is_shared

    def differing(self, numbers: I64, columns: Sequence[pl.Series]) -> I64:
        """Return the rows whose key has not the values of the key with that number."""
        if not self.columns or not len(numbers):
            return _NOTHING
        return np.flatnonzero(_differ(_gathered(self.columns, numbers), columns, len(numbers)))

    def numbers(self, hashes: U64, columns: Sequence[pl.Series]) -> I64:
        """Return the number of each row's key, ``NO_KEY`` where it is none of these."""
        if not len(self.hashes):
            return np.full(len(hashes), NO_KEY)
        is_sorted = bool((hashes[1:] >= hashes[:-1]).all())
        found = np.searchsorted(self.hashes, hashes) if is_sorted else search(self.hashes, hashes)
        places = np.minimum(found, len(self.hashes) - 1)
        is_found = self.hashes[places] == hashes
        if is_found.all():
            return self.numbers_of(places, columns)
        own = np.flatnonzero(is_found)
        numbers = np.full(len(hashes), NO_KEY)
        numbers[own] = self.numbers_of(places[own], _gathered(columns, own) if self.columns else ())
        return numbers

    def numbers_of(self, firsts: I64, columns: Sequence[pl.Series]) -> I64:
        """Return the number of each row's key, ``NO_KEY`` where it is none of these.

        Args:
            firsts: number of the first key with the row's hash.
            columns: the key's columns in the rows.
        """
        others = self.differing(firsts, columns)
        if not len(others):
            return firsts
        asked = np.flatnonzero(np.isin(self.hashes, self.hashes[firsts[others]]))
        known = dict(zip(_values(self.columns, asked, self.hashes[asked]), asked.tolist(), strict=True))
        numbers = firsts.copy()
        numbers[others] = [known.get(value, NO_KEY) for value in _values(columns, others, self.hashes[firsts[others]])]
        return numbers


def different_keys(columns: Sequence[pl.Series], left: I64, right: I64) -> Bools:
    """Say where the keys of rows that have one hash, at ``left`` and at ``right``, are not equal."""
    if not len(left) or tells_keys([column.dtype for column in columns]):
        return np.zeros(len(left), np.bool_)
    return _differ(_gathered(columns, left), _gathered(columns, right), len(left))


def layers(hashes: Sequence[U64], columns: Sequence[pl.Series]) -> I64:
    """Spread rows over layers in each of which equal hashes mean equal keys; for rows that have keys of one hash.

    Args:
        hashes: of the rows, one or several that together stand for the key.
        columns: the key's columns in the rows.
    """
    runs = zip(*(each.tolist() for each in hashes), strict=True)
    values = zip(*(column.to_list() for column in columns), strict=True)
    known: dict[Any, dict[Any, int]] = {}
    return np.array([_place(known.setdefault(run, {}), value) for run, value in zip(runs, values, strict=True)])


def united(first: pl.Series, second: pl.Series) -> pl.Series:
    """Put two sides' values of one key column into one; their types differ at most in the width of whole numbers."""
    if first.dtype != second.dtype:
        first, second = first.cast(pl.Int64), second.cast(pl.Int64)
    return pl.concat([first, second.alias(first.name)])


def _split(hashes: U64, columns: Sequence[pl.Series], numbers: I64, others: I64) -> tuple[Keys, I64]:
    """Give keys that share a hash numbers of their own; ``others``: rows whose key is not that of the first row with its hash."""
    rows = np.flatnonzero(np.isin(numbers, numbers[others]))
    known: dict[int, dict[Any, int]] = {}
    places = np.zeros(len(numbers), np.int64)
    values = zip(*(values_taken(column, rows).to_list() for column in columns), strict=True)
    places[rows] = [
        _place(known.setdefault(number, {}), value) for number, value in zip(numbers[rows].tolist(), values, strict=True)
    ]
    more = np.zeros(int(numbers.max()) + 1, np.int64)
    np.maximum.at(more, numbers[rows], places[rows])
    numbers = numbers + (np.cumsum(more) - more)[numbers] + places
    firsts = np.unique(numbers, return_index=True)[1]
    return Keys(hashes[firsts], _gathered(columns, _whole(firsts, numbers, columns))), numbers


def _whole(firsts: I64, numbers: I64, columns: Sequence[pl.Series]) -> I64:
    """Return a row of each number, one without a null where there is any: what has one would pass for every key of its hash."""
    is_partial = np.zeros(len(numbers), np.bool_)
    for column in columns:
        if column.null_count():
            is_partial |= column.is_null().to_numpy()
    if not is_partial[firsts].any():
        return firsts
    rows = np.flatnonzero(~is_partial)[::-1]
    chosen = firsts.copy()
    chosen[numbers[rows]] = rows
    return chosen


def _place(known: dict[Any, int], value: tuple[Any, ...]) -> int:
    """Return the place of a key among those of its hash; what has a null is taken for the first one."""
    return 0 if None in value else known.setdefault(_plain(value), len(known))


def _values(columns: Sequence[pl.Series], rows: I64, hashes: U64) -> list[Any]:
    """Return some rows' hashes and keys as values that can be looked up."""
    keys = zip(*(values_taken(column, rows).to_list() for column in columns), strict=True)
    return [(own, _plain(key)) for own, key in zip(hashes.tolist(), keys, strict=True)]


def _plain(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a key that can be looked up: a NaN, which Python finds equal to nothing, as a text, and nested values as tuples."""
    return tuple(_frozen(part) for part in value)


def _frozen(part: Any) -> Any:
    if isinstance(part, list | dict):
        return tuple(_frozen(inner) for inner in (part if isinstance(part, list) else part.values()))
    return "nan" if part != part else part


def _differ(left: Sequence[pl.Series], right: Sequence[pl.Series], rows: int) -> Bools:
    """Say in which rows any column differs; a null differs from nothing."""
    is_other = np.zeros(rows, np.bool_)
    for own, other in zip(left, right, strict=True):
        differs = own.ne(other)
        if differs.any():
            is_other |= differs.fill_null(value=False).to_numpy()
    return is_other


def _gathered(columns: Sequence[pl.Series], rows: I64) -> tuple[pl.Series, ...]:
    return tuple(values_taken(column, rows) for column in columns)
