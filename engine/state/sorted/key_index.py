"""The first structure of state: an index by key and time (``time_queue``: a queue by time; ``hash_segments``: rows found by a hash)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64, Bools
from engine.frames.frames import KEY_HASH, OP, POS, TS
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.hash_directory import runs_in, with_directory, without_directory
from engine.state.sorted.keys import NO_KEY, Keys, different_keys, layers
from engine.state.sorted.segment_list import Segment, SegmentList, taken
from engine.state.sorted.sorted_search import U64, KeyOrder, expand, key_order, upper_bound
from engine.state.sorted.steps import merged_in_steps

FORGOTTEN: Final = 3
"""``_op`` of a tombstone that no read may know of: it had been its key's latest version and before the horizon (V4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSegment(Segment):
    """A manifest entry of an index.

    Attributes:
        oldest_delete: smallest event time of a tombstone, None for none.
    """

    min_ts: int
    max_ts: int
    min_hash: int
    max_hash: int
    oldest_delete: int | None = None


def index_segment(store: SegmentStore, frame: pl.DataFrame) -> IndexSegment:
    """Save rows in the order of an index and describe them."""
    times, hashes = frame.get_column(TS), frame.get_column(KEY_HASH)
    deletes = np.flatnonzero(frame.get_column(OP).to_numpy()) if OP in frame.columns else ()
    return IndexSegment(
        segment=store.save(with_directory(frame)),
        rows=frame.height,
        min_ts=_int(times.min()),
        max_ts=_int(times.max()),
        min_hash=_int(hashes.item(0)),
        max_hash=_int(hashes.item(-1)),
        oldest_delete=int(times.to_numpy()[deletes].min()) if len(deletes) else None,
    )


class Part(NamedTuple):
    """What one segment holds of the keys that were asked for.

    Attributes:
        frame: the rows, sorted by (key, time).
        keys: number of each row's key among them.
    """

    frame: pl.DataFrame
    keys: I64


