"""Record-by-record models of what holds results back: dicts and loops, to hold the vectorised operators against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from engine.expressions.types.types import BIGINT, STRING, TIMESTAMP, Schema
from engine.frames.frames import SERVICE_COLUMNS
from engine.frames.places import arrivals, ranked
from engine.operators.windows.window_places import ARRIVED, FIRST

WINDOWED = Schema((("key", STRING), ("window_start", TIMESTAMP), ("window_end", TIMESTAMP), ("value", BIGINT)))


class WindowChange(NamedTuple):
    """A change of a window; a null value is a delete."""

    key: str
    start: int
    end: int
    value: int | None


class Step(NamedTuple):
    """A row, the time with it, and what it changed. Rows may share a position; the last one says what time is with that."""

    position: int
    offset: int
    clock: int
    changes: tuple[WindowChange, ...]


def change_frame(steps: Sequence[Step]) -> pl.DataFrame:
    """The changes of some steps, as a window operator gives them: in their order at their positions, each the first one of its window."""
    rows = [
        {
            "_pos": step.position,
            "_ts": step.clock,
            "_op": int(change.value is None),
            "_key_hash": 0,
            "_offset": step.offset,
            "key": change.key,
            "window_start": change.start * 1000,
            "window_end": change.end * 1000,
            "value": change.value,
        }
        for step in steps
        for change in step.changes
    ]
    schema = {**SERVICE_COLUMNS, **WINDOWED.polars(), "window_start": pl.Int64(), "window_end": pl.Int64()}
    bounds = [pl.col(name).cast(pl.Datetime("us", "UTC")) for name in ("window_start", "window_end")]
    frame = pl.DataFrame(rows, schema=schema).with_columns(bounds)
    frame = ranked(frame, np.arange(frame.height))
    return frame.with_columns(pl.col("_pos").alias(FIRST), arrivals(frame).alias(ARRIVED))


@dataclass
class _Window:
    since: int
    change: WindowChange
    ts: int
    is_shown: bool = False


def corrections(steps: Sequence[Step], delay: int, *, is_moving: bool = False) -> list[dict[str, Any]]:
    """S6: one preliminary, then corrections, then one final per window that has a row.

    What stands at a position changes windows that are open before it. There preliminary results come first, then corrections, then
    finals. Of sessions (``is_moving``) what goes with the position goes before all of them.
    """
    windows: dict[tuple[int, int, str], _Window] = {}
    outputs: list[dict[str, Any]] = []
    changes = 0
    for _, group in groupby(steps, key=lambda step: step.position):
        together = list(group)
        corrected: list[tuple[_Window, dict[str, Any]]] = []
        preliminary, final = [], []
        for step in together:
            for change in step.changes:
                window = windows.setdefault((change.end, change.start, change.key), _Window(changes, change, step.clock))
                had_row = window.change.value is not None and window.since != changes
                changes += 1
                window.change, window.ts = change, step.clock
                if window.is_shown and (change.value is not None or had_row):
                    corrected.append((window, _marked(window, step, "correction", step.offset)))
        last = together[-1]
        for key in sorted(windows, key=lambda key: (key[0], key[1], windows[key].since)):
            window = windows[key]
            has_row = window.change.value is not None
            if has_row and not window.is_shown and key[0] <= last.clock:
                window.is_shown = True
                if key[0] + delay > last.clock:
                    preliminary.append(_marked(window, last, "preliminary", -1))
            if key[0] + delay <= last.clock:
                del windows[key]
                if has_row:
                    final.append(_marked(window, last, "final", -1))
        gone, stays = [], []
        for window, row in corrected:
            (gone if is_moving and window.change.value is None else stays).append(row)
        outputs += [*gone, *preliminary, *stays, *final]
    return outputs


def _marked(window: _Window, step: Step, state: str, offset: int) -> dict[str, Any]:
    change = window.change
    service = {"_pos": step.position, "_ts": window.ts, "_op": int(change.value is None), "_offset": offset}
    bounds = {"key": change.key, "window_start": change.start, "window_end": change.end}
    return {**service, **bounds, "value": change.value, "$state": state}


TABLE = Schema((("key", STRING), ("value", STRING)))


class Change(NamedTuple):
    """A change of a table; a null value is a delete. Changes may share a place; ``further`` ones of a record have places of their own."""

    position: int
    ts: int
    key: str | None
    value: str | None
    further: int = 0


class Batch(NamedTuple):
    """Records of the streams as (position, event time), and changes at their positions and those of the silence before them.

    The silence has a position a millisecond from ``first`` on. Without records and silence the batch is a tick; ``end`` is behind all.
    """

    now: int
    first: int
    silence: int
    records: tuple[tuple[int, int], ...]
    changes: tuple[Change, ...]
    end: int


class Limits(NamedTuple):
    """S4; None: no bound."""

    rows: int | None
    bytes: int | None
    is_stop: bool


def table_frame(changes: Sequence[Change]) -> pl.DataFrame:
    """The changes as an operator's input."""
    rows = [
        {
            "_pos": c.position,
            "_ts": c.ts,
            "_op": int(c.value is None),
            "_key_hash": 0,
            "_offset": c.position + 1,
            "_rank": (b"\1" + c.further.to_bytes(4, "big") if c.further else b"") + b"\0" + place.to_bytes(2, "big") + b"\0",
            "key": c.key,
            "value": c.value,
        }
        for place, c in enumerate(changes)
    ]
    return pl.DataFrame(rows, schema={**SERVICE_COLUMNS, **TABLE.polars()})


