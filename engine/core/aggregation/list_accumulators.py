"""Aggregates whose partials grow with their group: distinct values, collections, frequencies, texts.

Partials are list columns (see ``list_columns``). Merging joins lists; ``settle`` brings the joined ones into shape, and so do
``results``, so both take partials in any state. Lists are cut where their room ends (P12, ``room``). As in ``accumulators``; collections of
nothing are null, counts 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.core.aggregation.accumulators import Accumulator, Records, Results
from engine.core.aggregation.list_columns import Flat, Int64s, flat, lengths, lists_by_row, lists_of, null_where_empty, singletons
from engine.core.aggregation.room import Room
from engine.core.aggregation.running import Groups, codes_of
from engine.core.clocks import Bools
from engine.core.structures.segments import expand
from engine.definition.types import STRING, ColumnType


class ListAccumulator(Accumulator):
    """Partials that are lists."""

    def merge(self, column: pl.Expr) -> pl.Expr:
        return column.list.explode(keep_nulls=False, empty_as_null=False)


class DistinctCount(ListAccumulator):
    """``count(distinct x)``, exact: a partial is the list of its distinct values. Null where they are too many to be told apart."""

    def __init__(self, prefix: str, result: ColumnType, room: Room) -> None:
        super().__init__(prefix, result)
        self._name = f"{prefix}d"
        self._room = room

    def lift(self, records: Records) -> list[pl.Series]:
        return [singletons(records.values).alias(self._name)]

    def merge(self, column: pl.Expr) -> pl.Expr:
        return super().merge(column).unique(maintain_order=True)

    def settle(self, partials: pl.DataFrame) -> pl.DataFrame:
        lists = partials[self._name]
        if self._room.is_ample(lengths(lists)):
            return partials
        values, rows = flat(lists)
        is_kept = self._room.kept(values, rows)  # whichever are kept: they fill the room
        if is_kept.all():
            return partials
        return partials.with_columns(_cut(values, rows, is_kept, partials.height).alias(self._name))

    def results(self, partials: pl.DataFrame) -> Results:
        sizes = lengths(partials[self._name])
        if self._room.is_ample(sizes):
            return Results(pl.Series(sizes))
        ends = np.cumsum(sizes)
        return self._known(sizes, self._room.full(flat(partials[self._name]).values, ends - sizes, ends))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        values, rows = flat(partials[self._name])
        first_seen = _first_of_each(groups.ids[rows], codes_of(values))
        counts = groups.sums(np.bincount(rows[first_seen], minlength=partials.height).astype(np.int64))
        if self._room.is_ample(counts):
            return Results(pl.Series(counts))
        sizes = np.zeros(partials.height, np.int64)
        np.add.at(sizes, rows[first_seen], self._room.bytes_of(values)[first_seen])
        return self._known(counts, self._room.is_reached(counts, groups.sums(sizes)))

    @staticmethod
    def _known(counts: Int64s, is_full: Bools) -> Results:
        shown = pl.Series(counts)
        return Results(shown.set(pl.Series(is_full), None) if is_full.any() else shown, is_full=is_full)


class Frequencies(ListAccumulator):
    """How often each value is there, so that values can be taken out again: lists of distinct values and their counts.

    ``histogram`` shows them as a map from text to count, sorted by text; ``count(distinct x)`` over a table as their number.

    Args:
        prefix: of its columns.
        result: type of the result.
        shown: the room of the map; None: their number is shown.
        with_undo: values can be taken out again. Then all are kept, also those that the map has no room for.
    """

    def __init__(self, prefix: str, result: ColumnType, *, shown: Room | None, with_undo: bool) -> None:
        super().__init__(prefix, result)
        self._values, self._counts = f"{prefix}d", f"{prefix}c"
        self._shown = shown
        self._with_undo = with_undo

    def lift(self, records: Records) -> list[pl.Series]:
        counted = records.counted()
        counts = lists_of(pl.Series(counted[counted != 0]), (counted != 0).astype(np.int64))
        return [singletons(records.values).alias(self._values), counts.alias(self._counts)]

    def settle(self, partials: pl.DataFrame) -> pl.DataFrame:
        values, counts, rows = self._condensed(partials)
        if self._shown is not None and not self._with_undo:
            is_kept = self._shown.kept(values, rows)
            values, counts, rows = values.filter(pl.Series(is_kept)), counts.filter(pl.Series(is_kept)), rows[is_kept]
        own = [lists_by_row(each, rows, partials.height) for each in (values, counts)]
        return partials.with_columns(own[0].alias(self._values), own[1].alias(self._counts))

    def results(self, partials: pl.DataFrame) -> Results:
        values, counts, rows = self._condensed(partials)
        if self._shown is None:
            return Results(pl.Series(np.bincount(rows, minlength=partials.height).astype(np.int64)))
        return _maps(self._shown, values, counts, rows, partials.height)

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        values, rows = flat(partials[self._values])
        counts = flat(partials[self._counts]).values.to_numpy()
        if values.is_empty():
            nothing = np.zeros(partials.height, np.int64)
            return Results(pl.Series(nothing)) if self._shown is None else self._of_nothing(partials.height)
        codes = codes_of(values)
        pairs, number = np.unique(groups.ids[rows] * (int(codes.max()) + 1) + codes, return_inverse=True)
        order = np.argsort(number, kind="stable")  # the history of each (group, value), one after the other
        entries = _History(number[order], rows[order], counts[order])
        if self._shown is None:
            return Results(pl.Series(groups.sums(entries.appearances(partials.height))))
        holders = np.zeros(int(codes.max()) + 1, np.int64)
        holders[codes] = np.arange(len(codes))
        group_of, code_of = pairs // (int(codes.max()) + 1), pairs % (int(codes.max()) + 1)
        first, last = (np.searchsorted(group_of, groups.ids, side) for side in ("left", "right"))
        asked = expand(first, last)
        asking = np.repeat(np.arange(partials.height), last - first)
        found = entries.counts_at(asked, asking)
        is_there = found != 0
        texts = values.gather(holders[code_of[asked[is_there]]])
        return _maps(self._shown, texts, pl.Series(found[is_there]), asking[is_there], partials.height)

    def _condensed(self, partials: pl.DataFrame) -> tuple[pl.Series, pl.Series, Int64s]:
        """Add the counts of equal values of each row; values ascend, those without a count are left out."""
        values, rows = flat(partials[self._values])
        counts = flat(partials[self._counts]).values.to_numpy()
        if values.is_empty():
            return values, pl.Series(counts), rows
        codes = codes_of(values)
        pairs, first, number = np.unique(rows * (int(codes.max()) + 1) + codes, return_index=True, return_inverse=True)
        totals = np.zeros(len(pairs), np.int64)
        np.add.at(totals, number, counts)
        kept = first[totals != 0]
        return values.gather(kept), pl.Series(totals[totals != 0]), rows[kept]

    def _of_nothing(self, rows: int) -> Results:
        return Results(pl.repeat(None, rows, dtype=self.type.polars, eager=True))


class _History:
    """What happened to each (group, value) pair.

    Args:
        pairs: number of the pair, ascending.
        rows: where it happened, ascending inside a pair.
        changes: by how much its count changed.
    """

    def __init__(self, pairs: Int64s, rows: Int64s, changes: Int64s) -> None:
        self._pairs, self._rows = pairs, rows
        is_first = np.ones(len(pairs), np.bool_)
        is_first[1:] = pairs[1:] != pairs[:-1]
        firsts = np.flatnonzero(is_first)[np.cumsum(is_first) - 1] if len(pairs) else pairs
        totals = np.cumsum(changes)
        self._after = totals - np.where(firsts > 0, totals[firsts - 1], 0)
        self._before = self._after - changes

    def appearances(self, row_count: int) -> Int64s:
        """Return by how much the number of pairs that are there changes at each row."""
        result = np.zeros(row_count, np.int64)
        np.add.at(result, self._rows, (self._after > 0).astype(np.int64) - (self._before > 0))
        return result

    def counts_at(self, pairs: Int64s, rows: Int64s) -> Int64s:
        """Return the count of each pair after a row."""
        span = int(max(self._rows.max(initial=0), rows.max(initial=0))) + 1
        found = np.searchsorted(self._pairs * span + self._rows, pairs * span + rows, "right") - 1
        is_found = (found >= 0) & (self._pairs[found] == pairs)
        return np.where(is_found, self._after[found], 0)


class Collection(ListAccumulator):
    """``collect_list`` and ``collect_set``: values in arrival order, with or without repetitions. Of nothing, null.

    A partial is the lists of positions and values, in that order where it is settled. Of a set the first position of each value counts.
    """

    def __init__(self, prefix: str, result: ColumnType, room: Room, *, is_distinct: bool) -> None:
        super().__init__(prefix, result)
        self._room = room
        self._positions, self._values = f"{prefix}p", f"{prefix}v"
        self._is_distinct = is_distinct

    def lift(self, records: Records) -> list[pl.Series]:
        places = records.positions.set(records.values.is_null(), None) if records.values.null_count() else records.positions
        return [singletons(places).alias(self._positions), singletons(records.values).alias(self._values)]

    def settle(self, partials: pl.DataFrame) -> pl.DataFrame:
        positions, (values, rows) = self._in_order(partials)
        columns = [lists_by_row(each, rows, partials.height) for each in (positions, values)]
        return partials.with_columns(columns[0].alias(self._positions), columns[1].alias(self._values))

    def results(self, partials: pl.DataFrame) -> Results:
        _, (values, rows) = self._in_order(partials)
        return _collections(self._room, values, rows, partials.height)

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        values, rows = flat(partials[self._values])
        if self._is_distinct and len(values):
            kept = np.sort(_first_of_each(groups.ids[rows], codes_of(values)))
            values, rows = values.gather(kept), rows[kept]
        is_kept = self._room.kept(values, groups.ids[rows])
        if not is_kept.all():
            values, rows = values.filter(pl.Series(is_kept)), rows[is_kept]
        starts = np.searchsorted(rows, groups.firsts)
        ends = np.searchsorted(rows, np.arange(partials.height), "right")
        lists = null_where_empty(lists_of(values.gather(expand(starts, ends)), ends - starts))
        return Results(lists, is_full=self._room.full(values, starts, ends))

    def _in_order(self, partials: pl.DataFrame) -> tuple[pl.Series, Flat]:
        """Return the positions and the elements that each row's collection has, in order of arrival."""
        elements = flat(partials[self._values])
        positions = flat(partials[self._positions]).values
        order = np.lexsort((positions.to_numpy(), elements.rows))
        if self._is_distinct and len(order):
            order = order[np.sort(_first_of_each(elements.rows[order], codes_of(elements.values)[order]))]
        values, rows = elements.values.gather(order), elements.rows[order]
        is_kept = self._room.kept(values, rows)
        if is_kept.all():
            return positions.gather(order), Flat(values, rows)
        return positions.gather(order[is_kept]), Flat(values.filter(pl.Series(is_kept)), rows[is_kept])


