"""The two sides of a table-table join during one batch, and the changes of both in the order in which they count.

What follows from a change is decided elsewhere: ``table_table`` for the latest rows, ``table_history`` for all versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from engine.expressions.types.types import Schema
from engine.frames.clocks import I64, Bools, Clock
from engine.frames.frames import KEY_HASH, OP, POS, SERVICE_COLUMNS, TS, Counters, add_counter, late_rows
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.keys import Keys, united
from engine.state.sorted.version_search import VersionSearch
from engine.state.sorted.versioned_table import TableBatch, VersionedTable

JoinType = Literal["inner", "left", "right", "outer"]


def has_result(join: JoinType, is_left: Bools, is_right: Bools) -> Bools:
    """Say where a join has a row, given where its sides have one."""
    if join == "inner":
        return is_left & is_right
    if join == "outer":
        return is_left | is_right
    return is_left if join == "left" else is_right


@dataclass(frozen=True, slots=True)
class SideBatch:
    """One side during a batch.

    Attributes:
        table: reads and judgements of the batch.
        rows: the accepted changes with service columns and payload; ``_pos`` as the frame had it.
        sequence: place of each in the join's own total order.
        key: key columns of the rows.
    """

    table: TableBatch
    rows: pl.DataFrame
    sequence: I64
    key: tuple[str, ...]


class JoinSide:
    """One side's state: a table whose positions are the join's own total order.

    A frame may hold several rows of one ``_pos``, and both sides need one order; so the join numbers all rows it meets, across
    batches, and the table knows these numbers only, and its time over them.

    Args:
        operator: the join's name, for counters.
        columns: columns of the side that are kept, its key among them.
        key: key columns.
        retention_ms: R, or None for an unversioned table.
        state: what ``snapshot`` returned, or None.
        store: where versions live.
    """

    def __init__(
        self,
        operator: str,
        columns: Schema,
        key: tuple[str, ...],
        retention_ms: int | None,
        state: dict[str, Any] | None,
        store: SegmentStore,
    ) -> None:
        self._operator = operator
        self._columns = [*SERVICE_COLUMNS, *columns.names]
        self._key = key
        self._hashing = store.hashing
        self.is_versioned = retention_ms is not None
        self.table = VersionedTable(columns, key, retention_ms, state, store, keeps_deletes=False)

    def open(self, frame: pl.DataFrame, sequence: I64, clock: Clock, counters: Counters, late: list[pl.DataFrame]) -> SideBatch:
        """Judge a batch's rows (T6, V1).

        Args:
            frame: rows with service columns and payload, in processing order.
            sequence: place of each in the join's total order, ascending.
            clock: the table's time over that order.
            counters: gets ``null_key`` and ``table_history_expired``.
            late: gets the rows V1 rejected.
        """
        frame = frame[self._columns].with_columns(self._hashing.of(frame, self._key))
        if null_keys := frame.get_column(KEY_HASH).null_count():
            add_counter(counters, self._operator, "null_key", null_keys)
            kept = frame.get_column(KEY_HASH).is_not_null()
            frame, sequence = frame.filter(kept), sequence[kept.to_numpy()]
        batch = self.table.open(frame.with_columns(pl.Series(POS, sequence)), clock)
        if not batch.accepted.all():
            rejected = np.flatnonzero(~batch.accepted)
            add_counter(counters, self._operator, "table_history_expired", len(rejected))
            times = pl.Series(batch.times_before[rejected])
            late.append(late_rows(frame[rejected], self._operator, "table_history_expired", times))
            accepted = np.flatnonzero(batch.accepted)
            frame, sequence = frame[accepted], sequence[accepted]
        return SideBatch(batch, frame, sequence, self._key)


@dataclass(frozen=True, slots=True)
class Changes:
    """The accepted changes of both sides, in the join's total order.

    Attributes:
        distinct: the keys.
        keys: number of each change's key.
        is_left: which side changed.
        rows: row of the side's ``SideBatch.rows``.
        times: event time.
        is_row: False for a tombstone.
        sequence: place in the total order.
    """

    distinct: Keys
    keys: I64
    is_left: Bools
    rows: I64
    times: I64
    is_row: Bools
    sequence: I64

    @staticmethod
    def of(left: SideBatch, right: SideBatch) -> Changes:
        """Bring the changes of both sides into one order."""
        sequence = np.concatenate([left.sequence, right.sequence])
        order = np.argsort(sequence, kind="stable")  # two ascending runs: merged in linear time
        is_left = order < len(left.sequence)
        values = [
            united(left.rows.get_column(own), right.rows.get_column(other))
            for own, other in zip(left.key, right.key, strict=True)
        ]
        distinct, keys = Keys.of(_joined(left, right, KEY_HASH), values)
        return Changes(
            distinct=distinct,
            keys=keys[order],
            is_left=is_left,
            rows=np.where(is_left, order, order - len(left.sequence)),
            times=_joined(left, right, TS)[order],
            is_row=_joined(left, right, OP)[order] == 0,
            sequence=sequence[order],
        )


def _joined(left: SideBatch, right: SideBatch, column: str) -> Any:
    return np.concatenate([side.rows.get_column(column).to_numpy() for side in (left, right)])


@dataclass(frozen=True, slots=True)
class SideReads:
    """One side's versions of the keys that changed.

    Attributes:
        versions: rows with ``_ts``, ``_op`` and payload.
        search: finds them; its places are meant by "place".
        is_row: by place, False for a tombstone.
        first_new: row of ``versions`` of the side's first change.
    """

    versions: pl.DataFrame
    search: VersionSearch
    is_row: Bools
    first_new: int

    @staticmethod
    def of(side: SideBatch, changes: Changes, since: I64 | None = None) -> SideReads:
        """Read the side; ``since`` as in ``TableBatch.versions_of``."""
        versions, search = side.table.versions_of(changes.distinct, since)
        is_row = versions.get_column(OP).to_numpy()[search.rows] == 0
        return SideReads(versions, search, is_row, versions.height - side.rows.height)

    def holds(self, places: I64) -> Bools:
        """Say at which places there is a row; a place of -1 is none."""
        found = places >= 0
        if len(self.is_row):
            found &= self.is_row[places]
        return found

    def times_at(self, places: I64, otherwise: int) -> I64:
        """Return the event times of versions, ``otherwise`` for a place of -1."""
        if not len(self.is_row):
            return np.full(len(places), otherwise, np.int64)
        return np.where(places >= 0, self.search.times[places], otherwise)

    def rows_at(self, places: I64) -> I64:
        """Return rows of ``versions``, -1 where there is none or a tombstone."""
        if not len(self.is_row):
            return np.full(len(places), -1, np.int64)
        return np.where(self.holds(places), self.search.rows[places], -1)


@dataclass(frozen=True, slots=True)
class Results:
    """What the join emits, in order.

    Attributes:
        changes: index of the change that causes each.
        times: event time.
        left_rows: row of the left side's ``SideReads.versions``; -1 for none. Of no matter for a delete.
        right_rows: the same of the right side.
        is_delete: whether it is a delete.
    """

    changes: I64
    times: I64
    left_rows: I64
    right_rows: I64
    is_delete: Bools


def merged_order(left: pl.DataFrame, right: pl.DataFrame) -> I64:
    """Return both sides' rows in one order by ``_pos``, the left ones first: no position is shared, each record has one side."""
    positions = [frame.get_column(POS).to_numpy() for frame in (left, right)]
    return np.argsort(np.concatenate(positions), kind="stable")  # two ascending runs: merged in linear time
