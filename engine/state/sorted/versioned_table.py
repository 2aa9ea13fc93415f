"""Tables as joins read them: versioned (V1–V6, V8) or the latest by arrival (V7).

A batch is opened with all its puts, read at any positions, and then committed:

    batch = table.open(puts)          # judges puts by V1, each against the clock before it
    found = batch.lookup(hashes, columns, times, positions)
    table.commit(batch)               # appends one segment

Reads between see exactly the puts before their own position, whatever the batch holds after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.expressions.types.types import Schema
from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64, Bools, Clock
from engine.frames.frames import KEY_HASH, OP, POS, TS, only
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.key_index import FORGOTTEN, KeyIndex, Part
from engine.state.sorted.keys import NO_KEY, Keys
from engine.state.sorted.segment_list import taken
from engine.state.sorted.sorted_search import U64, distinct
from engine.state.sorted.version_search import VersionSearch

I8 = NDArray[np.int8]

MATCHED, NO_VERSION, DELETED, HISTORY_EXPIRED, NULL_KEY = range(5)
"""Codes of what a lookup met; places in ``MATCH_NAMES``."""

MATCH_NAMES: Final = ("matched", "no_version", "deleted", "history_expired", "null_key")

_INDEX_COLUMNS: Final = {KEY_HASH: pl.UInt64(), TS: pl.Int64(), POS: pl.Int64(), OP: pl.Int8()}


@dataclass(frozen=True, slots=True)
class Versions:
    """Answers to a batch of lookups.

    Attributes:
        rows: row in ``versions`` of each answer; -1 unless the status is ``MATCHED``.
        versions: the versions of the touched keys with their payload.
        valid_to: time of the next version, ``AFTER_ALL_TIME`` for none; only where asked for.
    """

    status: I8
    rows: I64
    versions: pl.DataFrame
    valid_to: I64 | None = None


@dataclass(frozen=True, slots=True)
class History:
    """Versions of one key by time.

    Attributes:
        versions: rows with ``_ts`` and payload, ascending.
        valid_to: time of each one's next version, ``AFTER_ALL_TIME`` for the open one.
        is_truncated: the range asked for begins before the retained history.
    """

    versions: pl.DataFrame
    valid_to: I64
    is_truncated: bool


class VersionedTable:
    """The state of one table in one task.

    Args:
        columns: payload columns of its frames.
        key_columns: those of them that are its key.
        retention_ms: R of V1, or None for an unversioned table.
        state: what ``snapshot`` returned, or None.
        keeps_deletes: whether reads tell a deleted key from one that never was.
    """

    def __init__(
        self,
        columns: Schema,
        key_columns: Sequence[str],
        retention_ms: int | None,
        state: dict[str, Any] | None,
        store: SegmentStore,
        *,
        keeps_deletes: bool = True,
    ) -> None:
        state = state or {}
        self.retention_ms = retention_ms
        self._empty = pl.DataFrame(schema={**_INDEX_COLUMNS, **columns.polars()})
        self._key = tuple(key_columns)
        is_by_time = retention_ms is not None
        self.index = KeyIndex(
            store, state.get("versions"), is_by_time=is_by_time, key_columns=key_columns, keeps_deletes=keeps_deletes
        )

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"versions": self.index.snapshot()}

    def open(self, puts: pl.DataFrame | None, clock: Clock) -> TableBatch:
        """Judge a batch's puts.

        Args:
            puts: service columns and payload, ascending distinct ``_pos``, no null ``_key_hash``; ``_op`` 1 is a tombstone.
            clock: T, the table's time over the same places.
        """
        frame = self._empty if puts is None else only(puts, *self._empty.columns)
        return TableBatch(self.index, frame, clock, self.retention_ms, self._key)

    def commit(self, batch: TableBatch, keep_from: int = AFTER_ALL_TIME, deletes_from: int = AFTER_ALL_TIME) -> None:
        """Take over a batch's accepted puts.

        Args:
            batch: what ``open`` returned.
            keep_from: a time before T - R from which on versions are kept for reads by ``TableBatch.versions_of``.
            deletes_from: a time from which on a key's latest tombstone is kept for these reads, also of an unversioned table.
        """
        changes = batch.accepted_puts if batch.forgotten.is_empty() else pl.concat([batch.accepted_puts, batch.forgotten])
        self.index.append(changes, min(batch.horizon, keep_from), deletes_from)


class TableBatch:
    """A table during one batch: reads at positions. Made by ``VersionedTable.open``.

    Attributes:
        accepted: which puts were accepted (V1).
        times_before: T before each put.
        accepted_puts: their rows.
        forgotten: tombstones that the puts found forgotten, as ``FORGOTTEN`` rows at the places of those puts.
    """

    def __init__(self, index: KeyIndex, puts: pl.DataFrame, clock: Clock, retention_ms: int | None, key: tuple[str, ...]) -> None:
        self._index = index
        self._key = key
        self._retention_ms = retention_ms
        self._clock = clock
        self._put_positions = puts.get_column(POS).to_numpy()
        times = puts.get_column(TS).to_numpy()
        self.times_before = clock.before(self._put_positions)
        self.accepted = np.ones(len(times), np.bool_) if retention_ms is None else times >= self.times_before - retention_ms
        self.accepted_puts = puts if self.accepted.all() else puts[np.flatnonzero(self.accepted)]
        self._puts = puts
        self.forgotten = self.accepted_puts.clear()
        if index.keeps_deletes and self._has_old_deletes():
            self.forgotten = self._forgotten()

    @property
    def horizon(self) -> int:
        """T - R after the batch; before all time for an unversioned table."""
        return BEFORE_ALL_TIME if self._retention_ms is None else self._clock.end - self._retention_ms

    def horizons(self, positions: I64) -> I64:
        """Return T - R as of the puts up to and with each position; before all time for an unversioned table."""
        if self._retention_ms is None:
            return np.full(len(positions), BEFORE_ALL_TIME)
        return self._clock.upto(positions) - self._retention_ms

    def versions_of(self, keys: Keys, since: I64 | None = None) -> tuple[pl.DataFrame, VersionSearch]:
        """Gather the versions of some keys, tombstones included, and what finds them at positions; no retention is applied.

        Args:
            keys: whose.
            since: per key, the earliest time asked for; None: only latest reads are asked for.

        Returns:
            The versions, of which those of the batch's puts come last in the order of ``accepted_puts`` where all their keys are
            asked for; and the search, whose ``rows`` are rows of them.
        """
        open_end = np.full(len(keys.hashes), AFTER_ALL_TIME)
        return self._search(keys, open_end if since is None else since, open_end)

    def lookup(
        self, hashes: U64, columns: Sequence[pl.Series], times: I64, positions: I64, *, with_valid_to: bool = False
    ) -> Versions:
        """Read as of event times (V4), or the latest by arrival of an unversioned table (V7).

        Args:
            hashes: of the key of each probe.
            columns: values of the key of each probe, in the order of the table's key.
            times: as of when; ``AFTER_ALL_TIME`` reads the latest (V5).
            positions: each probe sees the puts before its position.
            with_valid_to: fill ``Versions.valid_to`` (reads every retained version of the touched keys).
        """
        touched, keys = Keys.of(hashes, columns)
        low, high = (None, None) if with_valid_to else _extremes(keys, times, len(touched.hashes))
        versions, search = self._search(touched, low, high)
        if versions.is_empty():
            nothing = np.full(len(keys), -1, np.int64)
            return Versions(np.full(len(keys), NO_VERSION, np.int8), nothing, versions, np.full(len(keys), AFTER_ALL_TIME))
        horizon = self._horizon_at(positions)
        ops = versions.get_column(OP).to_numpy()[search.rows]
        is_tombstone = ops != 0
        if self._retention_ms is None:
            places = search.latest(keys, positions)
            status = np.where(places >= 0, MATCHED, NO_VERSION).astype(np.int8)
        else:
            status, places = _read_as_of(search, is_tombstone, keys, times, positions, horizon)
        valid_to = (
            search.next_times(keys, np.where(places >= 0, search.times[places], times), positions) if with_valid_to else None
        )
        deleted = np.flatnonzero(is_tombstone[places] & (status == MATCHED))
        if len(deleted):
            own = places[deleted]
            is_latest = search.latest(keys[deleted], positions[deleted]) == own
            is_none = (ops[own] == FORGOTTEN) | (is_latest & (search.times[own] < horizon[deleted]))
            status[deleted] = np.where(is_none, NO_VERSION, DELETED)
        rows = np.where(status == MATCHED, search.rows[places], -1)
        return Versions(status, rows, versions, valid_to)

    def put_valid_to(self) -> I64:
        """Return for each accepted put, as of its position, when its key's next version begins; ``AFTER_ALL_TIME`` for none."""
        frame = self.accepted_puts
        touched, keys = self._keys_of(frame)
        _, search = self._search(touched, None, None)
        return search.next_times(keys, frame.get_column(TS).to_numpy(), frame.get_column(POS).to_numpy())

    def history(self, key: int, columns: Sequence[pl.Series], start: int | None, stop: int | None, position: int) -> History:
        """Read every version that some as-of read in ``[start, stop]`` answers (V6, STRICT 13); None is unbounded.

        Args:
            key: the key's hash.
            columns: its values, one of each column.
            start: first time asked for.
            stop: last time asked for.
            position: the read sees the puts before it.
        """
        versions, search = self._search(Keys.of(np.array([key], np.uint64), columns)[0], None, None)
        places = search.of_key(0, position)
        times = search.times[places]
        ends = np.append(times[1:], AFTER_ALL_TIME)[: len(times)]
        earliest = BEFORE_ALL_TIME if start is None else start
        latest = AFTER_ALL_TIME if stop is None else stop
        horizon = int(self._horizon_at(np.array([position]))[0])
        rows = search.rows[places]
        is_row = versions.get_column(OP).to_numpy()[rows] == 0
        is_met = is_row & (times <= latest) & (ends > max(earliest, horizon))
        if latest < horizon:
            is_met &= ends == AFTER_ALL_TIME
        return History(versions[rows[is_met]], ends[is_met], earliest < horizon)

    def out_of_order(self) -> int:
        """Count the puts whose event time is before that of the key's put before them by arrival (V7).

        Where deletes are not kept, one that follows a delete has none before it.
        """
        puts = self._puts
        if puts.is_empty():
            return 0
        keys, numbers = self._keys_of(puts)
        before = self._index.find(keys)
        numbers = np.concatenate([*(part.keys for part in before), numbers])
        frames = [*(part.frame for part in before), puts]
        times, positions, ops = (
            np.concatenate([frame.get_column(name).to_numpy() for frame in frames]) for name in (TS, POS, OP)
        )
        order = np.lexsort((positions, numbers))
        numbers, times, positions, ops = numbers[order], times[order], positions[order], ops[order]
        is_older = (numbers[1:] == numbers[:-1]) & (times[1:] < times[:-1])
        if not self._index.keeps_deletes:
            is_older &= ops[:-1] == 0
        return int((is_older & (positions[1:] >= self._put_positions[0])).sum())

    def _horizon_at(self, positions: I64) -> I64:
        """Return T - R before each position; before all time for an unversioned table."""
        if self._retention_ms is None:
            return np.full(len(positions), BEFORE_ALL_TIME)
        return self._clock.before(positions) - self._retention_ms

    def _has_old_deletes(self) -> bool:
        """Whether any tombstone could be forgotten, as of the end of the batch."""
        if self._retention_ms is None or self.accepted_puts.is_empty():
            return False
        kept = self._index.oldest_delete
        return (kept is not None and kept < self.horizon) or bool(self._are_old_deletes().any())

    def _are_old_deletes(self) -> Bools:
        """Say which of the accepted puts are tombstones that could be forgotten, as of the end of the batch."""
        new = self.accepted_puts
        is_old: Bools = (new.get_column(OP).to_numpy() != 0) & (new.get_column(TS).to_numpy() < self.horizon)
        return is_old

    def _forgotten(self) -> pl.DataFrame:
        """Find the puts whose key had, as its latest version before them, a tombstone that was forgotten by then (V4).

        Merging drops such a tombstone, at whatever batch it comes to it. That the newer version makes it readable again must not depend
        on that, so what is dropped by right is marked here by position.
        """
        hashes = self.accepted_puts.get_column(KEY_HASH).to_numpy()
        deleted = self._index.deleted_before(distinct(hashes), self.horizon)
        puts = self.accepted_puts[np.flatnonzero(np.isin(hashes, deleted) | np.isin(hashes, hashes[self._are_old_deletes()]))]
        if puts.is_empty():
            return puts
        touched, keys = self._keys_of(puts)
        positions = puts.get_column(POS).to_numpy()
        versions, search = self.versions_of(touched)
        places = search.latest(keys, positions)
        ops = versions.get_column(OP).to_numpy()[search.rows[places]]
        found = np.flatnonzero((places >= 0) & (ops != 0) & (search.times[places] < self._horizon_at(positions)))
        tombstones = versions[search.rows[places[found]]]
        return tombstones.with_columns(pl.Series(POS, positions[found]), pl.lit(FORGOTTEN, pl.Int8).alias(OP))

    def _keys_of(self, frame: pl.DataFrame) -> tuple[Keys, I64]:
        return Keys.of(frame.get_column(KEY_HASH).to_numpy(), [frame.get_column(name) for name in self._key])

    def _of_keys(self, new: pl.DataFrame, keys: Keys) -> Part:
        """Return the rows of some keys, and the number of each one's key."""
        if new.is_empty() or not len(keys.hashes):
            return Part(new.clear(), np.empty(0, np.int64))
        numbers = keys.numbers(new.get_column(KEY_HASH).to_numpy(), [new.get_column(name) for name in self._key])
        own = np.flatnonzero(numbers != NO_KEY)
        return Part(new, numbers) if len(own) == len(numbers) else Part(taken(new, own), numbers[own])

    def _search(self, touched: Keys, low: I64 | None, high: I64 | None) -> tuple[pl.DataFrame, VersionSearch]:
        """Gather the versions of some keys: those kept and those of the batch."""
        parts = [*self._index.find(touched, low, high), self._of_keys(self.accepted_puts, touched)]
        if not self.forgotten.is_empty():
            parts.append(self._of_keys(self.forgotten, touched))
        versions = pl.concat([part.frame for part in parts], rechunk=True)
        first_new = int(self._put_positions[0]) if len(self._put_positions) else AFTER_ALL_TIME
        keys = np.concatenate([part.keys for part in parts])
        return versions, VersionSearch(versions, touched.hashes, first_new, is_by_time=self._retention_ms is not None, keys=keys)


