"""The newest row of each key: what joins of tables need of a table, however long its history.

``LatestIndex`` keeps rows in ``hash_segments``; one hash may have many rows. ``LatestTable`` judges a
table's changes by V1, V7 and TT2 and says which row each one replaces. A batch is opened, read and then committed:

    batch = table.open(puts, probes)          # reads the touched keys only
    found = batch.before(keys, sequence)      # the latest row at any place
    table.commit(batch)                       # appends one segment

Rows are distinguished by ``_pos``, which here is the operator's own count of what it handled: it rises from row to row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from engine.expressions.types.types import Schema
from engine.frames.clocks import BEFORE_ALL_TIME, I64, Bools
from engine.frames.frames import KEY_HASH, OP, POS, TS, Counters, add_counter, late_rows
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.hash_segments import HashSegments
from engine.state.sorted.keys import NO_KEY, Keys, different_keys, layers, united
from engine.state.sorted.running import Groups
from engine.state.sorted.sorted_search import U64, distinct, key_order, search

INDEX_COLUMNS: Final = {KEY_HASH: pl.UInt64(), TS: pl.Int64(), POS: pl.Int64(), OP: pl.Int8()}


class LatestIndex:
    """Rows by (``_key_hash``, further hashes); of rows that agree in those the one with the greatest ``_pos`` counts.

    A delete hides older rows, and goes when a merge leaves nothing older that it could hide.

    Args:
        state: what ``snapshot`` returned, or None.
        hashes: the columns that identify a row, ``_key_hash`` first.
        key_columns: payload columns of the key, which tell rows of equal hashes apart.
        step_rows: how many are merged at once; None: ``MERGED_AT_ONCE``.
    """

    def __init__(
        self,
        store: SegmentStore,
        state: list[dict[str, Any]] | None,
        hashes: Sequence[str] = (KEY_HASH,),
        key_columns: Sequence[str] = (),
        *,
        step_rows: int | None = None,
    ) -> None:
        self._segments = HashSegments(store, state, KEY_HASH, step_rows)
        self._hashes = tuple(hashes)
        self._key_columns = tuple(key_columns)

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the manifest and tell the store what it no longer names."""
        return self._segments.snapshot()

    def rows_of(self, hashes: U64) -> list[pl.DataFrame]:
        """Return all rows with these values of ``_key_hash`` (distinct, ascending), older segments first."""
        return self._segments.matching(hashes)

    def append(self, frame: pl.DataFrame, horizon: int | None = None) -> None:
        """Add rows that are newer than all before, in any order.

        Args:
            frame: the rows.
            horizon: deletes before this time may be forgotten; None: all may.
        """
        if frame.height:
            new = self._newest(self._sorted(frame, is_merge=False))
            self._segments.append(new, lambda slices, is_all: self._merged(slices, is_all, horizon))

    def _merged(self, slices: list[pl.DataFrame], is_all: bool, horizon: int | None) -> pl.DataFrame:
        """Merge slices, older ones first; where nothing older is left, forget deletes."""
        frame = pl.concat(slices, rechunk=True)
        if len(slices) > 1:
            frame = self._newest(self._sorted(frame, is_merge=True))
        if not is_all:
            return frame
        is_kept = pl.col(OP) == 0
        return frame.filter(is_kept if horizon is None else is_kept | (pl.col(TS) >= horizon))

    def _sorted(self, frame: pl.DataFrame, *, is_merge: bool) -> pl.DataFrame:
        if len(self._hashes) > 1:
            return frame.sort(*self._hashes, POS)
        hashes, positions = (frame.get_column(name).to_numpy() for name in (KEY_HASH, POS))
        return frame[key_order(hashes, None, positions, is_merge=is_merge).rows]

    def _newest(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Keep the last of the rows that replace each other; ``frame`` is sorted."""
        hashes = [frame.get_column(name).to_numpy() for name in self._hashes]
        is_same = np.logical_and.reduce([each[1:] == each[:-1] for each in hashes])
        twins = np.flatnonzero(is_same)
        if not len(twins):
            return frame
        values = [frame.get_column(name) for name in self._key_columns]
        if not different_keys(values, twins, twins + 1).any():
            return frame[np.flatnonzero(np.append(~is_same, True))]
        keys = pl.DataFrame([*(frame.get_column(name) for name in self._hashes), pl.Series("layer", layers(hashes, values))])
        return frame.filter(keys.select(pl.struct(pl.all()).is_last_distinct()).to_series())


class LatestTable:
    """The latest row per key of one table in one task.

    Args:
        columns: payload columns of its frames.
        key_columns: those of them that are its key.
        retention_ms: R of V1, or None: nothing is too old.
        state: what ``snapshot`` returned, or None.
        is_by_time: a change that is older than the key's latest is ignored (TT2); False: the latest is the last by arrival (V7).
    """

    def __init__(
        self,
        columns: Schema,
        key_columns: Sequence[str],
        retention_ms: int | None,
        state: dict[str, Any] | None,
        store: SegmentStore,
        *,
        is_by_time: bool,
    ) -> None:
        state = state or {}
        self._retention_ms = retention_ms
        self._is_by_time = is_by_time
        self._empty = pl.DataFrame(schema={**INDEX_COLUMNS, **columns.polars()})
        self._key = tuple(key_columns)
        self._index = LatestIndex(store, state.get("rows"), key_columns=key_columns)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"rows": self._index.snapshot()}

    def open(self, puts: pl.DataFrame | None, times_before: I64 | None = None, probed: Probed | None = None) -> LatestBatch:
        """Judge a batch's changes and read the keys concerned.

        Args:
            puts: ``_key_hash`` (no null), ``_ts``, ``_pos`` (ascending), ``_op`` and payload, or None.
            times_before: T before each; of no matter where nothing is too old.
            probed: further keys that will be read.
        """
        frame = self._empty if puts is None else puts[self._empty.columns]
        checked = CheckedPuts.of(frame, times_before, self._retention_ms)
        return LatestBatch(self._index, checked, self._key, probed, is_by_time=self._is_by_time)

    def commit(self, batch: LatestBatch, time: int = BEFORE_ALL_TIME) -> None:
        """Take over the last row of each changed key.

        Args:
            batch: what ``open`` returned.
            time: T behind the batch; of no matter where nothing is too old.
        """
        horizon = None if self._retention_ms is None else time - self._retention_ms
        rows = np.flatnonzero(batch.is_new & batch.is_last)
        if self._retention_ms is None:  # a delete of what was never kept hides nothing
            rows = rows[(batch.ops[rows] == 0) | batch.has_stored[rows]]
        self._index.append(batch.rows[rows], horizon)


class Probed(NamedTuple):
    """Keys that are read: their hashes and the values of their columns, in the order of the table's key."""

    hashes: U64
    columns: Sequence[pl.Series]


@dataclass(frozen=True, slots=True)
class CheckedPuts:
    """A batch's changes under V1.

    Attributes:
        accepted: those that count.
        rejected: rows of the puts that V1 refuses.
        times_before: T before each of those.
    """

    accepted: pl.DataFrame
    rejected: I64
    times_before: I64

    @staticmethod
    def of(puts: pl.DataFrame, times_before: I64 | None, retention_ms: int | None) -> CheckedPuts:
        """Judge changes by the time before each."""
        nothing = np.empty(0, np.int64)
        if times_before is None or retention_ms is None:
            return CheckedPuts(puts, nothing, nothing)
        is_refused = puts.get_column(TS).to_numpy() < times_before - retention_ms
        rejected = np.flatnonzero(is_refused)
        accepted = puts[np.flatnonzero(~is_refused)] if len(rejected) else puts
        return CheckedPuts(accepted, rejected, times_before[rejected])


class LatestBatch:
    """A table's changes during one batch. Made by ``LatestTable.open``.

    Attributes:
        rejected: rows of the puts that V1 refuses.
        ignored: how many changes were older than their key's latest (TT2).
        keys: the touched keys.
        probed: number of each probed key.
        rows: the touched keys' rows by (key, ``_pos``): those kept, then the changes that count.
        numbers: number of each row's key.
        is_new: which rows are changes of this batch.
        previous: the row that each one replaces, -1 for none; it may be a delete.
        is_last: whether a row is the key's latest after the batch.
        has_stored: whether anything was kept of a row's key before the batch.
        times: ``_ts`` of the rows.
        ops: ``_op`` of the rows.
        sequence: ``_pos`` of the rows.
    """

    def __init__(
        self, index: LatestIndex, checked: CheckedPuts, key: tuple[str, ...], probed: Probed | None, *, is_by_time: bool
    ) -> None:
        self.rejected, self._times_before = checked.rejected, checked.times_before
        self._is_by_time = is_by_time
        puts = checked.accepted
        hashes, columns = puts.get_column(KEY_HASH).to_numpy(), _columns(puts, key)
        if probed is not None:
            hashes = np.concatenate([hashes, probed.hashes])
            columns = [united(own, other) for own, other in zip(columns, probed.columns, strict=True)]
        self.keys, numbers = Keys.of(hashes, columns)
        self.probed = numbers[puts.height :]
        frames, keys = [], []
        for stored in index.rows_of(distinct(self.keys.hashes) if self.keys.columns else self.keys.hashes):
            own = self.keys.numbers(stored.get_column(KEY_HASH).to_numpy(), _columns(stored, key))
            is_asked = own != NO_KEY
            frames.append(stored if is_asked.all() else stored.filter(pl.Series(is_asked)))
            keys.append(own[is_asked])
        frame = pl.concat([*frames, puts], rechunk=True)
        self._arrange(frame, np.concatenate([*keys, numbers[: puts.height]]), puts.height)

    def _arrange(self, frame: pl.DataFrame, numbers: I64, put_count: int) -> None:
        """Sort by key and arrival and leave out the changes that are not their key's latest."""
        sequence = frame.get_column(POS).to_numpy()
        order = key_order(numbers.view(np.uint64), None, sequence, is_merge=False).rows
        self.ignored = 0
        if self._is_by_time:
            keys = Groups.of(pl.DataFrame({"key": numbers[order]}))
            times = frame.get_column(TS).to_numpy()[order]
            is_latest = keys.latest(times) == times
            self.ignored = int((~is_latest).sum())
            order = order[is_latest]
        self.rows, self.numbers = frame[order], numbers[order]
        self.is_new: Bools = order >= frame.height - put_count
        is_same = self.numbers[1:] == self.numbers[:-1]
        self.is_last: Bools = np.append(~is_same, True)[: len(order)]
        is_first = np.append(True, ~is_same)[: len(order)]
        places = np.arange(len(order))
        self.previous: I64 = np.where(is_first, -1, places - 1)
        self.has_stored: Bools = ~self.is_new[np.maximum.accumulate(np.where(is_first, places, 0))]
        self.times, self.ops, self.sequence = (self.rows.get_column(name).to_numpy() for name in (TS, OP, POS))

    @property
    def is_replacing(self) -> Bools:
        """Whether each row replaces a row, not a delete and not nothing."""
        replaces: Bools = (self.previous >= 0) & (self.ops[self.previous] == 0)
        return replaces

    def checked(self, puts: pl.DataFrame, name: str, counters: Counters) -> pl.DataFrame:
        """Count ``table_history_expired`` (V1), ``not_latest`` (TT2) or ``out_of_order`` (V7); return the late rows.

        Out of order is a change that is older than the row it replaces; one that follows a delete replaces none.

        Args:
            puts: what the batch was opened with, with ``_offset``.
            name: the operator's.
            counters: to be added to.
        """
        if self._is_by_time:
            add_counter(counters, name, "not_latest", self.ignored)
        else:
            is_older = self.is_new & self.is_replacing & (self.times < self.times[self.previous])
            add_counter(counters, name, "out_of_order", int(is_older.sum()))
        add_counter(counters, name, "table_history_expired", len(self.rejected))
        return late_rows(puts[self.rejected], name, "table_history_expired", pl.Series(self._times_before))

    def before(self, keys: I64, sequence: I64) -> I64:
        """Find the latest row of keys that were probed or put.

        Args:
            keys: their numbers.
            sequence: each read sees what came before this place.

        Returns:
            Places in ``rows``; -1 where there is none or it is a delete.
        """
        if not len(self.ops):
            return np.full(len(keys), -1, np.int64)
        places = np.concatenate([self.sequence[self.is_new], sequence])
        first, end = (int(places.min()), int(places.max()) + 1) if len(places) else (0, 0)
        own = arrival_codes(self.numbers, self.sequence, first, end)
        found = search(own, arrival_codes(keys, sequence, first, end)) - 1
        is_there = (found >= 0) & (self.numbers[found] == keys) & (self.ops[found] == 0)
        return np.where(is_there, found, -1)


def _columns(frame: pl.DataFrame, names: Sequence[str]) -> list[pl.Series]:
    return [frame.get_column(name) for name in names]


def arrival_codes(keys: I64, sequence: I64, first: int, end: int) -> I64:
    """Encode (key, place) pairs as numbers of the same order.

    Args:
        keys: small numbers of the keys.
        sequence: the places.
        first: where the batch begins; all places before it count as one.
        end: where it ends; all places from there on count as one.
    """
    codes: I64 = keys * (end - first + 2) + np.clip(sequence - first, -1, end - first) + 1
    return codes
