"""Which changes a suppress buffer puts together, and when it lets them go (S1, S2, S4): numbers only, no payload, no state.

An *episode* begins with a change of a key that holds nothing and ends when its entry leaves the buffer; the changes between
replace each other. ``plan`` finds all episodes of a batch without a loop over records: where an episode that begins at a change
would end is one binary search, so each change knows which change of its key would begin the next one, and those that are really
reached from a key's first one are found by doubling the steps. ``plan_bounded`` is the record-by-record reading, for the rare rows
(a full buffer) where every release depends on all changes before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np

from engine.core.clocks import I64, Bools
from engine.core.structures.sorted_search import U64

FROM_BEFORE: Final = -1
"""Source of an episode whose latest change is the one in the index."""

_CHUNK: Final = 512
"""Entries read at once from the queue's head by the record-by-record path; doubled each time."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A batch's changes and when each step lets entries go. Step i is change i; with no changes there is one step, time alone.

    Attributes:
        codes: number of each change's key.
        since: buffer time of an entry that each change would make.
        sizes: bytes of each change.
        until: after each step the entries with buffer time <= this leave; non-decreasing.
        first_place: place of the first change.
    """

    codes: I64
    since: I64
    sizes: I64
    until: I64
    first_place: int


@dataclass(frozen=True, slots=True)
class Held:
    """Entries from before the batch, by key number.

    Attributes:
        is_held: whether the key has one.
        since: its buffer time.
        places: its place.
        sizes: its bytes.
    """

    is_held: Bools
    since: I64
    places: I64
    sizes: I64


@dataclass(frozen=True, slots=True)
class Episodes:
    """By key, then time.

    Attributes:
        codes: number of the key.
        sources: the change that is the entry's latest when it leaves, or when the batch ends; ``FROM_BEFORE``: none of the batch.
        released: the step after which it leaves; the number of steps: it stays.
        since: buffer time.
        places: see ``PLACE``.
        is_new: whether it began in the batch.
    """

    codes: I64
    sources: I64
    released: I64
    since: I64
    places: I64
    is_new: Bools


class Bounds(NamedTuple):
    """S4, with no bound as a number that nothing reaches."""

    rows: int
    bytes: int


def plan(steps: Steps, held: Held) -> Episodes:
    """Find the episodes of a batch, as if the buffer had no bounds."""
    ends, wide = len(steps.until), len(steps.until) + 1
    order = np.argsort(steps.codes, kind="stable")
    ranks = steps.codes[order] * wide + order  # ascending: by key, then arrival
    keys = np.arange(len(held.is_held))
    stops = np.searchsorted(ranks, (keys + 1) * wide)
    freed = np.where(held.is_held, np.searchsorted(steps.until, held.since), -1)
    first = np.searchsorted(ranks, keys * wide + freed, "right")
    released = np.maximum(order, np.searchsorted(steps.until, steps.since[order]))
    following = np.searchsorted(ranks, steps.codes[order] * wide + released, "right")
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
        np.concatenate([held.places[old], steps.first_place + new]),
        np.repeat([False, True], [len(old), len(new)]),
    )
    return _by_key(episodes)


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
    names = ("codes", "sources", "released", "since", "places", "is_new")
    return Episodes(*(getattr(episodes, name)[order] for name in names))


def first_overrun(steps: Steps, held: Held, episodes: Episodes, rows: int, size: int, bounds: Bounds) -> int | None:
    """Return the first step after which the buffer would be over its bounds, when it begins with ``rows`` and ``size`` bytes."""
    ends = len(steps.until)
    is_new, leaves = episodes.is_new, episodes.released < ends
    begun = episodes.places[is_new] - steps.first_place
    added = np.bincount(begun, minlength=ends) - np.bincount(episodes.released[leaves], minlength=ends)
    order = np.argsort(steps.codes, kind="stable")
    replaced = np.zeros(len(order), np.int64)  # bytes that each change replaces
    replaced[order[1:]] = steps.sizes[order[:-1]]
    is_first = np.append([True], steps.codes[order[1:]] != steps.codes[order[:-1]])[: len(order)]
    firsts = order[is_first]
    replaced[firsts] = np.where(held.is_held[steps.codes[firsts]], held.sizes[steps.codes[firsts]], 0)
    replaced[begun] = 0
    sizes = np.where(episodes.sources < 0, held.sizes[episodes.codes], 0)
    own = episodes.sources >= 0
    sizes[own] = steps.sizes[episodes.sources[own]]
    freed = np.zeros(ends, np.int64)
    np.add.at(freed, episodes.released[leaves], sizes[leaves])
    grown = -freed
    grown[: len(order)] += steps.sizes - replaced
    over = (rows + np.cumsum(added) > bounds.rows) | (size + np.cumsum(grown) > bounds.bytes)
    return int(np.argmax(over)) if over.any() else None


@dataclass(slots=True)
class Entry:
    """An entry of the record-by-record path.

    Attributes:
        since: its buffer time.
        place: see ``PLACE``; no two entries have the same.
        size: bytes of its latest change.
        key: number of its key; None: of no key that the batch changes.
        hash: of its key, where that has no number.
        source: see ``Episodes``.
        released: the step after which it left; below 0: it stays.
        is_new: whether it began in the batch.
    """

    since: int
    place: int
    size: int
    key: int | None = None
    hash: int = 0
    source: int = FROM_BEFORE
    released: int = -1
    is_new: bool = False


@dataclass(slots=True)
class Bounded:
    """What the record-by-record path found.

    Attributes:
        entries: all episodes that changed or ended, in the order of their beginnings in the batch.
        evicted: how many left only because the buffer was full.
        last_taken: (buffer time, place) of the last entry taken off the queue's head, or None.
    """

    entries: list[Entry] = field(default_factory=list)
    evicted: int = 0
    last_taken: tuple[int, int] | None = None

    @property
    def other_hashes(self) -> U64:
        """Hashes of the keys that the batch does not change, with repetitions."""
        return np.array([entry.hash for entry in self.entries if entry.key is None], np.uint64)

    def episodes(self, codes: I64, ends: int) -> Episodes:
        """The episodes, of ``ends`` steps; ``codes`` number the entries' keys."""
        columns = ("source", "released", "since", "place")
        numbers = np.array([[getattr(entry, name) for name in columns] for entry in self.entries], np.int64).reshape(-1, 4)
        released = np.where(numbers[:, 1] < 0, ends, numbers[:, 1])
        is_new = np.array([entry.is_new for entry in self.entries], np.bool_)
        return _by_key(Episodes(codes, numbers[:, 0], released, numbers[:, 2], numbers[:, 3], is_new))