def _extremes(keys: I64, times: I64, key_count: int) -> tuple[I64, I64]:
    """Return the earliest and the latest time asked for of each key."""
    low, high = np.full(key_count, AFTER_ALL_TIME), np.full(key_count, BEFORE_ALL_TIME)
    np.minimum.at(low, keys, times)
    np.maximum.at(high, keys, times)
    return low, high


def _read_as_of(
    search: VersionSearch, is_tombstone: Bools, keys: I64, times: I64, positions: I64, horizon: I64
) -> tuple[I8, I64]:
    """Read by V4. A tombstone before the horizon may be forgotten at any time, so as the latest it makes nothing expired."""
    places = search.as_of(keys, times, positions)
    status = np.where(places >= 0, MATCHED, NO_VERSION).astype(np.int8)
    old = np.flatnonzero(times < horizon)
    if len(old):
        latest = search.latest(keys[old], positions[old])
        latest_times = search.times[latest]
        is_there = (latest >= 0) & ~(is_tombstone[latest] & (latest_times < horizon[old]))
        is_newer = is_there & (latest_times > times[old])
        places[old] = np.where(is_there & ~is_newer, latest, -1)
        status[old] = np.where(is_newer, HISTORY_EXPIRED, np.where(is_there, MATCHED, NO_VERSION))
    return status, places
