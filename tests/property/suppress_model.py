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
    """A change of a table; a null value is a delete. Changes of one batch may share a position."""

    position: int
    ts: int
    key: str | None
    value: str | None


class Batch(NamedTuple):
    """Changes that arrive together; none: a tick."""

    now: int
    advance: int
    changes: tuple[Change, ...]


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
            "key": c.key,
            "value": c.value,
        }
        for c in changes
    ]
    return pl.DataFrame(rows, schema={**SERVICE_COLUMNS, **TABLE.polars()})


@dataclass
class _Entry:
    since: int
    place: int
    change: Change
    was_row: bool = False

    @property
    def size(self) -> int:
        return 8 + len((self.change.key or "").encode()) + len((self.change.value or "").encode())


class Suppression:
    """S1 and S2, change after change. ``is_wall_clock`` chooses; ``failed_at`` is the position that did not fit."""

    def __init__(self, limit: int, bounds: Limits, *, is_wall_clock: bool, is_event_driven: bool = False) -> None:
        self.limit, self.bounds = limit, bounds
        self.is_wall_clock, self.is_event_driven = is_wall_clock, is_event_driven
        self.clock: int | None = None
        self.entries: dict[str, _Entry] = {}
        self.shown: set[str] = set()
        self.places = 0
        self.outputs: list[tuple[int, int, Any]] = []
        self.failed_at: int | None = None
        self.evicted = 0

    def take(self, batch: Batch, position: int) -> None:
        """Handle a batch; ``position`` is the one behind it."""
        changes = [change for change in batch.changes if change.key is not None]
        if self.is_wall_clock and (changes or not self.is_event_driven):
            self._release(batch.now, *((changes[0].position, changes[0].position + 1) if changes else (position, -1)))
        for change in changes:
            if self.failed_at is None:
                self._change(change, batch.now)
        if not self.is_wall_clock and batch.advance and self.clock is not None and self.failed_at is None:
            self.clock += batch.advance
            self._release(self.clock - self.limit, position, -1)

    def _change(self, change: Change, now: int) -> None:
        assert change.key is not None
        self.clock = max(change.ts, change.ts if self.clock is None else self.clock)
        since = now + self.limit if self.is_wall_clock else change.ts
        entry = self.entries.setdefault(change.key, _Entry(since, self.places, change))
        entry.change, entry.was_row = change, entry.was_row or change.value is not None
        self.places += 1
        self._release(now if self.is_wall_clock else self.clock - self.limit, change.position, change.position + 1)
        while self._is_over():
            if self.bounds.is_stop:
                self.failed_at = change.position
                self.outputs = [output for output in self.outputs if self.is_wall_clock or output[0] < change.position]
                return
            oldest = min(self.entries, key=self._order)
            self.evicted += not self._is_void(oldest)
            self._emit(oldest, change.position, change.position + 1)

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
        return self.entries[key].since, self.entries[key].place

    def _release(self, until: int, position: int, offset: int) -> None:
        for key in sorted((key for key, entry in self.entries.items() if entry.since <= until), key=self._order):
            self._emit(key, position, offset)

    def _emit(self, key: str, position: int, offset: int) -> None:
        change = self.entries.pop(key).change
        if change.value is None and key not in self.shown:
            return
        self.shown = self.shown - {key} if change.value is None else self.shown | {key}
        self.outputs.append((position, offset, (change.ts, int(change.value is None), key, change.value)))
