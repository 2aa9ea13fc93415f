"""What is read off the frequencies of a group's values: the only one (``attr``), and percentiles. As in ``list_accumulators``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.expressions.types.types import ColumnType
from engine.frames.list_columns import Int64s, flat
from engine.operators.aggregation.accumulators.accumulators import Records, Results
from engine.operators.aggregation.accumulators.capacity import Room
from engine.operators.aggregation.accumulators.list_accumulators import Frequencies
from engine.state.sorted.running import Groups, codes_of

Doubles = NDArray[np.float64]

_CLASS_BITS: Final = 52 - 6
"""Bits of a double's mantissa that a class leaves out: there are 64 classes between a power of two and the next, and the middle of one is at
most 1/128 of its values away from each of them."""


class OnlyValue(Frequencies):
    """``attr``: the value that all records have. A null is a value, so values are kept in structs, which are never null."""

    def lift(self, records: Records) -> list[pl.Series]:
        return super().lift(records._replace(values=pl.DataFrame([records.values.alias("x")]).to_struct("x")))

    def results(self, partials: pl.DataFrame) -> Results:
        values, _, rows = self.condensed(partials)
        is_only = np.bincount(rows, minlength=partials.height) == 1
        places = np.full(partials.height, -1)
        places[rows] = np.arange(len(rows))
        return self._shown_at(values, np.where(is_only, places, -1))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        found = self.history(partials, groups)
        if found is None:
            return Results(pl.repeat(None, partials.height, dtype=self.type.polars, eager=True))
        counts = groups.sums(found.entries.appearances(partials.height))
        codes = groups.sums(found.entries.appearances(partials.height, found.code_of))  # where there is one, its own
        places = np.full(partials.height, -1)
        places[counts == 1] = found.holders[codes[counts == 1]]
        return self._shown_at(found.values, places)

    @staticmethod
    def _shown_at(values: pl.Series, places: Int64s) -> Results:
        return Results(values.struct.field("x").gather(pl.Series(places).set(pl.Series(places < 0), None)))


class Percentile(Frequencies):
    """``percentile``, ``median`` and ``approx_percentile``: how often each value, or each class of values, is there.

    Args:
        prefix: of its columns.
        result: type of the result.
        room: where the values are too many: then it is null.
        fraction: which part of the values lies below.
        is_approximate: classes are counted (``_class_of``), of which there is a bounded number.
        with_undo: values can be taken out again; then all are kept.
    """

    def __init__(
        self, prefix: str, result: ColumnType, room: Room, *, fraction: float, is_approximate: bool, with_undo: bool
    ) -> None:
        super().__init__(prefix, result, shown=room, with_undo=with_undo)
        self._room = room
        self._fraction = fraction
        self._numbers: Callable[[pl.Series], Doubles] = _middle_of if is_approximate else _double_of
        self._is_approximate = is_approximate
        self._is_bounded = not with_undo

    def lift(self, records: Records) -> list[pl.Series]:
        return super().lift(records._replace(values=_class_of(records.values)) if self._is_approximate else records)

    def results(self, partials: pl.DataFrame) -> Results:
        values, counts, rows = self.condensed(partials)
        sizes = np.zeros(partials.height, np.int64)
        np.add.at(sizes, rows, counts.to_numpy())
        totals = np.cumsum(counts.to_numpy())
        before = np.append([0], np.cumsum(sizes))[:-1]
        is_full = np.zeros(partials.height, np.bool_)
        if self._is_bounded:
            ends = np.cumsum(np.bincount(rows, minlength=partials.height))
            is_full = self._room.full(values, np.append([0], ends)[:-1], ends)
        numbers = self._numbers(values)
        return self._between(sizes, is_full, lambda ranks: _at(numbers, np.searchsorted(totals, before + ranks, "right")))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        values, rows = flat(partials[self._values])
        counts = flat(partials[self._counts]).values.to_numpy()
        added = np.zeros(partials.height, np.int64)
        np.add.at(added, rows, counts)
        is_full = np.zeros(partials.height, np.bool_)
        found = self.history(partials, groups) if self._is_bounded else None
        if found is not None:
            distinct = groups.sums(found.entries.appearances(partials.height))
            is_full = self._room.is_reached(distinct, np.zeros_like(distinct))
        codes = codes_of(values) - 1
        numbers = np.zeros(int(codes.max(initial=-1)) + 1)
        numbers[codes] = self._numbers(values)
        starts = np.searchsorted(rows, groups.firsts)
        ends = np.searchsorted(rows, np.arange(partials.height), "right")
        return self._between(groups.sums(added), is_full, lambda ranks: _at(numbers, ranked(codes, counts, starts, ends, ranks)))

    def _between(self, sizes: Int64s, is_full: NDArray[np.bool_], at: Callable[[Int64s], Doubles]) -> Results:
        """Read the two values around the percentile's place, ``at`` giving those of ranks from 0, and what lies between them."""
        places = self._fraction * np.maximum(sizes - 1, 0)
        below = np.floor(places).astype(np.int64)
        low, high = at(below), at(np.minimum(below + 1, np.maximum(sizes - 1, 0)))
        part = places - below
        values = np.where(low == high, low, low * (1 - part) + high * part)
        is_shown = (sizes > 0) & ~is_full
        shown = pl.Series(values) if is_shown.all() else pl.Series(values).set(pl.Series(~is_shown), None)
        return Results(shown, is_full=is_full if is_full.any() else None)