def record_frame(records: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """The records that move time."""
    rows = [(position, ts, 0, 0, position, None) for position, ts in records]
    return pl.DataFrame(rows, schema=SERVICE_COLUMNS, orient="row")


@dataclass
class _Entry:
    since: int
    arrival: int
    change: Change
    was_row: bool = False

    @property
    def size(self) -> int:
        return 8 + len((self.change.key or "").encode()) + len((self.change.value or "").encode())


class Suppression:
    """S1 and S2, place after place. ``is_wall_clock`` chooses; ``failed_at`` is the position that did not fit."""

    def __init__(self, limit: int, bounds: Limits, *, is_wall_clock: bool, is_event_driven: bool = False) -> None:
        self.limit, self.bounds = limit, bounds
        self.is_wall_clock, self.is_event_driven = is_wall_clock, is_event_driven
        self.time: int | None = None
        self.entries: dict[str, _Entry] = {}
        self.shown: set[str] = set()
        self.arrivals = 0
        self.outputs: list[tuple[int, Any]] = []
        self.failed_at: int | None = None
        self.evicted = 0

    def take(self, batch: Batch) -> None:
        """Handle a batch."""
        silence = [] if self.time is None else [(batch.first + ms, self.time + ms + 1) for ms in range(batch.silence)]
        records = [*silence, *batch.records]
        if self.is_wall_clock and (batch.records or not self.is_event_driven):
            # Before the places of a silence: what is released there is marked forced, and the wall clock is no silence (S2, T10).
            first = records[0][0] if records else batch.end
            self._release(batch.now, batch.first - 1 if silence else first)
        for position, time in records:
            own = [change for change in batch.changes if change.position == position and change.key is not None]
            handled = len(self.outputs)
            for further in sorted({0, *(change.further for change in own)}):
                self._place([change for change in own if change.further == further], batch.now, position, time)
                if self.failed_at is not None:
                    self.outputs = self.outputs[:handled]
                    return

    def _place(self, changes: Sequence[Change], now: int, position: int, time: int) -> None:
        """T1b: what stands there is judged by the time before; then time rises; then what is due is emitted."""
        risen = max(time, time if self.time is None else self.time)
        for change in changes[:-1]:
            self._take(change, changes, now, risen)
            self._make_room(position)
        if changes:
            self._take(changes[-1], changes, now, risen)
        self.time = risen
        if not self.is_wall_clock and self.limit:
            self._release(self.time - self.limit, position)
        if changes:
            self._make_room(position)

    def _take(self, change: Change, together: Sequence[Change], now: int, risen: int) -> None:
        key = change.key
        assert key is not None
        if self.failed_at is not None:
            return
        least = min(other.ts for other in together if other.key == key)
        since = now + self.limit if self.is_wall_clock else min(least, risen)
        entry = self.entries.setdefault(key, _Entry(since, self.arrivals, change))
        entry.change, entry.was_row = change, entry.was_row or change.value is not None
        self.arrivals += 1
        if not self.limit:
            self._emit(key, change.position)

    def _make_room(self, position: int) -> None:
        while self.failed_at is None and self._is_over():
            if self.bounds.is_stop:
                self.failed_at = position
                return
            oldest = min(self.entries, key=self._order)
            self.evicted += not self._is_void(oldest)
            self._emit(oldest, position)

    def held(self) -> tuple[int, int]:
        """Rows and bytes: what came and went while it was held takes no room (S5)."""
        taking = [entry for key, entry in self.entries.items() if not self._is_void(key)]
        return len(taking), sum(entry.size for entry in taking)

    def _is_void(self, key: str) -> bool:
        entry = self.entries[key]
        return entry.was_row and entry.change.value is None and key not in self.shown

    def _is_over(self) -> bool:
        rows, size = self.held()
        over_rows = self.bounds.rows is not None and rows > self.bounds.rows
        return over_rows or (self.bounds.bytes is not None and size > self.bounds.bytes)

    def _order(self, key: str) -> tuple[int, int]:
        return self.entries[key].since, self.entries[key].arrival

    def _release(self, until: int, position: int) -> None:
        for key in sorted((key for key, entry in self.entries.items() if entry.since <= until), key=self._order):
            self._emit(key, position)

    def _emit(self, key: str, position: int) -> None:
        change = self.entries.pop(key).change
        if change.value is None and key not in self.shown:
            return
        self.shown = self.shown - {key} if change.value is None else self.shown | {key}
        self.outputs.append((position, (change.ts, int(change.value is None), key, change.value)))