class Top(ListAccumulator):
    """``top_k``: the k greatest values, descending, repetitions included. Of nothing, null. A partial is such a list."""

    def __init__(self, prefix: str, result: ColumnType, limit: int, room: Room) -> None:
        super().__init__(prefix, result)
        self._name = f"{prefix}v"
        self._limit = limit
        self._room = room

    def lift(self, records: Records) -> list[pl.Series]:
        return [singletons(records.values).alias(self._name)]

    def settle(self, partials: pl.DataFrame) -> pl.DataFrame:
        return partials.with_columns(self._greatest(partials).alias(self._name))

    def results(self, partials: pl.DataFrame) -> Results:
        values, rows = flat(self._greatest(partials))
        return _collections(self._room, values, rows, partials.height)

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        """Combine ranges of doubling length: after step s each row knows the greatest of the ``2^s`` rows up to it."""
        values, rows = flat(partials[self._name])
        codes = codes_of(values)
        sizes = lengths(partials[self._name])
        width = min(self._limit, int(np.bincount(groups.ids[rows]).max(initial=0)))
        best = np.zeros((partials.height, max(width, int(sizes.max(initial=0)))), np.int64)
        best[rows, np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = codes
        best = -np.sort(-best, axis=1)[:, :width]
        index = np.arange(partials.height)
        distance = 1
        while (joined := np.flatnonzero(index - distance >= groups.firsts)).size:
            both = np.concatenate([best[joined], best[joined - distance]], axis=1)
            both.sort(axis=1)
            best[joined] = both[:, ::-1][:, :width]
            distance *= 2
        holders = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
        holders[codes] = np.arange(len(codes))
        is_there = best > 0
        owners = np.repeat(index, is_there.sum(axis=1))
        return self._shown(values.gather(holders[best[is_there]]), owners, partials.height)

    def _greatest(self, partials: pl.DataFrame) -> pl.Series:
        greatest = partials[self._name].list.sort(descending=True).list.head(self._limit)
        if self._room.is_ample(lengths(greatest)):
            return greatest
        values, rows = flat(greatest)
        is_kept = self._room.kept(values, rows)
        return greatest if is_kept.all() else _cut(values, rows, is_kept, partials.height)

    def _shown(self, values: pl.Series, rows: Int64s, count: int) -> Results:
        is_kept = self._room.kept(values, rows)
        if not is_kept.all():
            values, rows = values.filter(pl.Series(is_kept)), rows[is_kept]
        return _collections(self._room, values, rows, count)


class Texts(ListAccumulator):
    """``concat`` and ``trace``, for the conformance corpora: texts by position. A partial is the lists of positions and texts.

    Args:
        prefix: of its columns.
        start: what stands before the texts; None: of nothing, null.
        mark: makes the text that is kept of a value and its sign.
    """

    places: str

    def __init__(self, prefix: str, start: str | None, mark: Callable[[str, int], str] | None = None) -> None:
        super().__init__(prefix, STRING)
        self.places, self._texts = f"{prefix}p", f"{prefix}t"
        self._start = start
        self._mark = mark

    def lift(self, records: Records) -> list[pl.Series]:
        texts, places = records.values, records.positions
        if texts.null_count():
            places = places.set(texts.is_null(), None)
        if self._mark is not None:
            signs = [1] * len(texts) if records.signs is None else records.signs.tolist()
            marked = [None if text is None else self._mark(text, sign) for text, sign in zip(texts.to_list(), signs, strict=True)]
            texts = pl.Series(marked, dtype=pl.String)
        return [singletons(places).alias(self.places), singletons(texts).alias(self._texts)]

    def results(self, partials: pl.DataFrame) -> Results:
        return Results(pl.Series([self._shown(own) for own in self._joined(partials)], dtype=pl.String))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        own = self._joined(partials)
        for row in range(1, len(own)):
            if groups.firsts[row] != row:
                own[row] = own[row - 1] + own[row]
        return Results(pl.Series([self._shown(texts) for texts in own], dtype=pl.String))

    def _joined(self, partials: pl.DataFrame) -> list[list[str]]:
        lists = zip(partials[self.places].to_list(), partials[self._texts].to_list(), strict=True)
        return [[texts[i] for i in np.argsort(places, kind="stable")] for places, texts in lists]

    def _shown(self, texts: list[str]) -> str | None:
        return None if self._start is None and not texts else "".join((self._start or "", *texts))


def trace_mark(text: str, sign: int) -> str:
    """Write a value of ``trace`` as added or subtracted."""
    return f"+{text}" if sign > 0 else f"-{text}"


def _maps(room: Room, texts: pl.Series, counts: pl.Series, rows: Int64s, count: int) -> Results:
    """Make ``count`` maps of texts and their counts, of which those are shown that have room; texts of a row ascend."""
    is_kept = room.kept(texts, rows)
    if not is_kept.all():
        texts, counts, rows = texts.filter(pl.Series(is_kept)), counts.filter(pl.Series(is_kept)), rows[is_kept]
    entries = pl.DataFrame([texts.alias("key"), counts.alias("value")]).to_struct("entry")
    return Results(null_where_empty(lists_by_row(entries, rows, count)), is_full=_is_full(room, texts, rows, count))


def _collections(room: Room, values: pl.Series, rows: Int64s, count: int) -> Results:
    """Make ``count`` lists of values that have room."""
    return Results(null_where_empty(lists_by_row(values, rows, count)), is_full=_is_full(room, values, rows, count))


def _is_full(room: Room, values: pl.Series, rows: Int64s, count: int) -> Bools:
    ends = np.cumsum(np.bincount(rows, minlength=count).astype(np.int64))
    return room.full(values, np.append([0], ends)[:-1], ends)


def _cut(values: pl.Series, rows: Int64s, is_kept: Bools, count: int) -> pl.Series:
    return lists_by_row(values.filter(pl.Series(is_kept)), rows[is_kept], count)


def _first_of_each(owners: Int64s, codes: Int64s) -> NDArray[np.intp]:
    """Return where each (owner, code) pair stands first."""
    first: NDArray[np.intp] = np.unique(owners * (int(codes.max(initial=0)) + 1) + codes, return_index=True)[1]
    return first
