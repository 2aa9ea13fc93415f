"""The results of groups whose records come one by one: merges each message into its group and shows what became of it (A2, A3).

A message is what changes a group at one place of the total order: a record, or a row that goes and the one that comes instead.
Vectorised over a batch, equal to handling message after message: the touched groups' partials are read and the aggregates run
over the batch's records on top of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from engine.expressions.types.types import ColumnType, Schema
from engine.frames.frames import KEY_HASH, OP, TS, Counters, add_counter, constant, frame_of, is_value, with_series, without
from engine.frames.hashing import KeyHash
from engine.operators.aggregation.accumulators.marks import Marks
from engine.operators.aggregation.aggregate import Aggregates
from engine.operators.aggregation.group_store import HASH, GroupStore
from engine.operators.aggregation.having import Having
from engine.operators.aggregation.last_changes import LATEST, MESSAGE, LastChanges, ends_message
from engine.plan.operators.aggregation import RunningAggregation, TableAggregation
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.running import Groups, grouped
from engine.state.sorted.segment_list import ascending, taken
from engine.state.sorted.sorted_search import distinct, stable_order


@dataclass(frozen=True, slots=True)
class Grouping:
    """The group of an operator's rows.

    Attributes:
        columns: (output column, source column) pairs.
        types: of the columns.
        hashing: of the checkpoint.
        is_hashed: ``_key_hash`` of the rows already is the hash of their groups.
    """

    columns: tuple[tuple[str, str], ...]
    types: tuple[ColumnType, ...]
    hashing: KeyHash
    is_hashed: bool = False

    @staticmethod
    def of(columns: tuple[tuple[str, str], ...], schema: Schema, hashing: KeyHash, *, is_hashed: bool = False) -> Grouping:
        """Look the source columns up in ``schema``."""
        return Grouping(columns, tuple(schema[source] for _, source in columns), hashing, is_hashed)

    @property
    def sources(self) -> list[str]:
        """The source columns."""
        return [source for _, source in self.columns]

    @property
    def own(self) -> list[str]:
        """Names of the group's columns inside the state: they outlive a renamed output column."""
        return [f"g{i}" for i in range(len(self.columns))]

    @property
    def outputs(self) -> tuple[tuple[str, ColumnType], ...]:
        """Names and types of the output columns."""
        return tuple((name, kind) for (name, _), kind in zip(self.columns, self.types, strict=True))

    def admit(self, frame: pl.DataFrame, operator: str, counters: Counters) -> tuple[pl.DataFrame, pl.Series]:
        """Drop and count null keys and null values (T6).

        Returns:
            The rows that stay, 0.0 for -0.0 in the group's columns, and the hashes of their groups.
        """
        doubles = [source for source, kind in zip(self.sources, self.types, strict=True) if kind.kind == "double"]
        frame = with_one_zero(frame, doubles)
        hashes = (frame.get_column(KEY_HASH) if self.is_hashed else self.hashing.of(frame, self.sources)).alias(HASH)
        ops = frame.get_column(OP).to_numpy()
        if not (hashes.null_count() or ops.any()):
            return frame, hashes
        has_value, has_key = ops == 0, is_value(hashes)
        is_kept = has_key & has_value
        add_counter(counters, operator, "null_key", hashes.null_count())
        add_counter(counters, operator, "null_value", int((~has_value & has_key).sum()))
        kept = pl.Series(is_kept)
        return frame.filter(kept), hashes.filter(kept)


def with_one_zero(frame: pl.DataFrame, doubles: Sequence[str]) -> pl.DataFrame:
    """Write 0.0 for -0.0, which equals it and must make the same group."""
    if not doubles:
        return frame
    return frame.with_columns(pl.when(pl.col(name) == 0.0).then(0.0).otherwise(pl.col(name)).alias(name) for name in doubles)


