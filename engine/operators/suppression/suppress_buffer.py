"""The buffer behind both suppressions: entries by key, what is shown of each key, the bounds (S1, S4, S5, STRICT 1, 6).

A key's first change makes an entry with a buffer time; later ones replace what it holds; it leaves when the caller's clock lets
it, by (buffer time, arrival of the first change). A delete leaves silently unless the last thing emitted for its key was a row; one of
a key that came while it was held takes no room from then on (S5). Reads and writes only the keys that changed and the entries that leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from engine.errors import BufferFull
from engine.expressions.types.types import Schema
from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, I64, Bools
from engine.frames.frames import KEY_HASH, NO_RECORD, OFFSET, OP, POS, RANK, TS, Counters, add_counter, constant, empty_frame
from engine.frames.places import arrivals, levels, place_order, ranked, unranked
from engine.frames.row_bytes import RowBytes
from engine.operators.pending.spans import Span
from engine.operators.suppression.suppress_bounded import Entry, Head, plan_bounded
from engine.operators.suppression.suppress_episodes import (
    FROM_BEFORE,
    Bounds,
    Course,
    Episodes,
    PendingEntries,
    Steps,
    first_overrun,
    plan,
)
from engine.operators.suppression.suppress_store import ARRIVAL, HELD, SHOWN, SINCE, SIZE, EntryStore
from engine.plan.operators.suppression import TimeLimitSuppression, WallClockSuppression
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.keys import Keys, united
from engine.state.sorted.sorted_search import U64, distinct

_UNBOUNDED: Final = 1 << 62


class Gain(NamedTuple):
    """What some changes release, and why the changes from some position on were not handled."""

    frame: pl.DataFrame
    failure: BufferFull | None = None


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
        self._changes: int = state.get("changes", 0)
        self._bytes: int = state.get("bytes", 0)
        self._voids: int = state.get("voids", 0)
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
        numbers = {"changes": self._changes, "bytes": self._bytes, "voids": self._voids}
        return {**numbers, **self._store.snapshot()}

    def take(self, frame: pl.DataFrame, course: Course, counters: Counters) -> Gain:
        """Handle changes one after the other, and what time releases before, between and behind them.

        Args:
            frame: the changes, with the service columns; ``_key_hash`` is that of the table's key.
            course: when entries leave.
            counters: added to.

        Returns:
            What leaves, at the places where it does, each by (buffer time, arrival); what leaves with the change that made it keeps its
            rank. Where there are bounds, all is one task's and stands as it leaves.
        """
        due = self._store.queue.due(int(course.until[-1]))
        if frame.is_empty() and not due:
            return Gain(self._nothing)
        known = self._known(frame, *(part[KEY_HASH].to_numpy() for part in due))
        steps = self._steps(frame, known, course)
        episodes = plan(steps, known.held)
        if self._is_bounded:
            overrun = first_overrun(steps, known.held, episodes, self.rows, self._bytes, self._bounds)
            if overrun is not None:
                return self._overrun(frame, course, overrun, counters)
        if due:
            self._store.queue.drop(int(course.until[-1]))
        return Gain(self._split_leaving(frame, steps, course, episodes, known))

    @property
    def _is_bounded(self) -> bool:
        return min(self._bounds) < _UNBOUNDED

    def _steps(self, frame: pl.DataFrame, known: _Known, course: Course) -> Steps:
        sizes = np.maximum(self._row_bytes.of(frame), 1)  # what has none is void
        since = _least_of_place(known.codes, course.lasts, course.since)
        return Steps(known.codes, since, sizes, frame[OP].to_numpy() == 0, course.until, course.lasts, arrivals(frame))

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
        numbers = {name: np.zeros(len(keys.hashes), np.int64) for name in (SINCE, SIZE)}
        arrived = unranked(len(keys.hashes))
        places, kept = np.zeros(len(keys.hashes), np.int64), codes[:count]
        if rows is not None:
            places[kept] = np.arange(count)
            is_shown[kept], is_held[kept], is_row[kept] = rows[SHOWN].to_numpy(), rows[HELD].to_numpy(), rows[OP].to_numpy() == 0
            for name, each in numbers.items():
                each[kept] = rows[name].to_numpy()
            arrived = arrived.scatter(kept, rows[ARRIVAL])
        entries = PendingEntries(is_held, is_shown, is_row, numbers[SINCE], numbers[SIZE], arrived)
        return _Known(keys, codes[count:], rows, places, entries)

    # Bounds

    def _overrun(self, frame: pl.DataFrame, course: Course, at: int, counters: Counters) -> Gain:
        """Handle changes of which the one at index ``at`` is the first that does not fit (S4)."""
        fitting = int(np.searchsorted(frame[POS].to_numpy(), frame[POS][at]))
        before = self.take(frame[:fitting], course.first(fitting), counters).frame
        if self._is_stop:
            return Gain(before, self._full(int(frame[POS][at])))
        # Entries that the wall clock releases may stand at the place of the change that did not fit.
        return Gain(_as_they_stand(pl.concat([before, self._take_bounded(frame[fitting:], course.behind(fitting), counters)])))

    def _full(self, position: int) -> BufferFull:
        names = zip(("max_rows", "max_bytes"), self._bounds, strict=True)
        limits = " and ".join(f"{name} {limit}" for name, limit in names if limit < _UNBOUNDED)
        message = (
            f"the suppress buffer is full: it held {self.rows} rows of {self._bytes} bytes, and the next change would pass "
            f"{limits}. Raise suppress.buffer.max_rows or max_bytes, or set when_full to emit_early"
        )
        return BufferFull(message, position)

    def _take_bounded(self, frame: pl.DataFrame, course: Course, counters: Counters) -> pl.DataFrame:
        """Handle changes record by record, letting the oldest go while the buffer is full."""
        add_counter(counters, self._name, "exact_path", frame.height)
        known = self._known(frame)
        steps = self._steps(frame, known, course)
        found = plan_bounded(steps, known.held, self._heads, self.rows, self._bytes, self._bounds)
        add_counter(counters, self._name, "emitted_early", found.evicted)
        if found.last_taken is not None:
            self._store.queue.drop(*found.last_taken)
        numbers = known.codes
        known = self._known(frame, found.other_hashes)
        codes = _codes(found.entries, dict(zip(numbers.tolist(), known.codes.tolist(), strict=True)), known.held)
        return self._split_leaving(frame, steps, course, found.episodes(codes, len(course.until)), known)

    def _heads(self, count: int) -> list[Head]:
        head = self._store.queue.head(count)
        if head is None:
            return []
        held = self._known(self._nothing, head[KEY_HASH].to_numpy()).held
        sizes = dict(zip(held.arrivals.to_list(), held.sizes.tolist(), strict=True))
        rows = zip(head[TS].to_list(), head[ARRIVAL].to_list(), head[KEY_HASH].to_list(), strict=True)
        return [(since, arrival, own, sizes[arrival]) for since, arrival, own in rows]

    # What the episodes leave behind

    def _split_leaving(
        self, frame: pl.DataFrame, steps: Steps, course: Course, episodes: Episodes, known: _Known
    ) -> pl.DataFrame:
        """Emit the entries that leave and keep the others; those from before that leave are off the queue already."""
        latest = self._latest(frame, episodes, known)
        is_row = latest[OP].to_numpy() == 0
        is_first = np.ones(len(is_row), np.bool_)
        is_first[1:] = episodes.codes[1:] != episodes.codes[:-1]
        was_row = np.roll(is_row, 1)  # of the episode before
        is_shown = np.where(is_first, known.held.is_shown[episodes.codes], was_row)
        leaves = episodes.released < len(steps.until)
        out = np.flatnonzero(leaves & (is_row | is_shown))
        arrived = _arrivals(steps, episodes, known)
        emitted = self._emitted(frame, course, latest, episodes, arrived, out)
        self._keep(latest.with_columns(arrived), episodes, known, leaves, np.where(leaves, is_row, is_shown), course.closed_to)
        self._changes += frame.height + 1
        return emitted

    def _emitted(
        self, frame: pl.DataFrame, course: Course, latest: pl.DataFrame, episodes: Episodes, arrived: pl.Series, out: I64
    ) -> pl.DataFrame:
        """Return entries that leave at their places.

        Args:
            frame: the changes.
            course: when entries leave.
            latest: the last change of each episode.
            episodes: by key.
            arrived: when the first change of each episode arrived.
            out: the episodes.
        """
        if not len(out):
            return self._nothing
        released, since = episodes.released[out], episodes.since[out]
        with_change, changes = released % 2 == 1, released // 2
        positions = np.where(with_change, course.before[changes], np.minimum(course.reached(since), course.before[changes]))
        own = frame[RANK].extend_constant(None, 1)[np.where(with_change, changes, frame.height)]
        service = (pl.Series(POS, positions), constant(NO_RECORD, len(out), OFFSET), own)
        emitted = ranked(latest[out].with_columns(service), since, arrived[out], within=levels(own), is_released=True)
        is_passing = with_change & (episodes.begun[out] == changes) & (since == BEFORE_ALL_TIME)
        if is_passing.any():
            passing = np.flatnonzero(is_passing)
            emitted = emitted.with_columns(emitted[RANK].scatter(passing, own[passing]))
        order = place_order(emitted)
        emitted = emitted[order].select(self._nothing.columns)
        if self._is_bounded:
            return _as_they_stand(emitted[np.argsort(released[order], kind="stable")])
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

    def _keep(
        self, latest: pl.DataFrame, episodes: Episodes, known: _Known, leaves: Bools, is_shown: Bools, closed_to: int
    ) -> None:
        """Write what has become of each key.

        Args:
            latest: the last change of each episode, with when its first one arrived.
            episodes: by key.
            known: what was known of the keys before.
            leaves: whether the episode ended.
            is_shown: whether the key's last emission is a row, after the episode.
            closed_to: see ``Course``.
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
            pl.Series(POS, np.full(len(kept), self._changes)),
        ]
        rows = latest[kept].with_columns(state)
        if not stays.all():
            rows = rows.with_columns(pl.when(HELD).then(name).alias(name) for name in (ARRIVAL, *self._values))
        self._store.put(rows, closed_to)
        new = np.flatnonzero(~leaves & episodes.is_new)
        new = new[np.argsort(episodes.begun[new])]
        self._store.enqueue(episodes.since[new], latest[ARRIVAL][new], known.keys.hashes[codes[new]])
        freed, held = known.held.sizes[codes[is_last & was_held]], episodes.sizes[kept[stays]]
        self._bytes += int(held.sum() - freed.sum())
        self._voids += int((held == 0).sum() - (freed == 0).sum())