class KeyIndex:
    """Versions by (key hash, event time, position), or by (key hash, position) where only the latest by arrival counts.

    Frames have ``_key_hash``, ``_ts``, ``_pos``, ``_op`` (where there are deletes) and payload; of rows with equal (hash, time), or
    equal hash, the one with the greatest position counts.

    Args:
        state: what ``snapshot`` returned, or None.
        is_by_time: False: one row per key, the latest by arrival (V7).
        key_columns: payload columns of the key, which tell keys of one hash apart; none: rows are known by their hash alone.
        keeps_deletes: whether a delete says more than the absence of a row. If not, it goes when a merge leaves nothing older that it
            could hide and, of what is by time, it is before the horizon; else only as a key's latest version (V4).
    """

    def __init__(
        self,
        store: SegmentStore,
        state: list[dict[str, Any]] | None,
        *,
        is_by_time: bool,
        key_columns: Sequence[str] = (),
        keeps_deletes: bool = True,
    ) -> None:
        self._store = store
        self._segments = SegmentList(IndexSegment, store, state)
        self._is_by_time = is_by_time
        self.keeps_deletes = keeps_deletes
        self._key_columns = tuple(key_columns)
        self._deletes_from = AFTER_ALL_TIME

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def rows(self) -> int:
        """Rows held."""
        return self._segments.rows

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the manifest and tell the store what it no longer names."""
        return self._segments.snapshot()

    @property
    def oldest_delete(self) -> int | None:
        """The smallest event time of a kept tombstone, None for none."""
        return min((segment.oldest_delete for segment in self._segments if segment.oldest_delete is not None), default=None)

    def append(self, frame: pl.DataFrame, horizon: int, deletes_from: int = AFTER_ALL_TIME) -> None:
        """Add rows that are newer, by position, than all before.

        Args:
            frame: the rows, in any order.
            horizon: no read asks for a time before it, except for a key's latest version; merges forget by it.
            deletes_from: a key's latest tombstone is kept from this event time on, also where it hides nothing.
        """
        if frame.height:
            new = self._arranged(frame)
            self._deletes_from = deletes_from
            self._segments.append(new.height, lambda old, is_all: self._run(old, new, horizon, is_all))

    def ranges(self, keys: Keys, low: I64 | None = None, high: I64 | None = None) -> list[pl.DataFrame]:
        """Return the rows of some keys; see ``find``."""
        return [part.frame for part in self.find(keys, low, high)]

    def find(self, keys: Keys, low: I64 | None = None, high: I64 | None = None) -> list[Part]:
        """Return the rows of some keys, older segments first.

        Args:
            keys: whose; without columns all rows with their hashes are meant.
            low: per key, the earliest time that is asked for; None: all rows.
            high: per key, the latest. The part of each segment holds its last row at or before ``low``, all rows after it up to
                ``high``, and its last row of the key.
        """
        firsts = np.flatnonzero(np.append(True, keys.hashes[1:] != keys.hashes[:-1])[: len(keys.hashes)])
        hashes, is_alone = keys.hashes[firsts], len(firsts) == len(keys.hashes)
        if low is not None and high is not None and not is_alone:
            is_shared = keys.are_shared
            low, high = np.where(is_shared, BEFORE_ALL_TIME, low)[firsts], np.where(is_shared, AFTER_ALL_TIME, high)[firsts]
        found = []
        for segment in self._segments:
            first, last = np.searchsorted(hashes, np.array([segment.min_hash, segment.max_hash], np.uint64), "left")
            last = min(int(last) + 1, len(hashes))
            if first < last:
                bounds = (None, None) if low is None or high is None else (low[first:last], high[first:last])
                frame = self._segments.load(segment)
                part = self._range(frame, hashes[first:last], *bounds)
                if part is not None:
                    found.append(self._exact(Part(part.frame, firsts[part.keys + first]), frame, keys))
        return [part for part in found if part.frame.height]

    def _exact(self, part: Part, segment: pl.DataFrame, keys: Keys) -> Part:
        """Leave out the rows of other keys with the same hashes.

        A range that was chosen among the rows of several keys says nothing of one of them: the rows of such hashes are read again.
        """
        if not keys.columns:
            return part
        others = keys.differing(part.keys, self._key_values(part.frame))
        if not len(others):
            return part
        mixed = np.unique(part.keys[others])
        kept = np.flatnonzero(~np.isin(part.keys, mixed))
        again = self._range(segment, keys.hashes[mixed], None, None)
        if again is None:
            return part
        frame = pl.concat([part.frame[kept], again.frame])
        numbers = np.concatenate([part.keys[kept], keys.numbers_of(mixed[again.keys], self._key_values(again.frame))])
        rows = np.argsort(numbers, kind="stable")
        rows = rows[numbers[rows] != NO_KEY]
        return Part(frame[rows], numbers[rows])

    def _key_values(self, frame: pl.DataFrame) -> list[pl.Series]:
        return [frame.get_column(name) for name in self._key_columns]

    def deleted_before(self, hashes: U64, horizon: int) -> U64:
        """Return those of some hashes (distinct, ascending) under which lies a tombstone from before the horizon."""
        is_found = np.zeros(len(hashes), np.bool_)
        for segment in self._segments:
            if segment.oldest_delete is None or segment.oldest_delete >= horizon or not len(hashes):
                continue
            frame = self._segments.load(segment)
            runs = runs_in(frame, hashes)
            rows = expand(runs.starts, runs.stops)
            is_old = (frame.get_column(OP).to_numpy()[rows] != 0) & (frame.get_column(TS).to_numpy()[rows] < horizon)
            is_found[np.repeat(runs.keys, runs.stops - runs.starts)[is_old]] = True
        return hashes[is_found]

    def _range(self, frame: pl.DataFrame, hashes: U64, low: I64 | None, high: I64 | None) -> Part | None:
        runs = runs_in(frame, hashes)
        if not len(runs.keys):
            return None
        frame = without_directory(frame)
        starts, stops = runs.starts, runs.stops
        several = np.flatnonzero(stops - starts > 1)
        if low is None or high is None or not self._is_by_time or not len(several):
            return Part(taken(frame, expand(starts, stops)), np.repeat(runs.keys, stops - starts))
        times, own, begin, end = frame.get_column(TS).to_numpy(), runs.keys[several], starts.copy(), stops.copy()
        begin[several] = np.maximum(upper_bound(times, low[own], starts[several], stops[several]) - 1, starts[several])
        end[several] = upper_bound(times, high[own], begin[several], stops[several])
        apart = np.flatnonzero(end < stops)  # the last row of these keys lies behind their range
        rows, keys = expand(begin, end), np.repeat(runs.keys, end - begin)
        if len(apart):
            places = np.cumsum(end - begin)[apart]
            rows, keys = np.insert(rows, places, stops[apart] - 1), np.insert(keys, places, runs.keys[apart])
        return Part(taken(frame, rows), keys)

    def _arranged(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Put new rows into the index' order; of those that replace each other only the last."""
        return self._reduced(frame, lambda own, order: taken(own, order.rows[self._is_newest(order)]), is_merge=False)

    def _reduced(
        self, frame: pl.DataFrame, reduce: Callable[[pl.DataFrame, KeyOrder], pl.DataFrame], *, is_merge: bool
    ) -> pl.DataFrame:
        """Let ``reduce`` leave out rows; where several keys have one hash, of each key on its own."""
        order, values = self._sorted(frame, is_merge=is_merge), self._key_values(frame)
        twins = np.flatnonzero(order.is_same)
        if not different_keys(values, order.rows[twins], order.rows[twins - 1]).any():
            return reduce(frame, order)
        spread = layers([frame.get_column(KEY_HASH).to_numpy()], values)
        apart = [frame[np.flatnonzero(spread == layer)] for layer in range(int(spread.max()) + 1)]
        kept = pl.concat([reduce(own, self._sorted(own, is_merge=is_merge)) for own in apart])
        return kept[self._sorted(kept, is_merge=False).rows]

    def _run(self, old: list[IndexSegment], new: pl.DataFrame, horizon: int, is_all: bool) -> Iterator[IndexSegment]:
        """Save what is new, merged with older segments step by step."""
        parts: Iterable[pl.DataFrame] = [new]
        if old:
            older = (without_directory(self._segments.load(segment)) for segment in old)
            parts = merged_in_steps(
                [*older, new],
                (KEY_HASH,),
                self._segments.step_rows,
                lambda slices: self._merge(pl.concat(slices, rechunk=True), horizon, is_all),
            )
        for part in parts:
            yield index_segment(self._store, part)

    def _merge(self, frame: pl.DataFrame, horizon: int, is_all: bool) -> pl.DataFrame:
        """Merge segments, and forget what no read can reach.

        That is replaced rows, versions that ended by the horizon, and, when no older segment could hold what they hide, tombstones
        (``keeps_deletes``).
        """

        def kept(own: pl.DataFrame, order: KeyOrder) -> pl.DataFrame:
            is_kept = self._is_newest(order)
            if order.times is not None:
                is_kept[:-1] &= ~order.is_same[1:] | (order.times[1:] > horizon)
            if is_all and OP in own.columns:
                ops, times = (own.get_column(name).to_numpy()[order.rows] for name in (OP, TS))
                is_kept &= ~self._is_forgotten(ops, times, order, horizon)
            return taken(own, order.rows[is_kept])

        return self._reduced(frame, kept, is_merge=True)

    def _is_forgotten(self, ops: NDArray[np.int8], times: I64, order: KeyOrder, horizon: int) -> Bools:
        """Say which tombstones may go, where no older segment is left."""
        is_delete: Bools = ops != 0
        if order.times is None:
            return is_delete & (not self.keeps_deletes) & (times < self._deletes_from)
        is_delete &= order.times < min(horizon, self._deletes_from)
        if self.keeps_deletes:
            is_delete &= np.append(~order.is_same[1:], True)[: len(ops)] | (ops == FORGOTTEN)
        return is_delete

    def _sorted(self, frame: pl.DataFrame, *, is_merge: bool) -> KeyOrder:
        times = frame.get_column(TS).to_numpy() if self._is_by_time else None
        return key_order(frame.get_column(KEY_HASH).to_numpy(), times, frame.get_column(POS).to_numpy(), is_merge=is_merge)

    def _is_newest(self, order: KeyOrder) -> Bools:
        """Say which rows are the last of those that replace each other."""
        is_newest = np.ones(len(order.rows), np.bool_)
        is_newest[:-1] = ~order.is_same[1:]
        if order.times is not None:
            is_newest[:-1] |= order.times[1:] != order.times[:-1]
        return is_newest


def _int(value: Any) -> int:
    return int(value)