class GroupResults:
    """The state and the results of an operator's groups.

    Args:
        spec: the operator: its name for counters, ``having``, and whether its changes are folded.
        grouping: what makes a group.
        aggregates: what is computed of it.
        state: what ``snapshot`` returned, or None.
        store: where partials live.
    """

    def __init__(
        self,
        spec: RunningAggregation | TableAggregation,
        grouping: Grouping,
        aggregates: Aggregates,
        state: list[dict[str, Any]] | None,
        store: SegmentStore,
    ) -> None:
        self._name = spec.name
        self._is_folded = spec.is_folded
        self._grouping = grouping
        self._aggregates = aggregates
        self.schema = Schema(grouping.outputs + aggregates.schema)
        values = [name for name, _ in aggregates.schema]
        self._having = Having(spec.having, self.schema, values) if spec.having is not None else None
        self._groups = GroupStore(store, lambda partials, _: self._merge(partials), state)
        self._last = LastChanges(aggregates, self._having, self._merge, [HASH, *grouping.own], self._keys)

    def snapshot(self) -> list[dict[str, Any]]:
        """The state as JSON-able values; the segments it names are durable."""
        return self._groups.snapshot()

    def lift(
        self, frame: pl.DataFrame, hashes: pl.Series, positions: np.ndarray[Any, Any], signs: np.ndarray[Any, Any] | None = None
    ) -> list[pl.Series]:
        """Make each record's partial: everything but ``MESSAGE``. See ``Aggregates.lift``."""
        group = [frame[source].alias(own) for own, source in zip(self._grouping.own, self._grouping.sources, strict=True)]
        parts = self._aggregates.lift(frame, pl.Series(positions, dtype=pl.Int64), signs)
        return [hashes, *group, frame[TS].alias(LATEST), *parts]

    def fold(self, lifted: pl.DataFrame, counters: Counters) -> pl.DataFrame:
        """Merge partials into their groups.

        Args:
            lifted: what ``lift`` made with ``MESSAGE``, in order; the records of a message are of one group.
            counters: what is to be counted of the changes goes there.

        Returns:
            One row per message that shows something, or only the last one of each group, in order: ``MESSAGE``, ``_ts``, ``_op``,
            ``_key_hash`` and the output columns. A delete keeps its group, its aggregates are null.
        """
        held = self._groups.matching(distinct(lifted[HASH].to_numpy()))
        if self._is_folded:
            lifted, shown, marks = self._last.of(lifted, held)
        else:
            lifted = ascending(lifted, HASH)
            shown, marks = self._every_change(lifted, held)
        marks.count(self._name, counters)
        self._groups.append(without(lifted, MESSAGE))
        return shown

    def _every_change(self, lifted: pl.DataFrame, held: list[pl.DataFrame]) -> tuple[pl.DataFrame, Marks]:
        """Show every message, and say what is to be counted."""
        chain = lifted
        if held:
            chain = pl.concat([*held, lifted], how="diagonal")
        chain, groups = grouped(chain, HASH, self._grouping.own)
        is_state = ends_message(chain, groups)
        values, marks = self._aggregates.running(chain, groups)
        is_shown = is_state & is_value(chain[MESSAGE])
        result_times = pl.Series(TS, groups.latest(chain[LATEST].to_numpy()))
        states = frame_of([chain[MESSAGE], result_times, *self._keys(chain), *values])
        if not is_state.all():
            states = states.filter(pl.Series(is_state))
        if self._having is None:
            shown = with_series(states, constant(0, states.height, OP, np.int8))
        else:
            shown = self._having.with_deletes(states, Groups.of(pl.DataFrame({"group": groups.ids[is_state]})))
        rows = np.flatnonzero(is_value(shown[MESSAGE]) & is_value(shown[OP]))
        numbers = shown[MESSAGE].to_numpy()[rows].astype(np.int64)
        return taken(shown, rows[stable_order(numbers)]), marks.among(is_shown)

    def _keys(self, partials: pl.DataFrame) -> list[pl.Series]:
        """The hash and the output columns of each partial's group."""
        group = [partials[own].alias(name) for own, (name, _) in zip(self._grouping.own, self._grouping.columns, strict=True)]
        return [partials[HASH].alias(KEY_HASH), *group]

    def _merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Merge partials of equal groups; the hash alone could collide. A few that all differ are merged already."""
        if self._aggregates.are_merged(partials, HASH):
            return self._aggregates.run_until_idle(partials)
        grouped = partials.group_by(HASH, *self._grouping.own)
        own = [pl.col(LATEST).max(), *(pl.col(name).max() for name in (MESSAGE,) if name in partials.columns)]
        return self._aggregates.run_until_idle(grouped.agg(*own, *self._aggregates.merge(partials.columns)))
