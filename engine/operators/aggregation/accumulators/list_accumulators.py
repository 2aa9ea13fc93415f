"""Aggregates whose partials grow with their group: distinct values, collections, frequencies, texts.

Partials are list columns (see ``list_columns``). Merging joins lists; ``run_until_idle`` brings the joined ones into shape, and so do
``results``, so both take partials in any state. Lists are cut where their room ends (P12, ``room``). As in ``accumulators``; collections of
nothing are null, counts 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.errors import InvariantBroken
from engine.expressions.types.types import STRING, ColumnType
from engine.frames.clocks import Bools
from engine.frames.list_columns import Flat, Int64s, flat, lengths, lists_by_row, lists_of, null_where_empty, singletons
from engine.operators.aggregation.accumulators.accumulators import Accumulator, Records, Results
from engine.operators.aggregation.accumulators.capacity import Room
from engine.state.sorted.running import Groups, codes_of
from engine.state.sorted.sorted_search import expand


class ListAccumulator(Accumulator):
    """Partials that are lists."""

    stays_alone = False

    def merge(self, column: pl.Expr) -> pl.Expr:
        return column.list.explode(keep_nulls=False, empty_as_null=False)


class DistinctCount(ListAccumulator):
    """``count(distinct x)``, exact: a partial is the list of its distinct values. Null where they are too many to be distinguished."""

    def __init__(self, prefix: str, result: ColumnType, room: Room) -> None:
        super().__init__(prefix, result)
        self._name = f"{prefix}d"
        self._room = room

    def lift(self, records: Records) -> list[pl.Series]:
        return [singletons(records.values).alias(self._name)]

    def merge(self, column: pl.Expr) -> pl.Expr:
        return super().merge(column).unique(maintain_order=True)

    def run_until_idle(self, partials: pl.DataFrame) -> pl.DataFrame:
        lists = partials[self._name]
        if self._room.is_ample(lengths(lists)):
            return partials
        values, rows = flat(lists)
        is_kept = self._room.fitting(values, rows)  # whichever are kept: they fill the room
        if is_kept.all():
            return partials
        return partials.with_columns(cut(values, rows, is_kept, partials.height).alias(self._name))

    def results(self, partials: pl.DataFrame) -> Results:
        sizes = lengths(partials[self._name])
        if self._room.is_ample(sizes):
            return Results(pl.Series(sizes))
        ends = np.cumsum(sizes)
        return self._known(sizes, self._room.full(flat(partials[self._name]).values, ends - sizes, ends))

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        values, rows = flat(partials[self._name])
        first_seen = first_of_each(groups.ids[rows], codes_of(values))
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
        is_empty_of_nothing: of nothing the map is empty, not null.
    """

    def __init__(
        self, prefix: str, result: ColumnType, *, shown: Room | None, with_undo: bool, is_empty_of_nothing: bool = False
    ) -> None:
        super().__init__(prefix, result)
        self._values, self._counts = f"{prefix}d", f"{prefix}c"
        self._shown = shown
        self._with_undo = with_undo
        self._is_empty_of_nothing = is_empty_of_nothing

    def lift(self, records: Records) -> list[pl.Series]:
        counted = records.counted()
        counts = lists_of(pl.Series(counted[counted != 0]), (counted != 0).astype(np.int64))
        return [singletons(records.values).alias(self._values), counts.alias(self._counts)]

    def run_until_idle(self, partials: pl.DataFrame) -> pl.DataFrame:
        values, counts, rows = self.condensed(partials)
        if self._shown is not None and not self._with_undo:
            is_kept = self._shown.fitting(values, rows)
            values, counts, rows = values.filter(pl.Series(is_kept)), counts.filter(pl.Series(is_kept)), rows[is_kept]
        own = [lists_by_row(each, rows, partials.height) for each in (values, counts)]
        return partials.with_columns(own[0].alias(self._values), own[1].alias(self._counts))

    def results(self, partials: pl.DataFrame) -> Results:
        values, counts, rows = self.condensed(partials)
        if self._shown is None:
            return Results(pl.Series(np.bincount(rows, minlength=partials.height).astype(np.int64)))
        return self._maps(values, counts, rows, partials.height)

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        found = self.history(partials, groups)
        if found is None:
            nothing = np.zeros(partials.height, np.int64)
            return Results(pl.Series(nothing)) if self._shown is None else self._of_nothing(partials.height)
        entries = found.entries
        if self._shown is None:
            return Results(pl.Series(groups.sums(entries.appearances(partials.height))))
        values, holders, group_of, code_of = found.values, found.holders, found.group_of, found.code_of
        first, last = (np.searchsorted(group_of, groups.ids, side) for side in ("left", "right"))
        asked = expand(first, last)
        asking = np.repeat(np.arange(partials.height), last - first)
        counts = entries.counts_at(asked, asking)
        is_there = counts != 0
        texts = values.gather(holders[code_of[asked[is_there]]])
        return self._maps(texts, pl.Series(counts[is_there]), asking[is_there], partials.height)

    def history(self, partials: pl.DataFrame, groups: Groups) -> Histories | None:
        """Return what happened to the values of each group, None where nothing did."""
        values, rows = flat(partials[self._values])
        if values.is_empty():
            return None
        counts = flat(partials[self._counts]).values.to_numpy()
        codes = codes_of(values)
        base = int(codes.max()) + 1
        pairs, number = np.unique(groups.ids[rows] * base + codes, return_inverse=True)
        order = np.argsort(number, kind="stable")  # the history of each (group, value), one after the other
        holders = np.zeros(base, np.int64)
        holders[codes] = np.arange(len(codes))
        entries = _History(number[order], rows[order], counts[order])
        return Histories(entries, values, holders, pairs // base, pairs % base)

    def condensed(self, partials: pl.DataFrame) -> tuple[pl.Series, pl.Series, Int64s]:
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
        if self._is_empty_of_nothing:
            return Results(pl.repeat([], rows, dtype=self.type.polars, eager=True))
        return Results(pl.repeat(None, rows, dtype=self.type.polars, eager=True))

    def _maps(self, texts: pl.Series, counts: pl.Series, rows: Int64s, count: int) -> Results:
        """Make ``count`` maps of texts and their counts, of which those are shown that have room; texts of a row ascend."""
        if self._shown is None:
            raise InvariantBroken("a number of values has no map")
        is_kept = self._shown.fitting(texts, rows)
        if not is_kept.all():
            texts, counts, rows = texts.filter(pl.Series(is_kept)), counts.filter(pl.Series(is_kept)), rows[is_kept]
        entries = pl.DataFrame([texts.alias("key"), counts.alias("value")]).to_struct("entry")
        maps = lists_by_row(entries, rows, count)
        is_full = _is_full(self._shown, texts, rows, count)
        return Results(maps if self._is_empty_of_nothing else null_where_empty(maps), is_full=is_full)


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

    def appearances(self, row_count: int, weights: Int64s | None = None) -> Int64s:
        """Return by how much the number of pairs that are there changes at each row.

        Args:
            row_count: number of rows.
            weights: what each pair counts, 1 where they are not given.
        """
        result = np.zeros(row_count, np.int64)
        changes = (self._after > 0).astype(np.int64) - (self._before > 0)
        np.add.at(result, self._rows, changes if weights is None else changes * weights[self._pairs])
        return result

    def counts_at(self, pairs: Int64s, rows: Int64s) -> Int64s:
        """Return the count of each pair after a row."""
        span = int(max(self._rows.max(initial=0), rows.max(initial=0))) + 1
        found = np.searchsorted(self._pairs * span + self._rows, pairs * span + rows, "right") - 1
        is_found = (found >= 0) & (self._pairs[found] == pairs)
        return np.where(is_found, self._after[found], 0)


class Histories(NamedTuple):
    """What happened to the values of groups.

    Attributes:
        entries: the changes.
        values: all values that occur, and others.
        holders: where a value of a code is among them.
        group_of: the group of each pair of group and value.
        code_of: the value's code.
    """

    entries: _History
    values: pl.Series
    holders: Int64s
    group_of: Int64s
    code_of: Int64s


class Collected(NamedTuple):
    """Which values belong to a collection, and how it looks without any.

    Attributes:
        room: where it ends.
        is_distinct: each value once.
        keeps_nulls: a null is a value like others.
        is_empty_of_nothing: of nothing it is empty, not null.
        marked: the room whose end is worth a mark: not where so many values were asked for.
    """

    room: Room
    is_distinct: bool = False
    keeps_nulls: bool = False
    is_empty_of_nothing: bool = False
    marked: Room | None = None

    def lists(self, values: pl.Series, rows: Int64s, count: int) -> Results:
        """Make ``count`` lists of values that have room."""
        lists = lists_by_row(values, rows, count)
        is_full = _is_full(self.marked or self.room, values, rows, count)
        return Results(lists if self.is_empty_of_nothing else null_where_empty(lists), is_full=is_full)


class Collection(ListAccumulator):
    """``collect_list`` and ``collect_set``: values in arrival order, with or without repetitions.

    A partial is the lists of positions and values, in that order where it is settled. Of a set the first position of each value counts.
    """

    def __init__(self, prefix: str, result: ColumnType, kind: Collected) -> None:
        super().__init__(prefix, result)
        self.kind = kind
        self._positions, self._values = f"{prefix}p", f"{prefix}v"

    def lift(self, records: Records) -> list[pl.Series]:
        if self.kind.keeps_nulls:
            ones = np.ones(len(records.values), np.int64)
            columns = ((records.positions, self._positions), (records.values, self._values))
            return [lists_of(each, ones).alias(name) for each, name in columns]
        places = records.positions.set(records.values.is_null(), None) if records.values.null_count() else records.positions
        return [singletons(places).alias(self._positions), singletons(records.values).alias(self._values)]

    def run_until_idle(self, partials: pl.DataFrame) -> pl.DataFrame:
        positions, (values, rows) = self._in_order(partials)
        columns = [lists_by_row(each, rows, partials.height) for each in (positions, values)]
        return partials.with_columns(columns[0].alias(self._positions), columns[1].alias(self._values))

    def results(self, partials: pl.DataFrame) -> Results:
        _, (values, rows) = self._in_order(partials)
        return self.kind.lists(values, rows, partials.height)

    def running(self, partials: pl.DataFrame, groups: Groups) -> Results:
        values, rows = flat(partials[self._values])
        if self.kind.is_distinct and len(values):
            kept = np.sort(first_of_each(groups.ids[rows], codes_of(values)))
            values, rows = values.gather(kept), rows[kept]
        is_kept = self.kind.room.fitting(values, groups.ids[rows])
        if not is_kept.all():
            values, rows = values.filter(pl.Series(is_kept)), rows[is_kept]
        starts = np.searchsorted(rows, groups.firsts)
        ends = np.searchsorted(rows, np.arange(partials.height), "right")
        return self.ranges(values, starts, ends)

    def ranges(self, values: pl.Series, starts: Int64s, ends: Int64s) -> Results:
        """Make lists of ranges of values."""
        lists = lists_of(values.gather(expand(starts, ends)), ends - starts)
        shown = lists if self.kind.is_empty_of_nothing else null_where_empty(lists)
        return Results(shown, is_full=(self.kind.marked or self.kind.room).full(values, starts, ends))

    def order(self, positions: Int64s, elements: Flat) -> Int64s:
        """Return the order of the elements in which those of a row stand together, those first that belong to the collection first."""
        return np.lexsort((positions, elements.rows))

    def _in_order(self, partials: pl.DataFrame) -> tuple[pl.Series, Flat]:
        """Return the positions and the elements that each row's collection has, in order."""
        elements = flat(partials[self._values])
        positions = flat(partials[self._positions]).values
        order = self.order(positions.to_numpy(), elements)
        if self.kind.is_distinct and len(order):
            order = order[np.sort(first_of_each(elements.rows[order], codes_of(elements.values)[order]))]
        values, rows = elements.values.gather(order), elements.rows[order]
        is_kept = self.kind.room.fitting(values, rows)
        if is_kept.all():
            return positions.gather(order), Flat(values, rows)
        return positions.gather(order[is_kept]), Flat(values.filter(pl.Series(is_kept)), rows[is_kept])


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


def _is_full(room: Room, values: pl.Series, rows: Int64s, count: int) -> Bools:
    ends = np.cumsum(np.bincount(rows, minlength=count).astype(np.int64))
    return room.full(values, np.append([0], ends)[:-1], ends)


def cut(values: pl.Series, rows: Int64s, is_kept: Bools, count: int) -> pl.Series:
    return lists_by_row(values.filter(pl.Series(is_kept)), rows[is_kept], count)


def first_of_each(owners: Int64s, codes: Int64s) -> NDArray[np.intp]:
    """Return where each (owner, code) pair stands first."""
    first: NDArray[np.intp] = np.unique(owners * (int(codes.max(initial=0)) + 1) + codes, return_index=True)[1]
    return first
