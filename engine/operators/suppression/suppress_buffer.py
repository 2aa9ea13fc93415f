"""The buffer behind both suppressions: entries by key, what is shown of each key, the bounds (S1, S4, S5, STRICT 1, 6).

A key's first change makes an entry with a buffer time and a place; later ones replace what it holds; it leaves when the caller's
clock lets it, by (buffer time, place). A delete leaves silently unless the last thing emitted for its key was a row; one of a key that
came while it was held takes no room from then on (S5). Reads and writes only the keys that changed and the entries that leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from engine.errors import BufferFull
from engine.expressions.types.types import Schema
from engine.frames.clocks import BEFORE_ALL_TIME, I64, Bools, clock_value
from engine.frames.frames import KEY_HASH, OFFSET, OP, POS, TS, Counters, add_counter, empty_frame
from engine.frames.row_bytes import RowBytes
from engine.operators.pending.spans import Span
from engine.operators.suppression.suppress_episodes import (
    FROM_BEFORE,
    Bounds,
    Entry,
    Episodes,
    PendingEntries,
    Steps,
    first_overrun,
    plan,
    plan_bounded,
)
from engine.operators.suppression.suppress_store import HELD, PLACE, SHOWN, SINCE, SIZE, EntryStore
from engine.plan.operators.suppression import TimeLimitSuppression, WallClockSuppression
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.keys import Keys, united
from engine.state.sorted.sorted_search import U64, distinct

_UNBOUNDED: Final = 1 << 62


class Gain(NamedTuple):
    """What some changes release, and why the changes from some position on were not handled."""

    frame: pl.DataFrame
    failure: BufferFull | None = None


class _Places(NamedTuple):
    """``_pos`` and ``_offset`` of each step."""

    positions: I64
    offsets: I64


@dataclass(frozen=True, slots=True)
class _Known:
    """What the index knows of a batch's keys.

    Attributes:
        keys: the keys; all that have the hash of one of them are among them.
        codes: number of each change's key.
        rows: the index's rows of those that have one; None: none has.
        places: row of each key in ``rows``; unspecified where it has none.
        held: their entries, and what is shown of them.
    """

    keys: Keys
    codes: I64
    rows: pl.DataFrame | None
    places: I64
    held: PendingEntries


class SuppressionBuffer:
    """Entries of one operator.

    Args:
        spec: name, key and bounds. The bounds may differ from those the state was made with: they are looked at after each change.
        schema: payload columns.
        state: what ``snapshot`` returned, or None.
        store: where entries live.
    """

    def __init__(
        self, spec: TimeLimitSuppression | WallClockSuppression, schema: Schema, state: dict[str, Any] | None, store: SegmentStore
    ) -> None:
        state = state or {}
        bounds = spec.buffer
        self._name, self._schema = spec.name, schema
        self._key = spec.key
        self._values = [name for name in schema.names if name not in spec.key]
        self._is_stop = bounds is not None and bounds.when_full == "stop"
        limits = (None, None) if bounds is None else (bounds.max_rows, bounds.max_bytes)
        self._bounds = Bounds(*(_UNBOUNDED if limit is None else limit for limit in limits))
        self._row_bytes = RowBytes(schema.polars())
        self._places: int = state.get("places", 0)
        self._bytes: int = state.get("bytes", 0)
        self._voids: int = state.get("voids", 0)
        self._closing = spec.closing
        self._latest_ms: int | None = state.get("latest_ms")
        self._store = EntryStore(spec.key, None if spec.closing is None else spec.closing.end, state, store)
        self._nothing = empty_frame(schema)

    @property
    def rows(self) -> int:
        """Entries held; void ones are none."""
        return self._store.queue.rows - self._voids

    @property
    def bytes(self) -> int:
        """Their keys and values, Arrow-encoded (S4)."""
        return self._bytes

    @property
    def oldest(self) -> int | None:
        """The smallest buffer time held."""
        return self._store.queue.oldest

    @property
    def spans(self) -> list[Span]:
        """Entries by buffer time."""
        return self._store.queue.spans

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        numbers = {"places": self._places, "bytes": self._bytes, "voids": self._voids, "latest_ms": self._latest_ms}
        return {**numbers, **self._store.snapshot()}

    def take(self, frame: pl.DataFrame, since: I64, until: I64, counters: Counters) -> Gain:
        """Handle changes one after the other.

        Args:
            frame: the changes, with the service columns; ``_key_hash`` is that of the table's key.
            since: buffer time of an entry that each change would make.
            until: after each change the entries with buffer time <= this leave; non-decreasing.
            counters: added to.

        Returns:
            What leaves, at the place of the change that lets it go.
        """
        if frame.is_empty():
            return Gain(self._nothing)
        due = self._store.queue.due(int(until[-1]))
        known = self._known(frame, *(part[KEY_HASH].to_numpy() for part in due))
        steps = self._steps(frame, known, since, until)
        episodes = plan(steps, known.held)
        if min(self._bounds) < _UNBOUNDED:
            overrun = first_overrun(steps, known.held, episodes, self.rows, self._bytes, self._bounds)
            if overrun is not None:
                return self._overrun(frame, since, until, overrun, counters)
        if due:
            self._store.queue.drop(int(until[-1]), self._places)
        self._see(frame)
        return Gain(self._split_leaving(frame, _Places(frame[POS].to_numpy(), frame[OFFSET].to_numpy()), episodes, known))

    def release(self, until: int, position: int, offset: int) -> pl.DataFrame:
        """Let go all entries with buffer time <= ``until`` at one place, without a change."""
        due = self._store.queue.due(until)
        if not due:
            return self._nothing
        known = self._known(self._nothing, *(part[KEY_HASH].to_numpy() for part in due))
        steps = self._steps(self._nothing, known, np.zeros(0, np.int64), np.array([until]))
        episodes = plan(steps, known.held)
        self._store.queue.drop(until, self._places)
        return self._split_leaving(self._nothing, _Places(np.array([position]), np.array([offset])), episodes, known)

    def _see(self, frame: pl.DataFrame) -> None:
        """Follow the changes' greatest event time: the windows' stream time is that or later."""
        latest_ms = int(frame[TS].to_numpy().max())
        self._latest_ms = max(clock_value(self._latest_ms), latest_ms)

    @property
    def _closed_to(self) -> int:
        """Windows that end then or before have closed."""
        return BEFORE_ALL_TIME if self._closing is None else clock_value(self._latest_ms) - self._closing.delay_ms

    def _steps(self, frame: pl.DataFrame, known: _Known, since: I64, until: I64) -> Steps:
        sizes = np.maximum(self._row_bytes.of(frame), 1)  # what has none is void
        return Steps(known.codes, since, sizes, frame[OP].to_numpy() == 0, until, self._places)

    def _known(self, frame: pl.DataFrame, *held: U64) -> _Known:
        """Look up the keys of changes, and those that have one of the hashes of held entries."""
        own = frame[KEY_HASH].to_numpy()
        rows = self._store.rows_of(distinct(np.concatenate([own, *held])))
        values = [frame[name] for name in self._key]
        count = 0 if rows is None else rows.height
        if rows is not None:
            own = np.concatenate([rows[KEY_HASH].to_numpy(), own])
            values = [united(rows[name], column) for name, column in zip(self._key, values, strict=True)]
        keys, codes = Keys.of(own, values)
        is_shown, is_held, is_row = np.zeros((3, len(keys.hashes)), np.bool_)
        numbers = {name: np.zeros(len(keys.hashes), np.int64) for name in (SINCE, PLACE, SIZE)}
        places, kept = np.zeros(len(keys.hashes), np.int64), codes[:count]
        if rows is not None:
            places[kept] = np.arange(count)
            is_shown[kept], is_held[kept], is_row[kept] = rows[SHOWN].to_numpy(), rows[HELD].to_numpy(), rows[OP].to_numpy() == 0
            for name, each in numbers.items():
                each[kept] = rows[name].to_numpy()
        entries = PendingEntries(is_held, is_shown, is_row, numbers[SINCE], numbers[PLACE], numbers[SIZE])
        return _Known(keys, codes[count:], rows, places, entries)

    # Bounds

    def _overrun(self, frame: pl.DataFrame, since: I64, until: I64, at: int, counters: Counters) -> Gain:
        """Handle changes of which the one at index ``at`` is the first that does not fit (S4)."""
        fitting = int(np.searchsorted(frame[POS].to_numpy(), frame[POS][at])) if self._is_stop else at
        before = self.take(frame[:fitting], since[:fitting], until[:fitting], counters).frame
        if self._is_stop:
            return Gain(before, self._full(int(frame[POS][at])))
        return Gain(pl.concat([before, self._take_bounded(frame[at:], since[at:], until[at:], counters)]))

    def _full(self, position: int) -> BufferFull:
        names = zip(("max_rows", "max_bytes"), self._bounds, strict=True)
        limits = " and ".join(f"{name} {limit}" for name, limit in names if limit < _UNBOUNDED)
        message = (
            f"the suppress buffer is full: it held {self.rows} rows of {self._bytes} bytes, and the next change would pass "
            f"{limits}. Raise suppress.buffer.max_rows or max_bytes, or set when_full to emit_early"
        )
        return BufferFull(message, position)

    def _take_bounded(self, frame: pl.DataFrame, since: I64, until: I64, counters: Counters) -> pl.DataFrame:
        """Handle changes record by record, letting the oldest go while the buffer is full."""
        add_counter(counters, self._name, "exact_path", frame.height)
        known = self._known(frame)
        steps = self._steps(frame, known, since, until)
        found = plan_bounded(steps, known.held, self._heads, self.rows, self._bytes, self._bounds)
        add_counter(counters, self._name, "emitted_early", found.evicted)
        if found.last_taken is not None:
            self._store.queue.drop(*found.last_taken)
        numbers = known.codes
        known = self._known(frame, found.other_hashes)
        self._see(frame)
        places = _Places(frame[POS].to_numpy(), frame[OFFSET].to_numpy())
        codes = _codes(found.entries, dict(zip(numbers.tolist(), known.codes.tolist(), strict=True)), known.held)
        return self._split_leaving(frame, places, found.episodes(codes, len(until)), known)

    def _heads(self, count: int) -> list[tuple[int, int, int, int]]:
        head = self._store.queue.head(count)
        if head is None:
            return []
        held = self._known(self._nothing, head[KEY_HASH].to_numpy()).held
        sizes = dict(zip(held.places[held.is_held].tolist(), held.sizes[held.is_held].tolist(), strict=True))
        rows = zip(head[TS].to_list(), head[PLACE].to_list(), head[KEY_HASH].to_list(), strict=True)
        return [(since, place, own, sizes[place]) for since, place, own in rows]

    # What the episodes leave behind

    def _split_leaving(self, frame: pl.DataFrame, places: _Places, episodes: Episodes, known: _Known) -> pl.DataFrame:
        """Emit the entries that leave and keep the others; those from before that leave are off the queue already."""
        latest = self._latest(frame, episodes, known)
        is_row = latest[OP].to_numpy() == 0
        is_first = np.ones(len(is_row), np.bool_)
        is_first[1:] = episodes.codes[1:] != episodes.codes[:-1]
        was_row = np.roll(is_row, 1)  # of the episode before
        is_shown = np.where(is_first, known.held.is_shown[episodes.codes], was_row)
        leaves = episodes.released < len(places.positions)
        out = np.flatnonzero(leaves & (is_row | is_shown))
        out = out[np.lexsort((episodes.places[out], episodes.since[out], episodes.released[out]))]
        steps = episodes.released[out]
        service = (pl.Series(POS, places.positions[steps]), pl.Series(OFFSET, places.offsets[steps]))
        emitted = latest[out].with_columns(service).select(self._nothing.columns)
        self._keep(latest, episodes, known, leaves, np.where(leaves, is_row, is_shown))
        self._places += len(places.positions)
        return emitted

    def _latest(self, frame: pl.DataFrame, episodes: Episodes, known: _Known) -> pl.DataFrame:
        """The last change of each episode."""
        own = [KEY_HASH, TS, OP, SIZE, *self._schema.names]
        sizes = pl.Series(SIZE, episodes.sizes)
        changes = frame.with_columns(pl.lit(0, pl.Int64).alias(SIZE)).select(own)
        if known.rows is None:
            return changes[episodes.sources].with_columns(sizes)
        before = known.places[episodes.codes]
        taken = np.where(episodes.sources == FROM_BEFORE, before, episodes.sources + known.rows.height)
        return pl.concat([known.rows.select(own), changes])[taken].with_columns(sizes)

    def _keep(self, latest: pl.DataFrame, episodes: Episodes, known: _Known, leaves: Bools, is_shown: Bools) -> None:
        """Write what has become of each key.

        Args:
            latest: the last change of each episode.
            episodes: by key.
            known: what was known of the keys before.
            leaves: whether the episode ended.
            is_shown: whether the key's last emission is a row, after the episode.
        """
        codes = episodes.codes
        is_last = np.append(codes[1:] != codes[:-1], [True])[: len(codes)]
        was_held = known.held.is_held[codes]
        is_same = leaves & ~was_held & (known.held.is_shown[codes] == is_shown)  # nothing held, then and now
        kept = np.flatnonzero(is_last & ~is_same)
        stays = ~leaves[kept]
        state = [
            pl.Series(HELD, stays),
            pl.Series(SHOWN, is_shown[kept]),
            pl.Series(SINCE, episodes.since[kept]),
            pl.Series(PLACE, episodes.places[kept]),
            pl.Series(POS, np.full(len(kept), self._places)),
        ]
        rows = latest[kept].with_columns(state)
        if not stays.all():
            rows = rows.with_columns(pl.when(HELD).then(name).alias(name) for name in self._values)
        self._store.put(rows, self._closed_to)
        new = np.flatnonzero(~leaves & episodes.is_new)
        self._store.enqueue(episodes.since[new], episodes.places[new], known.keys.hashes[codes[new]])
        freed, held = known.held.sizes[codes[is_last & was_held]], episodes.sizes[kept[stays]]
        self._bytes += int(held.sum() - freed.sum())
        self._voids += int((held == 0).sum() - (freed == 0).sum())


def _codes(entries: Sequence[Entry], numbers: Mapping[int, int], held: PendingEntries) -> I64:
    """Return the number of each entry's key.

    Args:
        entries: of the record-by-record path.
        numbers: of the keys that the batch changes, by their numbers there.
        held: entries from before the batch, by key number: no two have the same place.
    """
    by_place = dict(zip(held.places[held.is_held].tolist(), np.flatnonzero(held.is_held).tolist(), strict=True))
    found = [numbers[entry.key] if entry.is_new and entry.key is not None else by_place[entry.place] for entry in entries]
    return np.array(found, np.int64)
