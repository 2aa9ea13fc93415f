"""The elements of lists as the rows of a frame of their own, beside other columns of the row they come from: what a lambda is computed over.

Whole columns at a time; only a reduction takes a step for each position, over all rows together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

I64 = np.ndarray[tuple[int], np.dtype[np.int64]]
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]

_LISTS, _START = "lists", "start"


class Exploded:
    """Lists, and what else their rows hold.

    Args:
        given: structs of the lists and the other columns, a row each.
        names: field of ``given`` → column beside the elements.

    Attributes:
        lists: as they were given.
        sizes: how many elements each has; 0 where it is null.
        values: all elements, one list after the other.
        beside: the other columns.
    """

    def __init__(self, given: pl.Series, names: Mapping[str, str]) -> None:
        self.lists = given.struct.field(_LISTS)
        self.sizes: I64 = self.lists.list.len().fill_null(0).to_numpy().astype(np.int64)
        self.values = self.lists.list.explode(keep_nulls=False, empty_as_null=False)
        self.beside = pl.DataFrame([given.struct.field(field).alias(name) for field, name in names.items()])

    @property
    def rows(self) -> I64:
        """Which list each element belongs to."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def frame(self, elements: Mapping[str, pl.Series], rows: I64 | None = None) -> pl.DataFrame:
        """Return elements beside the other columns of their rows."""
        named = [values.alias(name) for name, values in elements.items()]
        if not self.beside.width:
            return pl.DataFrame(named)
        return self.beside[self.rows if rows is None else rows].with_columns(named)

    def weights(self) -> I64:
        """Return how many values stand beside each element of a list."""
        found = np.ones(len(self.sizes), np.int64)
        for column in self.beside.get_columns():
            if column.dtype.is_nested():
                found += sizes_of(column, _one_each, 1)
        return found

    def any_of(self, mask: pl.Series) -> pl.Series:
        """Return which lists hold an element of the mask."""
        rows = self.rows[mask.fill_null(value=False).to_numpy()]
        return pl.Series(np.bincount(rows, minlength=len(self.sizes)) > 0)

    def filtered(self, mask: pl.Series) -> pl.Series:
        """Return the lists with the elements of the mask alone."""
        is_kept = mask.fill_null(value=False)
        return self.listed(self.values.filter(is_kept), np.bincount(self.rows[is_kept.to_numpy()], minlength=len(self.sizes)))

    def listed(self, values: pl.Series, sizes: I64 | None = None) -> pl.Series:
        """Cut values into lists of the given sizes, by default those of the lists; null where the lists are."""
        made = lists_of(values, self.sizes if sizes is None else sizes.astype(np.int64))
        is_null = self.lists.is_null()
        return made.set(is_null, None) if is_null.any() else made


def exploded(
    lists: pl.Expr, beside: Mapping[str, pl.Expr], build: Callable[[Exploded], pl.Series], result: pl.DataType
) -> pl.Expr:
    """Return what ``build`` makes of the elements of lists: one value per row.

    Args:
        lists: arrays or maps.
        beside: name → another column, for the elements of its row.
        build: makes it.
        result: type of what it makes.
    """
    fields = {f"beside_{place}": name for place, name in enumerate(beside)}
    parts = [lists.alias(_LISTS), *(beside[name].alias(field) for field, name in fields.items())]

    def computed(given: pl.Series) -> pl.Series:
        return build(Exploded(given, fields)).cast(result)

    return pl.struct(parts).map_batches(computed, return_dtype=result, is_elementwise=True)


def folded(
    given: Exploded,
    sizes: I64,
    starts: pl.DataFrame,
    elements: Mapping[str, pl.Series],
    step: Callable[[pl.DataFrame], pl.DataFrame | None],
) -> pl.DataFrame:
    """Fold each list into one state, from its first element on.

    Args:
        given: the lists.
        sizes: how many elements of each count.
        starts: what each begins with, columns of a state.
        elements: columns of all elements, by name.
        step: the next states of a frame of states, elements and the columns beside them; None where no state changes any more.
    """
    order: I64 = np.argsort(-sizes, kind="stable")
    longest_first, firsts = sizes[order], (np.cumsum(given.sizes) - given.sizes)[order]
    states, done = starts[order], []
    for place in range(int(longest_first[0]) if len(order) else 0):
        count = int(np.searchsorted(-longest_first, -place))
        done.append(states[count:])
        states = states[:count]
        taken = {name: values.gather(firsts[:count] + place) for name, values in elements.items()}
        following = step(given.frame({**{state.name: state for state in states}, **taken}, order[:count]))
        if following is None:
            break
        states = following
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return pl.concat([states, *reversed(done)])[back]


def sizes_of(column: pl.Series, of_leaf: Callable[[pl.Series], I64], of_list: int) -> I64:
    """Return how large each value of a column is, with all that it holds.

    Args:
        column: of any type.
        of_leaf: how large each value of a column without values inside is.
        of_list: what a list adds to its values.
    """
    if isinstance(column.dtype, pl.Struct):
        found: I64 = np.zeros(len(column), np.int64)
        for name in column.struct.fields:
            found += sizes_of(column.struct.field(name), of_leaf, of_list)
        return found
    if not isinstance(column.dtype, pl.List):
        return of_leaf(column)
    sizes = column.list.len().fill_null(0).to_numpy().astype(np.int64)
    inside = sizes_of(column.list.explode(keep_nulls=False, empty_as_null=False), of_leaf, of_list)
    ends, sums = np.cumsum(sizes), np.concatenate([np.zeros(1, np.int64), np.cumsum(inside)])
    inside_lists: I64 = sums[ends] - sums[ends - sizes]
    return of_list + inside_lists


def _one_each(column: pl.Series) -> I64:
    return np.ones(len(column), np.int64)


def lists_of(values: pl.Series, sizes: I64) -> pl.Series:
    """Cut values into lists of these sizes, one behind the other."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    array: Any = pa.LargeListArray.from_arrays(pa.array(offsets), values.rechunk().to_arrow())
    return pl.Series(array, dtype=pl.List(values.dtype))
