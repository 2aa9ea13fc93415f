"""First results at the window's end, then corrections, then the final result (S6).

Stands behind any window aggregation and reads nothing but its changes and its stream time. A window's latest row is held until
stream time reaches the window's end; then it is shown as ``preliminary``. From then on each change passes as a ``correction``.
When the window closes, its last row is shown once more as ``final``. So every window that has a row reads: one preliminary, any
number of corrections, one final; where its end and its closing fall on one position, the final alone. A session that grows is another
window: the one it was is deleted, and a new preliminary result comes.

Vectorised: whether a window was shown before a change follows from the stream time and from when it had a row, by one binary
search on the batch's stream times. Only windows that changed, came to their end or closed are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from engine.expressions.types.types import STRING, Schema
from engine.frames.clocks import BEFORE_ALL_TIME, I64, Bools, clock_value
from engine.frames.frames import KEY_HASH, OFFSET, OP, POS, TS, empty_frame
from engine.operators.windows.window_store import HASH, NODE, WindowStore, sorted_run
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.running import Groups

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"

STATE: Final = "$state"
"""The column that marks each row."""

FIRST: Final = "_first"
"""Optional column of the changes: place of the window's earliest-arrived record, so that ties are as in final results (W6)."""

_ORDER: Final = "_order"
"""Number of the change that made a row, counted over the operator's life."""

_SINCE: Final = "_since"
"""Number of the window's first change."""

SHOWN: Final = "_shown"
"""Whether the window was shown by the end of the batch that made the row. Later on stream time says so."""

_AT: Final = "_at"
"""Index of the position, in the batch, that made a row; -1 for a row from before."""

_STATES: Final = np.array(["correction", "preliminary", "correction", "final"], dtype=object)
_MOVED, _PRELIMINARY, _CORRECTION, _FINAL = range(4)
"""What is emitted at one position, in this order; ``_MOVED`` are the corrections of a session that is gone with that position."""


class _Positions(NamedTuple):
    """The batch's distinct positions, the offset of each one's last record and the stream time after it."""

    positions: I64
    offsets: I64
    clocks: I64


@dataclass(frozen=True, slots=True)
class _Chain:
    """The rows of all windows concerned: per window the one held from before, then the batch's changes.

    Attributes:
        frame: rows sorted by window and order.
        groups: which rows belong to one window.
        at: see ``_AT``.
        until: up to which position, exclusive, the row is the window's latest at the ends of positions; <= ``at``: never.
        is_row: whether the row is one, not a delete.
        starts: index of each window's first row.
        shown_at: index of the position at whose end each *window* was first shown: -1 before the batch, the number of positions: not yet.
    """

    frame: pl.DataFrame
    groups: Groups
    at: I64
    until: I64
    is_row: Bools
    starts: I64
    shown_at: I64

    @property
    def lasts(self) -> I64:
        """Index of each window's last row."""
        lasts: I64 = np.append(self.starts[1:], len(self.at)) - 1
        return lasts

    @property
    def last_rows(self) -> I64:
        """Index of the row that each row's window has at the end of the row's position."""
        ends = np.flatnonzero(self.until > self.at)
        settled: I64 = ends[np.searchsorted(ends, np.arange(len(self.at)))]
        return settled


