"""The stream-table join (J1–J11): a stream, a table, and perhaps a grace buffer and a hold between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.expressions.types.types import STRING, Schema
from engine.frames.clocks import Bools, Clock
from engine.frames.frames import (
    KEY_HASH,
    OP,
    POS,
    RANK,
    TS,
    WHOLE_CHARS,
    Counters,
    add_counter,
    empty_frame,
    empty_late,
    late_rows,
    only,
    values_taken,
    with_series,
    without,
)
from engine.frames.places import levels, ranked
from engine.operators.joins.grace_buffer import PASSING, GraceBuffer
from engine.operators.joins.hold_buffer import BUFFERED_AT, HoldBuffer
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.operators.pending.spans import Span
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.segment_list import taken, taken_or_null
from engine.state.sorted.versioned_table import (
    DELETED,
    HISTORY_EXPIRED,
    MATCH_NAMES,
    MATCHED,
    NO_VERSION,
    NULL_KEY,
    TableBatch,
    VersionedTable,
    Versions,
)

_LATE_REASONS: Final = {"join": "late_joined", "drop": "late_dropped", "divert": "late_diverted"}

_EXPIRED_REASONS: Final = {"drop": "expired_dropped", "divert": "expired_diverted"}
"""Why such a row is kept for reading; the counter is ``history_expired`` whatever the policy."""

_MATCH: Final = pl.Series(MATCH_NAMES)


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """Whether ``_key_hash`` already is the hash of the join key; else it is computed.

    Attributes:
        is_stream_hashed: of the stream's records.
        is_table_hashed: of the table's records.
    """

    is_stream_hashed: bool
    is_table_hashed: bool


class StreamTableJoiner(Operator):
    """One stream-table join of a stage.

    Args:
        spec: what to do.
        stream: columns of the running stream.
        table: columns of the table input (qualified).
        keys: see ``JoinKeys``.
        state: what ``snapshot`` returned, or None. ``spec`` may differ from the one it was made with in late and expired, in how
            long the grace is and in the bounds of the hold, not in whether it has them.
        store: where versions and waiting rows live.
    """

    def __init__(
        self,
        spec: StreamTableJoin,
        stream: Schema,
        table: Schema,
        keys: JoinKeys,
        state: dict[str, Any] | None,
        store: SegmentStore,
    ) -> None:
        state = state or {}
        self.name = spec.name
        self._spec = spec
        self._keys = keys
        self._hashing = store.hashing
        self._match = f"{spec.name}.$match"
        carried = [name for name in table.names if name in spec.table_columns or name in spec.table_key]
        self.schema = Schema((*stream.items(), *((name, table[name]) for name in spec.table_columns), (self._match, STRING)))
        self._nothing = empty_frame(self.schema)
        self._table = VersionedTable(table.select(carried), spec.table_key, spec.history_retention_ms, state.get("table"), store)
        self._buffer = GraceBuffer(spec.grace_ms or 0, spec.late, state.get("buffer"), store)
        self._hold = None if spec.hold is None else HoldBuffer(spec.hold, spec.table_index, state.get("hold"), store)

    @property
    def buffered_rows(self) -> int:
        """Stream records waiting for the grace or held for the table."""
        return self._buffer.rows + (0 if self._hold is None else self._hold.rows)

    @property
    def waiting(self) -> dict[str, list[Span]]:
        """Stream records by event time, and those held by the wall clock since when they wait."""
        own = {self._spec.name: self._buffer.spans}
        return own if self._hold is None else {**own, f"{self._spec.name}.hold": self._hold.spans}

    @property
    def oldest_ms(self) -> int | None:
        """The smallest event time that waits for either."""
        known = (self._buffer.earliest_ms, None if self._hold is None else self._hold.earliest_ms)
        return min((ms for ms in known if ms is not None), default=None)

    @property
    def due_ms(self) -> int | None:
        """The time at which the grace releases the next record."""
        return self._buffer.due_ms

    @property
    def wakes_at_ms(self) -> int | None:
        """The wall clock at which the hold lets a record go whatever the table's progress (J9)."""
        return None if self._hold is None else self._hold.wakes_at_ms

    def is_due(self, moment: BatchTime) -> bool:
        """See ``Operator``: the table may have been read further, too."""
        return super().is_due(moment) or (self._hold is not None and self._hold.is_due(moment))

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        own = {"table": self._table.snapshot(), "buffer": self._buffer.snapshot()}
        return own if self._hold is None else {**own, "hold": self._hold.snapshot()}

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:
        """Handle the next records of both sides, then what the moment itself releases.

        Args:
            frame: the stream's rows in processing order.
            inputs: the table's records of the same batch under ``spec.table_index``.
            moment: when; the hold (J9) releases at its position, behind every put of the batch.

        Returns:
            Rows with the columns of ``schema``. Counters and late rows carry the join's name. Counted are the misses of
            ``MATCH_NAMES``, ``late_joined late_dropped late_diverted null_value hold_expired``, and of the table
            ``table_history_expired table_null_key out_of_order``. Late rows have the reasons ``late_dropped late_diverted
            expired_dropped expired_diverted table_history_expired``.
        """
        puts = inputs.get(self._spec.table_index)
        counters: Counters = {}
        late: list[pl.DataFrame] = []
        batch = self._put(puts, moment.tables[self._spec.table_index], counters, late)
        due = self._due(frame, moment, counters, late)
        output = self._nothing if due.is_empty() else self._joined(due, batch, counters, late)
        if puts is not None:
            self._table.commit(batch)
        late = [part for part in late if part.height]
        return OperatorOutput(output, pl.concat(late) if late else empty_late(), counters)

    def replay(self, frame: pl.DataFrame, moment: BatchTime) -> OperatorOutput:
        """Join late records now, as of their own times: they are not judged again, move no clock and wait for nothing.

        Args:
            frame: the stream's rows, behind every put.
            moment: the batch's.

        Returns:
            As of ``process``; ``replayed`` counts them.
        """
        counters: Counters = {}
        late: list[pl.DataFrame] = []
        add_counter(counters, self._spec.name, "replayed", frame.height)
        output = self._joined(frame, self._table.open(None, moment.tables[self._spec.table_index]), counters, late)
        late = [part for part in late if part.height]
        return OperatorOutput(output, pl.concat(late) if late else empty_late(), counters)

    def _put(self, puts: pl.DataFrame | None, clock: Clock, counters: Counters, late: list[pl.DataFrame]) -> TableBatch:
        """Judge the table's records by the table's time (T6, V1, V7)."""
        if puts is None:
            return self._table.open(None, clock)
        name = self._spec.name
        if not self._keys.is_table_hashed:
            puts = with_series(puts, self._hashing.of(puts, self._spec.table_key))
        if null_keys := puts.get_column(KEY_HASH).null_count():
            add_counter(counters, name, "table_null_key", null_keys)
            puts = puts.filter(pl.col(KEY_HASH).is_not_null())
        batch = self._table.open(puts, clock)
        if self._spec.history_retention_ms is None:
            add_counter(counters, name, "out_of_order", batch.out_of_order())
        rejected = np.flatnonzero(~batch.accepted)
        add_counter(counters, name, "table_history_expired", len(rejected))
        if len(rejected):
            clocks = pl.Series(batch.times_before[rejected])
            late.append(late_rows(taken(puts, rejected), name, "table_history_expired", clocks))
        return batch

    def _due(self, frame: pl.DataFrame, moment: BatchTime, counters: Counters, late: list[pl.DataFrame]) -> pl.DataFrame:
        """Choose what is looked up now, in output order: drop null values and keys, wait for the grace, then for the table."""
        name = self._spec.name
        is_delete = frame.get_column(OP).to_numpy() != 0
        if is_delete.any():
            add_counter(counters, name, "null_value", int(is_delete.sum()))
            frame = taken(frame, np.flatnonzero(~is_delete))
        is_null_key = self._null_keys(frame)
        if is_null_key is not None:
            add_counter(counters, name, "null_key", int(is_null_key.sum()))
            if self._spec.type == "inner":
                frame, is_null_key = taken(frame, np.flatnonzero(~is_null_key)), None
        marked = frame if self._hold is None else with_series(frame, pl.Series(BUFFERED_AT, np.full(frame.height, moment.now_ms)))
        if self._spec.grace_ms is None:
            is_passing = np.zeros(frame.height, np.bool_) if is_null_key is None else is_null_key
            return self._after_hold(marked, is_passing, moment, counters)
        due = self._buffer.process(marked, is_null_key, moment)
        reason = _LATE_REASONS[self._spec.late]
        add_counter(counters, name, reason, len(due.late))
        if self._spec.late != "join" and len(due.late):
            late.append(late_rows(taken(frame, due.late), name, reason, pl.Series(due.late_clocks), WHOLE_CHARS))
        return self._after_hold(due.frame, due.is_passing, moment, counters)

    def _after_hold(self, released: pl.DataFrame, is_passing: Bools, moment: BatchTime, counters: Counters) -> pl.DataFrame:
        """J9: return what passes in its place, then what the hold releases at the end of the batch."""
        if self._hold is None:
            return released
        let_go = self._hold.process(taken(released, np.flatnonzero(~is_passing)), moment)
        add_counter(counters, self._spec.name, "hold_expired", let_go.expired)
        passing = without(taken(released, np.flatnonzero(is_passing)), BUFFERED_AT)
        own = passing.get_column(RANK)
        return pl.concat([ranked(passing, PASSING, own, within=levels(own)), let_go.frame], rechunk=True)

    def _null_keys(self, frame: pl.DataFrame) -> Bools | None:
        """Say which rows have a null in the join key; None if there is none."""
        columns = [KEY_HASH] if self._keys.is_stream_hashed else self._spec.stream_key
        nulls = [frame.get_column(name) for name in columns if frame.get_column(name).null_count()]
        if not nulls:
            return None
        is_null: Bools = np.logical_or.reduce([column.is_null().to_numpy() for column in nulls])
        return is_null

    def _joined(self, due: pl.DataFrame, batch: TableBatch, counters: Counters, late: list[pl.DataFrame]) -> pl.DataFrame:
        """Look up, count misses by reason, apply the policies of the join."""
        hashed = due.get_column(KEY_HASH) if self._keys.is_stream_hashed else self._hashing.of(due, self._spec.stream_key)
        hashes = (hashed.fill_null(0) if hashed.null_count() else hashed).to_numpy()
        key = [due.get_column(name) for name in self._spec.stream_key]
        found = batch.lookup(hashes, key, due.get_column(TS).to_numpy(), due.get_column(POS).to_numpy())
        status, rows = found.status, found.rows
        is_null_key = self._null_keys(due)
        if is_null_key is not None:
            status[is_null_key], rows[is_null_key] = NULL_KEY, -1
        for code in (NO_VERSION, DELETED, HISTORY_EXPIRED):
            add_counter(counters, self._spec.name, MATCH_NAMES[code], int((status == code).sum()))
        is_out = status != MATCHED if self._spec.type == "inner" else self._expired(status)
        if is_out.any():
            if self._spec.type == "left":
                gone = taken(due, np.flatnonzero(is_out))
                late.append(late_rows(gone, self._spec.name, _EXPIRED_REASONS[self._spec.expired], None, WHOLE_CHARS))
            kept = np.flatnonzero(~is_out)
            due, status, rows = taken(due, kept), status[kept], rows[kept]
        return self._assembled(due, Versions(status, rows, found.versions))

    def _expired(self, status: NDArray[np.int8]) -> Bools:
        """Say which rows a left join leaves out because it met expired history."""
        is_left_out: Bools = (status == HISTORY_EXPIRED) & (self._spec.expired != "null")
        return is_left_out

    def _assembled(self, due: pl.DataFrame, found: Versions) -> pl.DataFrame:
        """Put the table's columns and ``$match`` beside the stream's."""
        columns: list[pl.Series] = []
        if self._spec.table_columns:
            columns = taken_or_null(only(found.versions, *self._spec.table_columns), found.rows).get_columns()
        return due.hstack([*columns, values_taken(_MATCH, found.status).alias(self._match)])
