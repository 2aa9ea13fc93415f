"""First results at the window's end, then corrections, then the final result (S6).

Stands behind any window aggregation and reads nothing but its changes and the time. A window's latest row is held until
time reaches the window's end; then it is shown as ``preliminary``. From then on each change passes as a ``correction``.
When the window closes, its last row is shown once more as ``final``. So every window that has a row reads: one preliminary, any
number of corrections, one final; where its end and its closing fall on one place, the final alone. A session that grows is another
window: the one it was is deleted, and a new preliminary result comes.

Vectorised: whether a window was shown before a change follows from the places at which time reaches its end and at which it had
a row. Only windows that changed, came to their end or closed are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from engine.expressions.types.types import STRING, Schema
from engine.frames.clocks import I64, NEVER, Bools
from engine.frames.frames import KEY_HASH, NO_RECORD, OFFSET, OP, POS, RANK, TS, constant, empty_frame, values_taken, with_series
from engine.frames.places import is_further, levels, no_levels, place_order, ranked
from engine.operators.operators import BatchTime
from engine.operators.windows.window_places import ARRIVED, FIRST, arrival, due_until, least_arrivals, with_arrivals
from engine.operators.windows.window_store import HASH, NODE, WindowStore, sorted_run
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.running import Groups
from engine.state.sorted.segment_list import taken

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"

STATE: Final = "$state"
"""The column that marks each row."""

_ORDER: Final = "_order"
"""Number of the change that made a row, counted over the operator's life."""

SHOWN: Final = "_shown"
"""Whether the window was shown by the end of the batch that made the row. Later on time says so."""

_BEFORE: Final = -1
"""The place of what was before the batch."""

_MOVED, _PRELIMINARY, _CORRECTION, _FINAL = range(4)
"""What is emitted at one place, in this order; ``_MOVED`` are the corrections of a session that is gone with that place."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """The rows of all windows concerned: per window the one held from before, then the batch's changes.

    Places are numbers that rise with them (``_numbered``); ``_BEFORE``: before this batch, ``NEVER``: not in it.

    Attributes:
        frame: rows sorted by window and order.
        groups: which rows belong to one window.
        at: the place that made each row.
        until: up to which place, exclusive, the row is the window's latest at the ends of places; <= ``at``: never.
        is_row: whether the row is one, not a delete.
        starts: index of each window's first row.
        ends: the position that brings time to the end of each row's window.
        reached: its place.
        shown_at: place at whose end each *window* was first shown.
    """

    frame: pl.DataFrame
    groups: Groups
    at: I64
    until: I64
    is_row: Bools
    starts: I64
    ends: I64
    reached: I64
    shown_at: I64

    @property
    def lasts(self) -> I64:
        """Index of each window's last row."""
        lasts: I64 = np.append(self.starts[1:], len(self.at)) - 1
        return lasts

    @property
    def last_rows(self) -> I64:
        """Index of the row that each row's window has at the end of the row's place."""
        ends = np.flatnonzero(self.until > self.at)
        settled: I64 = ends[np.searchsorted(ends, np.arange(len(self.at)))]
        return settled