class Corrections:
    """Turns a window aggregation's changes into marked results.

    Args:
        schema: columns of the changes, ``window_start`` and ``window_end`` (timestamps) among them.
        key: the group's columns; the window's bounds belong to the key anyway.
        delay_ms: how long after its end a window closes: at the first position where stream time >= end + delay. It may differ from
            the one the state was made with: what has closed stays closed, what is closed now closes at the next position.
        state: what ``snapshot`` returned, or None.
        store: where the windows' latest rows live.
        is_moving: windows are sessions, which a record may give other bounds: what a session was goes before what it is comes.
    """

    def __init__(
        self,
        schema: Schema,
        key: tuple[str, ...],
        delay_ms: int,
        state: dict[str, Any] | None,
        store: SegmentStore,
        *,
        is_moving: bool = False,
    ) -> None:
        self.schema = Schema((*schema.columns, (STATE, STRING)))
        self._payload = schema.names
        self._key = [*(name for name in key if name not in (WINDOW_START, WINDOW_END)), WINDOW_START, WINDOW_END]
        self._delay_ms = delay_ms
        self._is_moving = is_moving
        self._nothing = empty_frame(self.schema)
        state = state or {}
        self._clock: int | None = state.get("clock")
        self._closed: int = state.get("closed", -1)
        self._changes: int = state.get("changes", 0)
        self._hashing = store.hashing
        self._store = WindowStore(store, self._latest, 1, state.get("segments"))

    @property
    def buffered_rows(self) -> int:
        """Rows held of windows that have not closed."""
        return self._store.rows

    @property
    def due_in_ms(self) -> int | None:
        """By how much stream time must rise until a window comes to its end or closes; None where none waits."""
        if self._clock is None:
            return None
        ends = ((self._store.earliest(self._clock + 1), 0), (self._store.earliest(self._closed + 1), self._delay_ms))
        waits = [end + delay - self._clock for end, delay in ends if end is not None]
        return max(min(waits), 0) if waits else None

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"clock": self._clock, "closed": self._closed, "changes": self._changes, "segments": self._store.snapshot()}

    def process(self, changes: pl.DataFrame, positions: I64, offsets: I64, clocks: I64) -> pl.DataFrame:
        """Handle a batch. Records of one position are one step: its changes first, then what its stream time shows and closes.

        Args:
            changes: the window operator's changes in emission order, with service columns; ``_pos`` is one of ``positions``. They
                may have ``FIRST``.
            positions: ``_pos`` of every record that the operator let move its clock, non-decreasing; changed or not. A rise of the
                clock without a record (T10) is one entry with the position of the moment.
            offsets: their offsets.
            clocks: stream time after each, non-decreasing.

        Returns:
            The service columns and ``schema``. At one position: preliminary results by (end, start, arrival), corrections in the order of
            the changes, final results by (end, start, arrival); before all of them the corrections of sessions that end up deleted
            there. Deletes are corrections, and keep only their key.
        """
        if not len(positions):
            return self._nothing
        is_last = np.append(positions[1:] != positions[:-1], [True])
        steps = _Positions(positions[is_last], offsets[is_last], clocks[is_last])
        before, after = clock_value(self._clock), max(clock_value(self._clock), int(clocks[-1]))
        closed = max(self._closed, after - self._delay_ms)
        own = self._rows(changes, steps)
        chain = self._chain(own, before, after, closed, steps)
        emitted = self._emitted(chain, closed, steps) if chain is not None else self._nothing
        self._store.append(self._latest_rows(chain, len(steps.positions)) if chain is not None else own, closed + 1)
        self._clock, self._closed = after, closed
        self._changes += changes.height
        return emitted

    # Rows

    def _rows(self, changes: pl.DataFrame, steps: _Positions) -> pl.DataFrame:
        """The changes as rows of the store."""
        order = np.arange(self._changes, self._changes + changes.height)
        ends = changes[WINDOW_END].dt.epoch("ms").to_numpy()
        own = [
            pl.Series(NODE, ends, pl.Int64),
            self._hashing.of(changes, self._key).alias(HASH),
            pl.Series(_ORDER, order, pl.Int64),
            pl.Series(_SINCE, order, pl.Int64),
            (changes[FIRST] if FIRST in changes.columns else changes[POS]).alias(FIRST),
            pl.Series(SHOWN, np.zeros(changes.height, np.bool_)),
            pl.Series(_AT, np.searchsorted(steps.positions, changes[POS].to_numpy()), pl.Int64),
        ]
        return pl.DataFrame([*own, *(changes[name] for name in (TS, OP, KEY_HASH, OFFSET, *self._payload))])

    def _latest(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Keep the latest row of each window, with the earliest arrival of all; the hash alone could collide."""
        if rows.height < 2:
            return rows
        rows = rows.sort(NODE, HASH, *self._key, _ORDER)
        groups = Groups.of(rows.select(NODE, HASH, *self._key))
        starts = np.unique(groups.firsts)
        lasts = np.append(starts[1:], rows.height) - 1
        arrivals = (pl.Series(name, np.minimum.reduceat(rows[name].to_numpy(), starts)) for name in (FIRST, _SINCE))
        return rows[lasts].with_columns(*arrivals)

    def _pending_rows(self, own: pl.DataFrame, before: int, after: int, closed: int) -> list[pl.DataFrame]:
        """Rows held of windows that changed, come to their end or close."""
        touched = own.select(NODE, HASH).unique()
        parts = self._store.matching(touched[NODE].to_numpy(), touched[HASH].to_numpy()) if touched.height else []
        for low, high in ((max(before, BEFORE_ALL_TIME), after), (self._closed, closed)):
            first, end = max(low + 1, 0), high + 1
            if first < end:
                parts += self._store.covering(first, end)
        return parts

    def _chain(self, own: pl.DataFrame, before: int, after: int, closed: int, steps: _Positions) -> _Chain | None:
        held = self._pending_rows(own, before, after, closed)
        if not held and own.is_empty():
            return None
        if held:
            rows = self._latest(pl.concat(held))
            own = pl.concat([rows.with_columns(pl.lit(-1, pl.Int64).alias(_AT)), own])
        frame = own.sort(NODE, HASH, *self._key, _ORDER)
        groups = Groups.of(frame.select(NODE, HASH, *self._key))
        starts = np.unique(groups.firsts)
        at, is_row = frame[_AT].to_numpy(), frame[OP].to_numpy() == 0
        until = np.full(len(at), len(steps.positions))
        until[:-1] = np.where(groups.ids[1:] == groups.ids[:-1], at[1:], until[:-1])
        ends = frame[NODE].to_numpy()
        reached = np.searchsorted(steps.clocks, ends)
        shown = np.maximum(np.maximum(at, reached), 0)
        shown = np.where(is_row & (shown < until), shown, len(steps.positions))
        was_shown = (at < 0) & (frame[SHOWN].to_numpy() | (is_row & (ends <= before)))
        shown[was_shown] = -1
        return _Chain(frame, groups, at, until, is_row, starts, np.minimum.reduceat(shown, starts))

    def _latest_rows(self, chain: _Chain, positions: int) -> pl.DataFrame:
        """The latest rows of the windows that changed, as a run for the store."""
        lasts = chain.lasts
        is_changed = chain.at[lasts] >= 0
        rows = chain.frame[lasts[is_changed]]
        arrivals = [
            pl.Series(name, np.minimum.reduceat(chain.frame[name].to_numpy(), chain.starts)[is_changed])
            for name in (FIRST, _SINCE)
        ]
        return sorted_run(rows.with_columns(*arrivals, pl.Series(SHOWN, chain.shown_at[is_changed] < positions)))

    # Output

    def _emitted(self, chain: _Chain, closed: int, steps: _Positions) -> pl.DataFrame:
        """What the batch shows, in emission order."""
        shown_at = chain.shown_at[chain.groups.ids]
        was_row = chain.groups.previous(chain.is_row)
        corrections = np.flatnonzero((chain.at >= 0) & (shown_at < chain.at) & (chain.is_row | was_row))
        is_shown_now = (shown_at >= 0) & (shown_at < len(steps.positions))
        preliminary = np.flatnonzero(is_shown_now & (chain.at <= shown_at) & (shown_at < chain.until))
        lasts, ends = chain.lasts, chain.frame[NODE].to_numpy()
        is_final = chain.is_row[lasts] & (ends[lasts] > self._closed) & (ends[lasts] <= closed)
        final = lasts[is_final]
        closing = np.searchsorted(steps.clocks, ends[final] + self._delay_ms)
        closing = np.maximum(closing, np.maximum(chain.shown_at[is_final], chain.at[final]))  # it may have become due by an edit
        positions = len(steps.positions)
        closes_at = np.full(len(chain.starts), positions)
        closes_at[is_final] = closing
        preliminary = preliminary[shown_at[preliminary] < closes_at[chain.groups.ids[preliminary]]]
        is_gone = self._is_moving & ~chain.is_row[chain.last_rows[corrections]]
        rows = np.concatenate([corrections, preliminary, final])
        places = np.concatenate([chain.at[corrections], shown_at[preliminary], closing])
        others = np.repeat([_PRELIMINARY, _FINAL], [len(preliminary), len(final)])
        kinds = np.concatenate([np.where(is_gone, _MOVED, _CORRECTION), others])
        return self._in_order(chain, rows, places, kinds, steps)

    def _in_order(self, chain: _Chain, rows: I64, places: I64, kinds: I64, steps: _Positions) -> pl.DataFrame:
        frame = chain.frame[rows]
        is_correction = (kinds == _MOVED) | (kinds == _CORRECTION)
        arrivals = {
            name: np.minimum.reduceat(chain.frame[name].to_numpy(), chain.starts)[chain.groups.ids[rows]]
            for name in (FIRST, _SINCE)
        }
        starts = frame[WINDOW_START].dt.epoch("ms").to_numpy()
        by_window = (frame[NODE].to_numpy(), starts, arrivals[FIRST], arrivals[_SINCE])
        by_change = (frame[_ORDER].to_numpy(), *[np.zeros_like(rows)] * 3)
        keys = [np.where(is_correction, change, window) for change, window in zip(by_change, by_window, strict=True)]
        order = np.lexsort([*reversed(keys), kinds, places])
        offsets = np.where(is_correction, frame[OFFSET].to_numpy(), steps.offsets[places])
        own = [
            pl.Series(POS, steps.positions[places]),
            pl.Series(OFFSET, offsets),
            pl.Series(STATE, _STATES[kinds], pl.String),
        ]
        return frame.with_columns(own)[order].select(self._nothing.columns)