def _as_they_stand(rows: pl.DataFrame) -> pl.DataFrame:
    """Let the rows of one place stand as they leave: with bounds all is one task's."""
    return ranked(rows, np.arange(rows.height), within=levels(rows[RANK]))


def _codes(entries: Sequence[Entry], numbers: Mapping[int, int], held: PendingEntries) -> I64:
    """Return the number of each entry's key.

    Args:
        entries: of the record-by-record path.
        numbers: of the keys that the batch changes, by their numbers there.
        held: entries from before the batch, by key number: no two have the same arrival.
    """
    by_arrival = {arrival: code for code, arrival in enumerate(held.arrivals.to_list())}
    found = [
        numbers[each.key] if each.begun != FROM_BEFORE and each.key is not None else by_arrival[each.arrival] for each in entries
    ]
    return np.array(found, np.int64)


def _arrivals(steps: Steps, episodes: Episodes, known: _Known) -> pl.Series:
    """Return when the first change of each episode arrived."""
    before = known.held.arrivals
    found = np.where(episodes.is_new, episodes.begun + len(before), episodes.codes)
    return pl.concat([before, steps.arrivals])[found].alias(ARRIVAL)


def _least_of_place(codes: I64, lasts: I64, since: I64) -> I64:
    """Return the least buffer time of the changes of one key at one place (S1)."""
    if (lasts == np.arange(len(lasts))).all():
        return since
    _, groups = np.unique(codes * len(codes) + lasts, return_inverse=True)
    least = np.full(len(codes), AFTER_ALL_TIME)
    np.minimum.at(least, groups, since)
    found: I64 = least[groups]
    return found