Heads = Callable[[int], list[tuple[int, int, int, int]]]
"""Gives the first n held entries in order, as (buffer time, place, key hash, bytes)."""


def plan_bounded(steps: Steps, held: Held, heads: Heads, rows: int, size: int, bounds: Bounds) -> Bounded:
    """Handle change after change: replace or hold, let go what is due, then the oldest until the buffer fits (``emit_early``).

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

    def __init__(self, steps: Steps, held: Held, heads: Heads, rows: int, size: int, bounds: Bounds) -> None:
        self._steps, self._heads, self._bounds = steps, heads, bounds
        self._keys = steps.codes.tolist()
        self._rows, self._size = rows, size
        old = enumerate(zip(held.is_held.tolist(), held.since.tolist(), held.places.tolist(), held.sizes.tolist(), strict=True))
        self._live = {key: Entry(since, place, size, key) for key, (is_held, since, place, size) in old if is_held}
        self._by_place = {entry.place: key for key, entry in self._live.items()}
        self._new: list[tuple[int, int, int]] = []
        self._old: list[tuple[int, int, int, int]] = []
        self._taken = 0
        self._found = Bounded()

    def run(self) -> Bounded:
        since, sizes, until = self._steps.since.tolist(), self._steps.sizes.tolist(), self._steps.until.tolist()
        for step, key in enumerate(self._keys):
            self._take_in(step, key, since[step], sizes[step])
            while self._rows and (oldest := self._oldest()) is not None:
                is_due = oldest[0] <= until[step]
                if not is_due and self._rows <= self._bounds.rows and self._size <= self._bounds.bytes:
                    break
                self._found.evicted += not is_due
                self._release(oldest, step)
        return self._found

    def _take_in(self, step: int, key: int, since: int, size: int) -> None:
        entry = self._live.get(key)
        if entry is None:
            place = self._steps.first_place + step
            entry = self._live[key] = Entry(since, place, 0, key, is_new=True)
            heappush(self._new, (since, place, key))
            self._rows += 1
            self._found.entries.append(entry)
        elif entry.source == FROM_BEFORE:
            self._found.entries.append(entry)
        self._size += size - entry.size
        entry.source, entry.size = step, size

    def _oldest(self) -> tuple[int, int, int, int] | None:
        """The next to leave: (buffer time, place, key, bytes). Of what the queue holds the key is a hash, of a new entry its number."""
        if self._taken == len(self._old):
            self._old = self._heads(max(_CHUNK, 2 * self._taken)) if self._rows > len(self._new) else self._old
        old = self._old[self._taken] if self._taken < len(self._old) else None
        if self._new and (old is None or self._new[0] < old[:3]):
            return (*self._new[0], 0)
        return old

    def _release(self, oldest: tuple[int, int, int, int], step: int) -> None:
        since, place, key, size = oldest
        if self._new and self._new[0][1] == place:
            heappop(self._new)
            entry = self._live.pop(key)
        else:
            known = self._by_place.get(place)
            entry = Entry(since, place, size, hash=key) if known is None else self._live.pop(known)
            self._taken += 1
            self._found.last_taken = (since, place)
        if entry.source == FROM_BEFORE:
            self._found.entries.append(entry)
        entry.released = step
        self._rows -= 1
        self._size -= entry.size
