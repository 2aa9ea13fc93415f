"""Which changes a suppress buffer puts together, and when it lets them go (S1, S2, S4): numbers only, no payload, no state.

An *episode* begins with a change of a key that holds nothing and ends when its entry leaves the buffer; the changes between
replace each other. An entry is *void* once it has nothing to tell any more: a key came and went while it was held (S5). It keeps its
buffer time, which counts should the key come back, but takes no room.

``plan`` finds all episodes of a batch without a loop over records: where an episode that begins at a change would end is one
binary search, so each change knows which change of its key would begin the next one, and those that are really reached from a key's first
one are found by doubling the steps. ``plan_bounded`` is the record-by-record reading, for the rare rows (a full buffer) where every
release depends on all changes before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from engine.frames.clocks import I64, Bools
from engine.state.sorted.sorted_search import U64

FROM_BEFORE: Final = -1
"""Source of an episode whose latest change is the one in the index."""

_CHUNK: Final = 512
"""Entries read at once from the queue's head by the record-by-record path; doubled each time."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A batch's changes and when each step lets entries go.

    Change i comes with step 2 i + 1; the steps before, between and behind them are of time alone.

    Attributes:
        codes: number of each change's key.
        since: buffer time of an entry that each change would make.
        sizes: bytes of each change.
        is_row: whether each change is a row, not a delete.
        until: with each step the entries with buffer time <= this leave; non-decreasing.
        lasts: the last change at each change's place: with it entries leave at the earliest that a change of that place has made.
        arrivals: when each change arrived, as bytes.
    """

    codes: I64
    since: I64
    sizes: I64
    is_row: Bools
    until: I64
    lasts: I64
    arrivals: pl.Series

    @property
    def is_last(self) -> Bools:
        """Whether each change is the last one at its place."""
        is_last: Bools = self.lasts == np.arange(len(self.lasts))
        return is_last


def first_behind(steps: I64) -> I64:
    """Return the first change that comes behind each step."""
    return (steps + 1) // 2


@dataclass(frozen=True, slots=True)
class PendingEntries:
    """Entries from before the batch, by key number.

    Attributes:
        is_held: whether the key has one.
        is_shown: whether the last thing emitted for the key was a row.
        is_row: whether the entry is a row, not a delete.
        since: its buffer time.
        sizes: its bytes; none where it is void.
        arrivals: see ``ARRIVAL``.
    """

    is_held: Bools
    is_shown: Bools
    is_row: Bools
    since: I64
    sizes: I64
    arrivals: pl.Series

    @property
    def is_void(self) -> Bools:
        """Whether the entry is void."""
        is_void: Bools = self.is_held & (self.sizes == 0)
        return is_void


@dataclass(frozen=True, slots=True)
class Episodes:
    """By key, then time.

    Attributes:
        codes: number of the key.
        sources: the change that is the entry's latest when it leaves, or when the batch ends; ``FROM_BEFORE``: none of the batch.
        released: the step with which it leaves; the number of steps: it stays.
        since: buffer time.
        begun: the change that made it; ``FROM_BEFORE``: none of the batch.
        sizes: bytes of its latest change; none where the entry is void.
    """

    codes: I64
    sources: I64
    released: I64
    since: I64
    begun: I64
    sizes: I64

    @property
    def is_new(self) -> Bools:
        """Whether it began in the batch."""
        is_new: Bools = self.begun != FROM_BEFORE
        return is_new


class Bounds(NamedTuple):
    """S4, with no bound as a number that nothing reaches."""

    rows: int
    bytes: int


def plan(steps: Steps, held: PendingEntries) -> Episodes:
    """Find the episodes of a batch, as if the buffer had no bounds."""
    ends, wide = len(steps.until), len(steps.codes) + 1
    order = np.argsort(steps.codes, kind="stable")
    ranks = steps.codes[order] * wide + order  # ascending: by key, then arrival
    keys = np.arange(len(held.is_held))
    stops = np.searchsorted(ranks, (keys + 1) * wide)
    freed = np.where(held.is_held, np.searchsorted(steps.until, held.since), -1)
    first = np.searchsorted(ranks, keys * wide + first_behind(freed))
    released = np.maximum(2 * steps.lasts[order] + 1, np.searchsorted(steps.until, steps.since[order]))
    following = np.searchsorted(ranks, steps.codes[order] * wide + first_behind(released))
    following = np.where(following < stops[steps.codes[order]], following, len(order))
    starts = _reached(first[first < stops], following)
    new = order[starts]
    begins = np.searchsorted(ranks, keys * wide)
    replaced = np.flatnonzero(held.is_held & (first > begins))
    old_sources = np.full(len(keys), FROM_BEFORE)
    old_sources[replaced] = order[first[replaced] - 1]
    last = np.minimum(following[starts], stops[steps.codes[new]]) - 1
    old = np.flatnonzero(held.is_held)
    episodes = Episodes(
        np.concatenate([old, steps.codes[new]]),
        np.concatenate([old_sources[old], order[last]]),
        np.concatenate([np.minimum(freed[old], ends), released[starts]]),
        np.concatenate([held.since[old], steps.since[new]]),
        np.concatenate([np.full(len(old), FROM_BEFORE), new]),
        np.zeros(len(old) + len(new), np.int64),
    )
    episodes = _by_key(episodes)
    return replace(episodes, sizes=room(steps, held, episodes).ended_sizes)


def _reached(starts: I64, following: I64) -> I64:
    """The places that are reached from ``starts`` by any number of steps along ``following``; its length is the way out."""
    is_reached = np.zeros(len(following) + 1, np.bool_)
    is_reached[starts] = True
    jump = np.append(following, len(following))
    found = starts
    while len(found):
        targets = jump[np.flatnonzero(is_reached)]
        found = targets[~is_reached[targets] & (targets < len(following))]
        is_reached[found] = True
        jump = jump[jump]
    reached: I64 = np.flatnonzero(is_reached[:-1])
    return reached


def _by_key(episodes: Episodes) -> Episodes:
    order = np.argsort(episodes.codes, kind="stable")
    names = ("codes", "sources", "released", "since", "begun", "sizes")
    return Episodes(*(getattr(episodes, name)[order] for name in names))


@dataclass(frozen=True, slots=True)
class Room:
    """What entries take of the buffer, change after change.

    Attributes:
        sizes: of each change, the bytes of its entry with it; none where the entry is void.
        ended_sizes: of each episode, the bytes of its entry when it leaves, or when the batch ends.
        previous: of each change, the change of the same episode before it; ``FROM_BEFORE`` for what was held, else ``BEGINS``.
    """

    sizes: I64
    ended_sizes: I64
    previous: I64


BEGINS: Final = -2
"""In place of the change before, of one that begins an episode."""


def room(steps: Steps, held: PendingEntries, episodes: Episodes) -> Room:
    """Say which entries are void when (S5): the delete of a key that became a row while it was held, and of which none is shown."""
    count, wide = len(steps.codes), len(steps.codes) + 1
    order = np.argsort(steps.codes, kind="stable")
    ranks = steps.codes[order] * wide + order
    starts = np.searchsorted(ranks, episodes.codes * wide + np.maximum(episodes.begun, 0))
    own = np.searchsorted(starts, np.arange(count), "right") - 1  # the episode of each change, both by key and arrival
    is_row = steps.is_row[order]
    is_shown = _shown_before(episodes, held, steps.is_row)[own]
    last_row = np.maximum.accumulate(np.where(is_row, np.arange(count), -1))
    of_held = ~episodes.is_new[own] & (held.is_row | held.is_void)[steps.codes[order]]
    is_void = ~is_row & ~is_shown & ((last_row >= starts[own]) | of_held)
    begins = np.where(episodes.is_new[own], BEGINS, FROM_BEFORE)
    previous = np.where(np.arange(count) > starts[own], np.roll(order, 1), begins)
    sizes, before, is_own = np.empty(count, np.int64), np.empty(count, np.int64), episodes.sources >= 0
    sizes[order], before[order] = np.where(is_void, 0, steps.sizes[order]), previous
    ended_sizes = held.sizes[episodes.codes]
    ended_sizes[is_own] = sizes[episodes.sources[is_own]]
    return Room(sizes, ended_sizes, before)


def _shown_before(episodes: Episodes, held: PendingEntries, is_row: Bools) -> Bools:
    """Say of each episode whether the last thing emitted for its key before it was a row."""
    ended_row = held.is_row[episodes.codes]
    is_own = episodes.sources >= 0
    ended_row[is_own] = is_row[episodes.sources[is_own]]
    is_first = np.append([True], episodes.codes[1:] != episodes.codes[:-1])[: len(episodes.codes)]
    is_shown: Bools = np.where(is_first, held.is_shown[episodes.codes], np.roll(ended_row, 1))
    return is_shown


def first_overrun(steps: Steps, held: PendingEntries, episodes: Episodes, rows: int, size: int, bounds: Bounds) -> int | None:
    """Return the first change after which the buffer would be over its bounds, when it begins with ``rows`` and ``size`` bytes."""
    ends = len(steps.until)
    taken = room(steps, held, episodes)
    codes, previous = steps.codes, taken.previous
    replaced = np.where(previous == FROM_BEFORE, held.sizes[codes], 0)
    replaced[previous >= 0] = taken.sizes[previous[previous >= 0]]
    leaves = episodes.released < ends
    released, freed = episodes.released[leaves], taken.ended_sizes[leaves]
    added, grown = np.zeros((2, ends), np.int64)
    np.subtract.at(added, released, np.sign(freed))
    np.subtract.at(grown, released, freed)
    added[1::2] += np.sign(taken.sizes) - np.sign(replaced)  # what is void has no bytes and takes no row
    grown[1::2] += taken.sizes - replaced
    over = ((rows + np.cumsum(added) > bounds.rows) | (size + np.cumsum(grown) > bounds.bytes))[1::2]
    return int(np.argmax(over)) if over.any() else None


@dataclass(slots=True)
class Entry:
    """An entry of the record-by-record path.

    Attributes:
        since: its buffer time.
        arrival: see ``ARRIVAL``; no two entries have the same.
        size: bytes of its latest change.
        key: number of its key; None: of no key that the batch changes.
        hash: of its key, where that has no number.
        source: see ``Episodes``.
        released: the step with which it left; below 0: it stays.
        begun: see ``Episodes``.
        is_row: whether its latest change is a row, not a delete.
        was_row: whether any of its changes was a row.
    """

    since: int
    arrival: bytes
    size: int
    key: int | None = None
    hash: int = 0
    source: int = FROM_BEFORE
    released: int = -1
    begun: int = FROM_BEFORE
    is_row: bool = False
    was_row: bool = False

    @property
    def is_void(self) -> bool:
        return self.size == 0


@dataclass(slots=True)
class Bounded:
    """What the record-by-record path found.

    Attributes:
        entries: all episodes that changed or ended, in the order of their beginnings in the batch.
        evicted: how many left only because the buffer was full.
        last_taken: (buffer time, arrival) of the last entry taken off the queue's head, or None.
    """

    entries: list[Entry] = field(default_factory=list)
    evicted: int = 0
    last_taken: tuple[int, bytes] | None = None

    @property
    def other_hashes(self) -> U64:
        """Hashes of the keys that the batch does not change, with repetitions."""
        return np.array([entry.hash for entry in self.entries if entry.key is None], np.uint64)

    def episodes(self, codes: I64, ends: int) -> Episodes:
        """The episodes, of ``ends`` steps; ``codes`` number the entries' keys."""
        columns = ("source", "released", "since", "begun", "size")
        numbers = np.array([[getattr(entry, name) for name in columns] for entry in self.entries], np.int64).reshape(-1, 5)
        released = np.where(numbers[:, 1] < 0, ends, numbers[:, 1])
        return _by_key(Episodes(codes, numbers[:, 0], released, numbers[:, 2], numbers[:, 3], numbers[:, 4]))


