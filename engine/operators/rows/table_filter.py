"""A filter over a table's changes (F1, STRICT 6 and 7): a row that fails becomes a delete, where the result had a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema
from engine.frames.clocks import AFTER_ALL_TIME, I64, Bools, Clock
from engine.frames.evaluation_errors import GapCounter
from engine.frames.frames import KEY_HASH, OP, POS, SERVICE_COLUMNS, TS, Counters, add_counter, empty_late, late_rows
from engine.frames.places import apart
from engine.operators.operators import BatchTime, Operator, OperatorOutput, row_clock, row_numbers
from engine.plan.operators.table_filter import TableFilter
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.keys import Keys
from engine.state.sorted.versioned_table import MATCHED, TableBatch, VersionedTable

LATE_END: Final = 2
"""``_op`` of a delete that ends a late row in the result's history. To all who read the result it is a delete like any other; it has a
code of its own because the corpora, which compare what is told change by change, leave a late row without an end (STRICT 7)."""


class TableFilterer(Operator):
    """Keeps which of a table's versions, or latest rows, passed.

    Over a versioned table the result is versioned: every accepted row that passes goes on with its own time, also one out of order;
    a delete only where the result has a row as of the delete's own time. A delete that was not told so follows, as ``LATE_END``, the late
    row that would otherwise not end there. Over an unversioned table the latest by arrival counts.

    Counted are ``null_key``, ``table_history_expired`` (V1; kept as late rows) and, for an unversioned table, ``out_of_order``; and what
    the condition could not compute (``engine.expressions.values.evaluation_errors``).

    Args:
        spec: what to do.
        schema: columns of the running table.
        state: what ``snapshot`` returned, or None. ``spec`` may differ from the one it was made with in retention.
        store: where the versions live.
    """

    def __init__(self, spec: TableFilter, schema: Schema, state: dict[str, Any] | None, store: SegmentStore) -> None:
        state = state or {}
        self.name: str = spec.name
        self.schema = schema
        self._spec = spec
        self._hashing = store.hashing
        scalar = compile_scalar(spec.condition, schema)
        self._condition = scalar.expr
        self._gaps = GapCounter(spec.name, [scalar])
        kept_retention_ms = spec.history_retention_ms if spec.is_result_versioned else None
        self._passed = VersionedTable(
            schema.select(spec.key), spec.key, kept_retention_ms, state.get("passed"), store, keeps_deletes=False
        )
        self._next: int = state.get("next", 0)

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:  # noqa: ARG002
        """Handle the next changes; see ``Operator.process``."""
        if frame.is_empty():
            return OperatorOutput(frame)
        counters: Counters = {}
        frame = frame.with_columns(self._hashing.of(frame, self._spec.key))
        if null_keys := frame.get_column(KEY_HASH).null_count():
            add_counter(counters, self.name, "null_key", null_keys)
            frame = frame.filter(pl.col(KEY_HASH).is_not_null())
        frame, late = self._accepted(frame, moment, counters)
        self._gaps.count(frame, counters)
        is_delete = self._is_delete(frame)
        was_there, ends = self._put(frame, is_delete, moment.clock, counters)
        emitted, ended = np.flatnonzero(~is_delete | was_there), np.flatnonzero(ends != AFTER_ALL_TIME)
        rows = np.concatenate([emitted, ended])
        order = np.argsort(rows, kind="stable")
        times = np.concatenate([frame.get_column(TS).to_numpy()[emitted], ends[ended]])[order]
        ops = np.concatenate([is_delete[emitted], np.full(len(ended), LATE_END)])[order]
        changes = apart(frame[rows[order]].with_columns(pl.Series(TS, times)), (order >= len(emitted)).astype(np.int64))
        return OperatorOutput(self._as_deletes(changes, ops), late, counters)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"passed": self._passed.snapshot(), "next": self._next}

    def _accepted(self, frame: pl.DataFrame, moment: BatchTime, counters: Counters) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Reject what is older than the retained history (V1)."""
        if self._spec.history_retention_ms is None:
            return frame, empty_late()
        before = moment.before(frame)
        is_rejected = frame.get_column(TS).to_numpy() < before - self._spec.history_retention_ms
        rejected = np.flatnonzero(is_rejected)
        add_counter(counters, self.name, "table_history_expired", len(rejected))
        late = late_rows(frame[rejected], self.name, "table_history_expired", pl.Series(before[rejected]))
        return frame[np.flatnonzero(~is_rejected)], late

    def _is_delete(self, frame: pl.DataFrame) -> Bools:
        """Say which changes leave no row: deletes, and rows for which the condition is not true."""
        passes = frame.select(self._condition.alias(OP)).to_series().fill_null(False)
        is_delete: Bools = (frame.get_column(OP).to_numpy() != 0) | ~passes.to_numpy()
        return is_delete

    def _put(self, frame: pl.DataFrame, is_delete: Bools, clock: Clock, counters: Counters) -> tuple[Bools, I64]:
        """Remember what passed.

        Returns:
            Whether the result had a row before, as of each delete's own time, unspecified for rows; and when each row ends with a
            delete that was not told before, ``AFTER_ALL_TIME`` for never.
        """
        sequence = row_numbers(self._next, frame.height)
        self._next += 2 * frame.height
        puts = frame[[*SERVICE_COLUMNS, *self._spec.key]]
        numbered = puts.with_columns(pl.Series(POS, sequence), pl.Series(OP, is_delete.astype(np.int8)))
        batch = self._passed.open(numbered, row_clock(clock, frame, sequence))
        if self._passed.retention_ms is None:
            add_counter(counters, self.name, "out_of_order", batch.out_of_order())
        was_there, ends = np.full(frame.height, self._spec.tells_every_delete), np.full(frame.height, AFTER_ALL_TIME)
        if not self._spec.tells_every_delete:
            if self._passed.retention_ms is not None:
                was_there, ends = _in_history(batch, puts, self._spec.key, sequence, is_delete)
            elif is_delete.any():
                asked = np.flatnonzero(is_delete)
                deletes = puts[asked]
                hashes, times = (deletes.get_column(name).to_numpy() for name in (KEY_HASH, TS))
                key = [deletes.get_column(name) for name in self._spec.key]
                was_there[asked] = batch.lookup(hashes, key, times, sequence[asked]).status == MATCHED
        self._passed.commit(batch)
        return was_there, ends

    def _as_deletes(self, frame: pl.DataFrame, ops: I64) -> pl.DataFrame:
        """Give deletes their form: of the columns only the key is filled."""
        if not ops.any():
            return frame
        others = [name for name in self.schema.names if name not in self._spec.key]
        is_row = pl.lit(pl.Series(ops == 0))
        nulled = [pl.when(is_row).then(pl.col(name)).alias(name) for name in others]
        return frame.with_columns(pl.Series(OP, ops.astype(np.int8)), *nulled)