class Corrections:
    """Turns a window aggregation's changes into marked results.

    Args:
        schema: columns of the changes, ``window_start`` and ``window_end`` (timestamps) among them.
        key: the group's columns; the window's bounds belong to the key anyway.
        delay_ms: how long after its end a window closes: at the first place that brings time to end + delay. It may differ from
            the one the state was made with: what has closed stays closed, what is closed now closes at the next place.
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
        self._shown_until: int = state.get("shown_until", -1)
        self._closed: int = state.get("closed", -1)
        self._changes: int = state.get("changes", 0)
        self._hashing = store.hashing
        self._store = WindowStore(store, self._latest, 1, state.get("segments"))

    @property
    def buffered_rows(self) -> int:
        """Rows held of windows that have not closed."""
        return self._store.rows

    @property
    def due_ms(self) -> int | None:
        """The time at which a window comes to its end or closes; None where none waits."""
        ends = ((self._store.earliest(self._shown_until + 1), 0), (self._store.earliest(self._closed + 1), self._delay_ms))
        return min((end + delay for end, delay in ends if end is not None), default=None)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        state = {"shown_until": self._shown_until, "closed": self._closed, "changes": self._changes}
        return {**state, "segments": self._store.snapshot()}

    def process(self, changes: pl.DataFrame, moment: BatchTime) -> pl.DataFrame:
        """Handle a batch.

        Args:
            changes: the window operator's changes in emission order, with ``FIRST`` (and ``ARRIVED``); their ranks are those of the records
                that made them, and order the changes of one record (``at_one_place``).
            moment: when.

        Returns:
            The service columns and ``schema``. At one place: preliminary results by (end, start, arrival), corrections in the order of
            the changes, final results by (end, start, arrival); before all of them the corrections of sessions that end up deleted
            there. Deletes are corrections, and keep only their key.
        """
        until = due_until(moment)
        shown_until, closed = max(self._shown_until, until), max(self._closed, until - self._delay_ms)
        own = self._rows(changes)
        chain = self._chain(own, shown_until, closed, moment)
        emitted = self._nothing if chain is None else self._emitted(chain, closed, moment)
        self._store.append(own if chain is None else self._latest_rows(chain), closed + 1)
        self._shown_until, self._closed = shown_until, closed
        self._changes += changes.height
        return emitted

    # Rows

    def _rows(self, changes: pl.DataFrame) -> pl.DataFrame:
        """The changes as rows of the store."""
        changes = with_arrivals(changes)
        order = np.arange(self._changes, self._changes + changes.height)
        ends = changes[WINDOW_END].dt.epoch("ms").to_numpy()
        own = [
            pl.Series(NODE, ends, pl.Int64),
            self._hashing.of(changes, self._key).alias(HASH),
            pl.Series(_ORDER, order, pl.Int64),
            pl.Series(SHOWN, np.zeros(changes.height, np.bool_)),
        ]
        arrived = [ARRIVED] if ARRIVED in changes.columns else []
        kept = (FIRST, *arrived, POS, RANK, TS, OP, KEY_HASH, OFFSET, *self._payload)
        return pl.DataFrame([*own, *(changes[name] for name in kept)])

    def _latest(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Keep the latest row of each window, with the earliest arrival of all; the hash alone could collide."""
        if rows.height < 2:
            return rows
        rows = with_arrivals(rows).sort(NODE, HASH, *self._key, _ORDER)
        groups = Groups.of(rows.select(NODE, HASH, *self._key))
        starts = np.unique(groups.firsts)
        lasts = np.append(starts[1:], rows.height) - 1
        return with_series(taken(rows, lasts), *least_arrivals(rows, starts))

    def _pending_rows(self, own: pl.DataFrame, shown_until: int, closed: int) -> list[pl.DataFrame]:
        """Rows held of windows that changed, come to their end or close."""
        touched = own.select(NODE, HASH).unique()
        parts = self._store.matching(touched[NODE].to_numpy(), touched[HASH].to_numpy()) if touched.height else []
        for low, high in ((self._shown_until, shown_until), (self._closed, closed)):
            first, end = max(low + 1, 0), high + 1
            if first < end:
                parts += self._store.covering(first, end)
        return parts

    def _chain(self, own: pl.DataFrame, shown_until: int, closed: int, moment: BatchTime) -> _Chain | None:
        held = self._pending_rows(own, shown_until, closed)
        if not held and own.is_empty():
            return None
        if held:
            rows = self._latest(pl.concat(held, how="diagonal"))
            own = pl.concat([rows.with_columns(pl.lit(_BEFORE, pl.Int64).alias(POS)), own], how="diagonal")
        frame = with_arrivals(own.sort(NODE, HASH, *self._key, _ORDER))
        groups = Groups.of(frame.select(NODE, HASH, *self._key))
        starts = np.unique(groups.firsts)
        ends, is_row = frame[NODE].to_numpy(), frame[OP].to_numpy() == 0
        positions = moment.reached(ends)
        at, reached = _numbered(frame, positions)
        reached = np.where(ends <= self._shown_until, _BEFORE, reached)
        until = np.full(len(at), NEVER)
        until[:-1] = np.where(groups.ids[1:] == groups.ids[:-1], at[1:], NEVER)
        shown = np.maximum(at, reached)
        shown = np.where(is_row & (shown < until), shown, NEVER)
        was_shown = (at == _BEFORE) & (frame[SHOWN].to_numpy() | (is_row & (ends <= self._shown_until)))
        shown[was_shown] = _BEFORE
        return _Chain(frame, groups, at, until, is_row, starts, positions, reached, np.minimum.reduceat(shown, starts))

    def _latest_rows(self, chain: _Chain) -> pl.DataFrame:
        """The latest rows of the windows that changed, as a run for the store."""
        is_changed = chain.at[chain.lasts] > _BEFORE
        rows = taken(chain.frame.drop(POS, RANK), chain.lasts[is_changed])
        arrivals = [column.filter(pl.Series(is_changed)) for column in least_arrivals(chain.frame, chain.starts)]
        return sorted_run(with_series(rows, *arrivals, pl.Series(SHOWN, chain.shown_at[is_changed] < NEVER)))

    # Output

    def _emitted(self, chain: _Chain, closed: int, moment: BatchTime) -> pl.DataFrame:
        """What the batch shows, in emission order."""
        shown_at = chain.shown_at[chain.groups.ids]
        was_row = chain.groups.previous(chain.is_row)
        corrections = np.flatnonzero((chain.at > _BEFORE) & (shown_at < chain.at) & (chain.is_row | was_row))
        lasts, ends = chain.lasts, chain.frame[NODE].to_numpy()
        is_final = chain.is_row[lasts] & (ends[lasts] > self._closed) & (ends[lasts] <= closed)
        final = lasts[is_final]
        closing = np.full(len(lasts), NEVER)
        closing[is_final] = moment.reached(ends[final] + self._delay_ms)
        is_shown_now = (shown_at > _BEFORE) & (shown_at < NEVER)
        preliminary = np.flatnonzero(is_shown_now & (chain.at <= shown_at) & (shown_at < chain.until))
        # Where a change comes behind the window's end it is shown at its own place, else where time reaches the end.
        is_late = chain.at[preliminary] > chain.reached[preliminary]
        positions = np.where(is_late, chain.frame[POS].to_numpy()[preliminary], chain.ends[preliminary])
        is_first = positions < closing[chain.groups.ids[preliminary]]
        further = is_further(values_taken(chain.frame[RANK], preliminary))
        is_behind = np.zeros(len(preliminary), np.bool_) if further is None else further & is_late
        at_records, behind = np.flatnonzero(is_first & ~is_behind), np.flatnonzero(is_first & is_behind)
        parts = [
            self._corrections(chain, corrections),
            self._by_window(chain, preliminary[at_records], positions[at_records], _PRELIMINARY),
            self._by_window(chain, preliminary[behind], positions[behind], _PRELIMINARY, are_further=True),
            self._by_window(chain, final, closing[is_final], _FINAL),
        ]
        rows = pl.concat([part.select(self._nothing.columns) for part in parts])
        return taken(rows, place_order(rows))

    def _corrections(self, chain: _Chain, rows: I64) -> pl.DataFrame:
        """Return changes of windows that were shown before, each at its own place."""
        frame = with_series(taken(chain.frame, rows), pl.Series(STATE, ["correction"]).new_from_index(0, len(rows)))
        is_gone = self._is_moving & ~chain.is_row[chain.last_rows[rows]]
        ranks = frame.get_column(RANK)
        kinds = np.where(is_gone, _MOVED, _CORRECTION)
        return ranked(frame, kinds, ranks, within=levels(ranks))

    @staticmethod
    def _by_window(chain: _Chain, rows: I64, positions: I64, kind: int, *, are_further: bool = False) -> pl.DataFrame:
        """Return results of windows, by (end, start, arrival).

        Args:
            chain: all windows concerned.
            rows: those that are shown.
            positions: where.
            kind: as what.
            are_further: they stand at the further places of the changes that made them.
        """
        least = [values_taken(column, chain.groups.ids[rows]) for column in least_arrivals(chain.frame, chain.starts)]
        frame = with_series(taken(chain.frame, rows), *least, pl.Series(POS, positions), constant(NO_RECORD, len(rows), OFFSET))
        within = levels(frame.get_column(RANK)) if are_further else None
        starts = frame[WINDOW_START].dt.epoch("ms").to_numpy()
        state = pl.Series(STATE, ["final" if kind == _FINAL else "preliminary"]).new_from_index(0, len(rows))
        kinds = np.full(len(rows), kind)
        return with_series(ranked(frame, kinds, frame[NODE].to_numpy(), starts, arrival(frame), within=within), state)


def _numbered(frame: pl.DataFrame, positions: I64) -> tuple[I64, I64]:
    """Number the places of rows and some positions so that numbers rise with places.

    Args:
        frame: rows with position and rank.
        positions: of places of records or silence; as many.

    Returns:
        The number of each row's place, and of each position. A position of -1 or ``NEVER`` is its own number.
    """
    own = frame.get_column(POS).to_numpy()
    if is_further(frame.get_column(RANK)) is None:
        return own, positions
    within = pl.concat([levels(frame.get_column(RANK)), no_levels(len(positions))])
    places = pl.DataFrame({POS: np.concatenate([own, positions]), RANK: within}).with_row_index("_row").sort(POS, RANK)
    numbers = np.empty(places.height, np.int64)
    numbers[places["_row"].to_numpy()] = Groups.of(places.select(POS, RANK)).ids
    both = np.concatenate([own, positions])
    numbers = np.where((both == _BEFORE) | (both == NEVER), both, numbers)
    return numbers[: len(own)], numbers[len(own) :]
