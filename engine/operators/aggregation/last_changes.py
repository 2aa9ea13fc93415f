"""Only the last change of each group in a batch, for a sink that would fold the others anyway (T3).

A message is what changes a group at one place of the total order. What is left out is computed only as far as ``having`` looks at
it: whether a group was shown in between decides whether its last change is a delete. Equal to folding all changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import polars as pl

from engine.frames.clocks import Bools
from engine.frames.frames import OP, TS, constant, is_value, with_series
from engine.operators.aggregation.accumulators.marks import Marks
from engine.operators.aggregation.aggregate import Aggregates
from engine.operators.aggregation.having import Having
from engine.state.sorted.running import Groups
from engine.state.sorted.segment_list import taken
from engine.state.sorted.sorted_search import stable_order

MESSAGE: Final = "_message"
"""Column of lifted records: the number of the message each belongs to, ascending."""

LATEST: Final = "_latest"
"""Column of partials: greatest event time, the time of the result."""


class LastChanges:
    """Makes the last changes of one operator's groups.

    Args:
        aggregates: what is computed of them.
        having: which states are shown, None: all.
        merge: merges partials of equal groups, keeping the greatest ``MESSAGE``.
        group: the columns of partials that make a group.
        keys: makes the output columns of partials' groups.
    """

    def __init__(
        self,
        aggregates: Aggregates,
        having: Having | None,
        merge: Callable[[pl.DataFrame], pl.DataFrame],
        group: Sequence[str],
        keys: Callable[[pl.DataFrame], list[pl.Series]],
    ) -> None:
        self._aggregates = aggregates
        self._having = having
        self._merge = merge
        self._group = group
        self._keys = keys

    def of(self, lifted: pl.DataFrame, held: Sequence[pl.DataFrame]) -> tuple[pl.DataFrame, pl.DataFrame, Marks]:
        """Merge a batch's partials.

        Args:
            lifted: partials with ``MESSAGE``, in order; those of a message are of one group.
            held: what is known of groups with their hashes, without ``MESSAGE``.

        Returns:
            The batch as one partial per group; the last change of each group that has one, by ``MESSAGE``, with ``_ts``, ``_op``, the
            key and the values, which are null in a delete; what is to be counted of the groups.
        """
        run = self._merge(lifted)
        whole = run
        if held:  # groups of the same hash may be among them
            whole = self._merge(pl.concat([*held, run], how="diagonal"))
            if whole[MESSAGE].null_count():
                whole = whole.filter(pl.col(MESSAGE).is_not_null())
        values, marks = self._aggregates.results(whole)
        rows = pl.DataFrame([whole[MESSAGE], whole[LATEST].alias(TS), constant(0, whole.height, OP, np.int8)])
        rows = with_series(rows, *self._keys(whole), *values)
        if self._having is not None:
            rows = self._shown_rows(rows, self._shown(self._having, lifted, held))
        return run, taken(rows, stable_order(rows.get_column(MESSAGE).to_numpy())), marks

    def _shown(self, having: Having, lifted: pl.DataFrame, held: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The last change of each group that is shown, with no other values than ``having`` reads."""
        chain = lifted
        if held:
            known = self._merge(pl.concat(held, how="diagonal"))
            chain = pl.concat([known.with_columns(pl.lit(None, pl.Int64).alias(MESSAGE)), lifted], how="diagonal")
        chain = chain.sort(*self._group, maintain_order=True)
        groups = Groups.of(chain.select(self._group))
        values, _ = self._aggregates.running(chain, groups, having.reads)
        result_times = pl.Series(TS, groups.latest(chain[LATEST].to_numpy()))
        states = pl.DataFrame([chain[MESSAGE], result_times, *self._keys(chain), *values])
        is_state = ends_message(chain, groups)
        ids = groups.ids[is_state]
        checked = having.with_deletes(states.filter(pl.Series(is_state)), Groups.of(pl.DataFrame({"group": ids})))
        is_shown = is_value(checked[MESSAGE]) & is_value(checked[OP])
        shown, ids = checked.filter(pl.Series(is_shown)), ids[is_shown]
        return shown.filter(pl.Series(np.append(ids[1:] != ids[:-1], [True])[: len(ids)]))

    @staticmethod
    def _shown_rows(rows: pl.DataFrame, shown: pl.DataFrame) -> pl.DataFrame:
        """Of the groups' rows those whose last message is shown, and the deletes. A row that is shown is its group's last message."""
        is_row = shown[OP] == 0
        kept = rows.filter(pl.col(MESSAGE).is_in(shown[MESSAGE].filter(is_row).implode()))
        deletes = shown.filter(~is_row)
        values = [name for name in rows.columns if name not in deletes.columns]
        nothing = rows.clear(deletes.height)[values]
        return pl.concat([kept, with_series(deletes, *nothing.get_columns())[rows.columns]])


def ends_message(chain: pl.DataFrame, groups: Groups) -> Bools:
    """Say which rows are the last of their message, or what was known of a group before."""
    is_last = np.ones(chain.height, np.bool_)
    messages = chain.get_column(MESSAGE)
    # With a null among them numpy has them as doubles: all of a batch's numbers are exact there, and a null, which differs from each, is NaN.
    numbers = messages.to_numpy()
    is_other = numbers[1:] != numbers[:-1]
    if messages.null_count():
        is_none = np.isnan(numbers)
        is_other &= ~(is_none[1:] & is_none[:-1])
    is_last[:-1] = is_other | (groups.ids[1:] != groups.ids[:-1])
    return is_last
