"""The table-table join on the primary key (TT1–TT6): two tables of one key, and a table of their rows side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from engine.expressions.types.types import Schema
from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64
from engine.frames.frames import KEY_HASH, OFFSET, OP, POS, RANK, TS, Counters, add_counter, empty_frame, empty_late
from engine.frames.places import apart, ordinals
from engine.operators.joins.table_history import complete_results
from engine.operators.joins.table_sides import Changes, JoinSide, Results, SideBatch, SideReads, has_result, merged_order
from engine.operators.operators import BatchTime, Operator, OperatorOutput, row_clock, row_numbers
from engine.plan.building.join_keys import joined_schema
from engine.plan.operators.table_table_join import TableTableJoin
from engine.state.segments.ports import SegmentStore


class TableTableJoiner(Operator):
    """One table-table join of a stage.

    Counted are ``null_key`` (T6), ``table_history_expired`` (V1; kept as late rows), ``out_of_order`` (V7: an unversioned side's
    changes that are older than the row they replace), ``not_latest`` (TT2: a versioned side's changes that came to nothing) and, with ``history:
    complete``, ``result_history_expired`` (result versions that ended before the retained history).

    Args:
        spec: what to do.
        left: columns of the running table.
        right: columns of the table input (qualified).
        state: what ``snapshot`` returned, or None.
        store: where versions live.
    """

    def __init__(
        self, spec: TableTableJoin, left: Schema, right: Schema, state: dict[str, Any] | None, store: SegmentStore
    ) -> None:
        state = state or {}
        self.name: str = spec.name
        self._spec = spec
        left, right = _carried(left, spec.left_columns, spec.left_key), _carried(right, spec.right_columns, spec.right_key)
        self.schema = joined_schema(spec, left, right)
        self._key_types = self.schema.select(spec.key).polars()
        self._left = JoinSide(spec.name, left, spec.left_key, spec.left_retention_ms, state.get("left"), store)
        self._right = JoinSide(spec.name, right, spec.right_key, spec.right_retention_ms, state.get("right"), store)
        self._empty_left, self._empty_right = empty_frame(left), empty_frame(right)
        self._next: int = state.get("next", 0)

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:
        """Handle the next changes of both sides; see ``Operator.process``."""
        puts = inputs.get(self._spec.table_index, self._empty_right)
        frame = frame if frame.height else self._empty_left
        if frame.is_empty() and puts.is_empty():
            return OperatorOutput(empty_frame(self.schema))
        counters: Counters = {}
        late: list[pl.DataFrame] = []
        order = merged_order(frame, puts)
        numbers = row_numbers(self._next, len(order))
        places = pl.concat([frame[[POS, RANK]], puts[[POS, RANK]]])[order]
        clocks = [row_clock(clock, places, numbers) for clock in (moment.clock, moment.tables[self._spec.table_index])]
        is_left = order < frame.height
        left = self._left.open(frame, numbers[is_left], clocks[0], counters, late)
        right = self._right.open(puts, numbers[~is_left], clocks[1], counters, late)
        self._next += 2 * len(order)
        output = self._results(left, right, counters)
        keep_from = min(left.table.horizon, right.table.horizon) if self._spec.history == "complete" else AFTER_ALL_TIME
        deletes_from = self._remembered_from([left.table.horizon, right.table.horizon])
        self._left.table.commit(left.table, keep_from, deletes_from)
        self._right.table.commit(right.table, keep_from, deletes_from)
        return OperatorOutput(output, pl.concat(late) if late else empty_late(), counters)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"left": self._left.table.snapshot(), "right": self._right.table.snapshot(), "next": self._next}

    def _remembered_from(self, horizons: Sequence[Any]) -> Any:
        """Return from which time on a tombstone counts for a result's time (TT3): the earlier ``T - R`` of the versioned sides.

        Where both sides are versioned, no accepted change is older: then every tombstone that is later than the change counts. Behind
        another join the left side comes by arrival: then tombstones count as far back as the right side's history goes.

        Args:
            horizons: of both sides, numbers or arrays of them.
        """
        if not self._spec.is_result_versioned:
            return AFTER_ALL_TIME
        sides = zip((self._left, self._right), horizons, strict=True)
        return reduce(np.minimum, (horizon for side, horizon in sides if side.is_versioned))

    def _results(self, left: SideBatch, right: SideBatch, counters: Counters) -> pl.DataFrame:
        changes = Changes.of(left, right)
        is_complete = self._spec.history == "complete"
        since = _earliest(changes) if is_complete else None
        reads = SideReads.of(left, changes, since), SideReads.of(right, changes, since)
        if is_complete:
            results, expired = complete_results(self._spec.type, changes, *reads, np.maximum(*_horizons(left, right, changes)))
            add_counter(counters, self.name, "result_history_expired", expired)
        else:
            remembered_from = self._remembered_from(_horizons(left, right, changes))
            results = self._latest_results(changes, *reads, remembered_from, counters)
        return self._assembled(changes, results, left, right, *reads)

    def _latest_results(
        self, changes: Changes, left: SideReads, right: SideReads, remembered_from: I64 | int, counters: Counters
    ) -> Results:
        """Join each change with the other side's latest row (TT1–TT4, STRICT 6, 8, 10).

        Args:
            changes: of both sides.
            left: the left side's versions.
            right: the right side's.
            remembered_from: from which time on the other side's tombstone counts, for each change or all.
            counters: to be added to.
        """
        is_left = changes.is_left
        old_left, old_right = (side.search.latest(changes.keys, changes.sequence) for side in (left, right))
        had_left, had_right = left.holds(old_left), right.holds(old_right)
        left_times, right_times = (
            left.times_at(old_left, BEFORE_ALL_TIME),
            right.times_at(old_right, BEFORE_ALL_TIME),
        )
        is_older = np.where(is_left, left_times, right_times) > changes.times
        is_versioned = np.where(is_left, self._left.is_versioned, self._right.is_versioned)
        is_replacing = np.where(is_left, had_left, had_right)
        add_counter(counters, self.name, "out_of_order", int((is_older & is_replacing & ~is_versioned).sum()))
        is_void = is_older & is_versioned
        add_counter(counters, self.name, "not_latest", int(is_void.sum()))
        has_left = np.where(is_left, changes.is_row, had_left)
        has_right = np.where(is_left, had_right, changes.is_row)
        is_there = has_result(self._spec.type, has_left, has_right)
        was_there = has_result(self._spec.type, had_left, had_right)
        emitted = np.flatnonzero(~is_void & (is_there | was_there))
        other_times = np.where(is_left, right_times, left_times)
        counts = np.where(is_left, had_right, had_left) | (other_times >= remembered_from)
        times = np.where(counts, np.maximum(changes.times, other_times), changes.times)
        left_rows = np.where(is_left, _own_rows(left, changes), left.rows_at(old_left))
        right_rows = np.where(is_left, right.rows_at(old_right), _own_rows(right, changes))
        return Results(emitted, times[emitted], left_rows[emitted], right_rows[emitted], ~is_there[emitted])

    def _assembled(
        self, changes: Changes, results: Results, left: SideBatch, right: SideBatch, left_reads: SideReads, right_reads: SideReads
    ) -> pl.DataFrame:
        """Put both sides' columns side by side; the key is that of the rows, or where there is none of the change."""
        causes = results.changes
        sources = np.where(changes.is_left, changes.rows, changes.rows + left.rows.height)[causes]
        service = pl.concat([side.rows[[POS, OFFSET, RANK]] for side in (left, right)])[sources]
        frame = service.select(
            POS,
            pl.Series(TS, results.times),
            pl.Series(OP, results.is_delete.astype(np.int8)),
            pl.Series(KEY_HASH, changes.distinct.hashes[changes.keys[causes]]),
            OFFSET,
            RANK,
        )
        frame = apart(frame, ordinals(causes))
        left_rows, right_rows = (np.where(results.is_delete, -1, rows) for rows in (results.left_rows, results.right_rows))
        columns = {
            **_gathered(left_reads.versions, self._spec.left_columns, left_rows),
            **_gathered(right_reads.versions, self._spec.right_columns, right_rows),
        }
        for left_name, right_name, name in zip(self._spec.left_key, self._spec.right_key, self._spec.key, strict=True):
            own = [left.rows.get_column(left_name), right.rows.get_column(right_name)]
            # A cast fails only where the side of the key's type has no equal row: nothing is told of such a change.
            keys = pl.concat([part.cast(self._key_types[name], strict=False).alias(name) for part in own])[sources]
            columns[name] = columns[name].zip_with(columns[name].is_not_null(), keys) if name in columns else keys
        return frame.hstack([columns[name] for name in self.schema.names])


def _carried(schema: Schema, columns: tuple[str, ...], key: tuple[str, ...]) -> Schema:
    return schema.select([name for name in schema.names if name in columns or name in key])


def _own_rows(side: SideReads, changes: Changes) -> I64:
    """Return each change's own row of the side's versions, -1 for a tombstone; of no matter for the other side's changes."""
    return np.where(changes.is_row, side.first_new + changes.rows, -1)


def _earliest(changes: Changes) -> I64:
    """Return the earliest event time of each key's changes."""
    earliest = np.full(len(changes.distinct.hashes), AFTER_ALL_TIME)
    np.minimum.at(earliest, changes.keys, changes.times)
    return earliest


def _horizons(left: SideBatch, right: SideBatch, changes: Changes) -> list[I64]:
    """Return, after each change, the time from which on each side's history can be read."""
    return [side.table.horizons(changes.sequence) for side in (left, right)]


def _gathered(versions: pl.DataFrame, names: tuple[str, ...], rows: I64) -> dict[str, pl.Series]:
    """Return some columns of the given rows, null for a row of -1."""
    columns = versions[list(names)]
    if not columns.width:
        return {}
    is_missing = rows < 0
    if not is_missing.any():
        return columns[rows].to_dict()
    places = pl.Series(np.where(is_missing, 0, rows)).set(pl.Series(is_missing), None)
    return columns.select(pl.all().gather(places)).to_dict()