Head = tuple[int, bytes, int, int]
"""The next entry to leave: buffer time, arrival, key hash, bytes. Of an entry of the batch the number of its key stands for the hash."""

Heads = Callable[[int], list[Head]]
"""Gives the first n held entries in order."""


def plan_bounded(steps: Steps, held: PendingEntries, heads: Heads, rows: int, size: int, bounds: Bounds) -> Bounded:
    """Handle change after change: replace or hold, release what is due, then the oldest until the buffer fits (``emit_early``).

    Args:
        steps: the changes; at least one.
        held: what their keys hold.
        heads: see ``Heads``.
        rows: entries held before.
        size: their bytes.
        bounds: S4.
    """
    return _Walk(steps, held, heads, rows, size, bounds).run()


class _Walk:
    """The state of ``plan_bounded``."""

    def __init__(self, steps: Steps, held: PendingEntries, heads: Heads, rows: int, size: int, bounds: Bounds) -> None:
        self._steps, self._heads, self._bounds = steps, heads, bounds
        self._keys = steps.codes.tolist()
        self._rows, self._size = rows, size
        self._is_row, self._is_shown = steps.is_row.tolist(), held.is_shown.tolist()
        self._arrivals = steps.arrivals.to_list()
        names = ("is_held", "since", "sizes", "is_row", "is_void")
        old = enumerate(zip(held.arrivals.to_list(), *(getattr(held, name).tolist() for name in names), strict=True))
        self._live = {
            key: Entry(since, arrival, size, key, is_row=is_row, was_row=is_row or is_void)
            for key, (arrival, is_held, since, size, is_row, is_void) in old
            if is_held
        }
        self._by_arrival = {entry.arrival: key for key, entry in self._live.items()}
        self._new: list[tuple[int, bytes, int]] = []
        self._old: list[Head] = []
        self._taken = 0
        self._is_whole = False
        self._found = Bounded()

    def run(self) -> Bounded:
        since, sizes, until = self._steps.since.tolist(), self._steps.sizes.tolist(), self._steps.until.tolist()
        is_last = self._steps.is_last.tolist()
        for change, key in enumerate(self._keys):
            if not change or is_last[change - 1]:
                self._let_go(2 * change, until[2 * change])
            self._take_in(change, key, since[change], sizes[change])
            if is_last[change]:
                self._let_go(2 * change + 1, until[2 * change + 1])
            while self._rows > self._bounds.rows or self._size > self._bounds.bytes:
                oldest = self._oldest()
                if oldest is None:
                    break
                self._found.evicted += not self._release(oldest, 2 * change + 1)
        self._let_go(2 * len(self._keys), until[-1])
        return self._found

    def _let_go(self, step: int, until: int) -> None:
        """Let go what is due."""
        while (oldest := self._oldest()) is not None and oldest[0] <= until:
            self._release(oldest, step)

    def _take_in(self, change: int, key: int, since: int, size: int) -> None:
        entry = self._live.get(key)
        if entry is None:
            arrival = self._arrivals[change]
            entry = self._live[key] = Entry(since, arrival, 0, key, begun=change)
            heappush(self._new, (since, arrival, key))
            self._found.entries.append(entry)
        elif entry.source == FROM_BEFORE:
            self._found.entries.append(entry)
        entry.is_row = self._is_row[change]
        entry.was_row |= entry.is_row
        if entry.was_row and not entry.is_row and not self._is_shown[key]:
            size = 0
        self._rows += (size > 0) - (entry.size > 0)
        self._size += size - entry.size
        entry.source, entry.size = change, size

    def _oldest(self) -> Head | None:
        if self._taken == len(self._old) and not self._is_whole:
            self._old = self._heads(max(_CHUNK, 2 * self._taken))
            self._is_whole = len(self._old) == self._taken
        old = self._old[self._taken] if self._taken < len(self._old) else None
        if self._new and (old is None or self._new[0] < old[:3]):
            return (*self._new[0], 0)
        return old

    def _release(self, oldest: Head, step: int) -> bool:
        """Let an entry go; returns whether it was void."""
        since, arrival, key, size = oldest
        if self._new and self._new[0][1] == arrival:
            heappop(self._new)
            entry = self._live.pop(key)
        else:
            known = self._by_arrival.get(arrival)
            entry = Entry(since, arrival, size, hash=key) if known is None else self._live.pop(known)
            self._taken += 1
            self._found.last_taken = (since, arrival)
        if entry.source == FROM_BEFORE:
            self._found.entries.append(entry)
        entry.released = step
        self._rows -= not entry.is_void
        self._size -= entry.size
        if entry.key is not None:  # of others no change will come
            self._is_shown[entry.key] = entry.is_row
        return entry.is_void