def ranked(codes: Int64s, counts: Int64s, starts: Int64s, ends: Int64s, ranks: Int64s) -> Int64s:
    """Return the code with a rank, from 0, among the elements of each range: a descent through a wavelet matrix.

    Args:
        codes: of all elements, from 0.
        counts: how often each element is there; negative where it goes. Of no code there may be less than none in a range.
        starts: where each range begins.
        ends: behind which it ends.
        ranks: what is asked for; below the sum of the range's counts, else the result means nothing.
    """
    found = np.zeros(len(ranks), np.int64)
    starts, ends, ranks = starts.copy(), ends.copy(), ranks.copy()
    for bit in reversed(range(int(codes.max(initial=0)).bit_length())):
        is_low = (codes >> bit) & 1 == 0
        low_before = np.append([0], np.cumsum(is_low))
        counted_before = np.append([0], np.cumsum(np.where(is_low, counts, 0)))
        low_counts = counted_before[ends] - counted_before[starts]
        goes_high = ranks >= low_counts
        ranks -= np.where(goes_high, low_counts, 0)
        found += goes_high.astype(np.int64) << bit
        lows = int(low_before[-1])
        starts = np.where(goes_high, lows + starts - low_before[starts], low_before[starts])
        ends = np.where(goes_high, lows + ends - low_before[ends], low_before[ends])
        order = np.argsort(~is_low, kind="stable")
        codes, counts = codes[order], counts[order]
    return found


def _at(numbers: Doubles, places: Int64s) -> Doubles:
    """Read numbers; where there is none the result means nothing."""
    return numbers[np.minimum(places, len(numbers) - 1)] if len(numbers) else np.zeros(len(places))


def _double_of(values: pl.Series) -> Doubles:
    return values.cast(pl.Float64).to_numpy()


def _class_of(values: pl.Series) -> pl.Series:
    """Return whole numbers in the order of the values, the same for all between a 64th of a power of two and the next."""
    doubles = values.cast(pl.Float64)
    bits = (doubles.fill_null(0.0).to_numpy() + 0.0).view(np.int64)
    size = (bits & ((1 << 63) - 1)) >> _CLASS_BITS
    return pl.Series(np.where(bits < 0, -size - 1, size)).set(doubles.is_null(), None)


def _middle_of(classes: pl.Series) -> Doubles:
    """Return the number in the middle of each class; of 0, which has one of its own with what is smaller than any normal double, 0."""
    codes = classes.to_numpy()
    is_negative = codes < 0
    size = np.where(is_negative, -codes - 1, codes)
    least, step = (size << _CLASS_BITS).view(np.float64), ((size + 1) << _CLASS_BITS).view(np.float64)
    middle = np.where(size == 0, 0.0, np.where(np.isfinite(step), least + (step - least) / 2, least))
    return np.where(is_negative, -middle, middle) + 0.0