def _in_history(
    batch: TableBatch, puts: pl.DataFrame, key: tuple[str, ...], sequence: I64, is_delete: Bools
) -> tuple[Bools, I64]:
    """Say where the result had a row as of each change's own time, and when rows end with a delete that was not told before.

    A delete was told where a row is directly before it. So it has to be told where a late row comes before it, and none was there.
    """
    touched, keys = Keys.of(puts.get_column(KEY_HASH).to_numpy(), [puts.get_column(name) for name in key])
    times = puts.get_column(TS).to_numpy()
    since = np.full(len(touched.hashes), AFTER_ALL_TIME)
    np.minimum.at(since, keys, times)
    versions, search = batch.versions_of(touched, since)
    is_row = versions.get_column(OP).to_numpy()[search.rows] == 0

    def is_there(changes: I64, when: I64) -> Bools:
        places = search.as_of(keys[changes], when, sequence[changes])
        found: Bools = (places >= 0) & is_row[places]
        return found

    was_there = is_there(np.arange(len(times)), times)
    ends = np.full(len(times), AFTER_ALL_TIME)
    begun = np.flatnonzero(~is_delete & ~was_there)
    next_times = search.next_times(keys[begun], times[begun], sequence[begun])
    is_followed = next_times != AFTER_ALL_TIME
    begun, next_times = begun[is_followed], next_times[is_followed]
    is_ended = ~is_there(begun, next_times)
    ends[begun[is_ended]] = next_times[is_ended]
    return was_there, ends
