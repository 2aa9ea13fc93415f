"""What a suppress buffer keeps: every key's latest row or what was last shown of it, and the order in which entries leave.

Two structures of immutable segments. The index has one row per key that is held or shown, by key: the held entry with its latest
change, or, when nothing is held, only that the key has a row downstream (STRICT 6), until its window has closed. The queue has one light
row per held entry, by (buffer time, arrival); replacing an entry's change never touches it, and entries only ever leave at its
head. So no row of the queue is stale, and a batch reads the keys it touches and the entries it releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from engine.frames.clocks import BEFORE_ALL_TIME, I64
from engine.frames.frames import KEY_HASH, TS
from engine.operators.pending.histogram import SpannedQueue
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.key_index import KeyIndex
from engine.state.sorted.keys import Keys
from engine.state.sorted.sorted_search import U64, stable_order
from engine.state.sorted.time_queue import QueueSegment

HELD: Final = "_held"
"""Whether the key has an entry; otherwise the row only says what is shown."""

SHOWN: Final = "_shown"
"""Whether the last thing emitted for the key was a row."""

SINCE: Final = "_since"
"""Buffer time of the entry (S1), or when it is due (S2)."""

ARRIVAL: Final = "_arrival"
"""When the change that made the entry arrived (``engine.frames.places.arrivals``): orders entries of one buffer time."""

SIZE: Final = "_size"
"""Bytes of the entry's latest change; none where the entry is void (S5)."""


class EntryIndex(KeyIndex):
    """One row per key: what it holds and what it shows. The rows of keys that hold nothing can be needless.

    They are where nothing is shown either, and where their window has closed: no change of that will come. A merge leaves them out
    unless an older segment has a row of the key, which would come back to light.

    Args:
        store: where segments live.
        state: what ``snapshot`` returned, or None.
        key: payload columns of the key.
        window_end: that one of them which holds the window's end, None where there are no windows.
    """

    def __init__(
        self, store: SegmentStore, state: list[dict[str, Any]] | None, key: tuple[str, ...], window_end: str | None
    ) -> None:
        super().__init__(store, state, is_by_time=False, key_columns=key)
        self._window_end = window_end

    def _merge(self, frame: pl.DataFrame, horizon: int, is_all: bool) -> pl.DataFrame:
        rows = super()._merge(frame, horizon, is_all)
        if not is_all:
            return rows
        is_needed = pl.col(SHOWN)
        if self._window_end is not None:
            is_needed &= pl.col(self._window_end).dt.epoch("ms") > horizon
        return rows.filter(pl.col(HELD) | is_needed)


class EntryQueue(SpannedQueue):
    """Held entries: ``_ts`` is the buffer time; at equal times the arrival orders."""

    @property
    def oldest(self) -> int | None:
        """The smallest buffer time; None when nothing is held."""
        return min((segment.min_ts for segment in self._segments), default=None)

    def due(self, until: int) -> list[pl.DataFrame]:
        """Entries with buffer time <= ``until``; they stay."""
        parts = []
        for segment in self._segments:
            if segment.min_ts <= until:
                frame = self._live(segment)
                parts.append(frame[: int(np.searchsorted(frame[TS].to_numpy(), until, "right"))])
        return parts

    def head(self, count: int) -> pl.DataFrame | None:
        """The first ``count`` entries, or all, in order; they stay. None when nothing is held."""
        parts = [self._live(segment)[:count] for segment in self._segments]
        return pl.concat(parts).sort(TS, ARRIVAL)[:count] if parts else None

    def drop(self, since: int, arrival: bytes | None = None) -> None:
        """Remove the entries up to and with (``since``, ``arrival``), or all with that buffer time."""
        self._segments.change(lambda segment: self._without(segment, since, arrival) if segment.min_ts <= since else segment)

    def _without(self, segment: QueueSegment, since: int, arrival: bytes | None) -> QueueSegment | None:
        frame = self._live(segment)
        times = frame[TS].to_numpy()
        start, stop = (int(np.searchsorted(times, since, side)) for side in ("left", "right"))
        if arrival is not None:
            stop = start + frame[start:stop].select((pl.col(ARRIVAL) <= pl.lit(arrival)).sum()).item()
        return segment.without(stop, times)


class EntryStore:
    """The index and the queue of one operator.

    Args:
        key: payload columns of the key.
        window_end: see ``EntryIndex``.
        state: what ``snapshot`` returned, or None.
        store: where segments live.
    """

    def __init__(self, key: tuple[str, ...], window_end: str | None, state: dict[str, Any] | None, store: SegmentStore) -> None:
        state = state or {}
        self._key = key
        self._index = EntryIndex(store, state.get("index"), key, window_end)
        self.queue = EntryQueue(store, state.get("queue"))

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"index": self._index.snapshot(), "queue": self.queue.snapshot()}

    def rows_of(self, hashes: U64) -> pl.DataFrame | None:
        """The rows of the keys with these distinct, ascending hashes, one of each key, by hash; None where there are none."""
        parts = self._index.ranges(Keys(hashes))
        if len(parts) < 2:
            return parts[0] if parts else None
        return newest_of_each(pl.concat(parts), self._key)

    def put(self, rows: pl.DataFrame, closed_to: int = BEFORE_ALL_TIME) -> None:
        """Replace the rows of some keys.

        Args:
            rows: ``_pos`` is greater than in any row before.
            closed_to: windows that end then or before have closed.
        """
        self._index.append(rows, closed_to)

    def enqueue(self, since: I64, arrivals: pl.Series, hashes: U64) -> None:
        """Add entries, in the order of their arrival, newer than all before."""
        order = stable_order(since)
        self.queue.append(
            pl.DataFrame([pl.Series(TS, since[order]), arrivals[order].alias(ARRIVAL), pl.Series(KEY_HASH, hashes[order])])
        )


def newest_of_each(rows: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return the last row of each key, by hash; newer rows stand behind older ones."""
    _, numbers = Keys.of(rows[KEY_HASH].to_numpy(), [rows[name] for name in key])
    order = stable_order(numbers)
    numbers = numbers[order]
    newest: I64 = order[np.append(numbers[1:] != numbers[:-1], True)[: len(order)]]
    return rows[newest]
