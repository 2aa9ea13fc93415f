"""Which changes a suppress buffer puts together, and when it lets them go (S1, S2, S4): numbers only, no payload, no state.

An *episode* begins with a change of a key that holds nothing and ends when its entry leaves the buffer; the changes between
replace each other. An entry is *void* once it has nothing to tell any more: a key came and went while it was held (S5). It keeps its
buffer time, which counts should the key come back, but takes no room.

``plan`` finds all episodes of a batch without a loop over records: where an episode that begins at a change would end is one
binary search, so each change knows which change of its key would begin the next one, and those that are really reached from a key's first
one are found by doubling the steps. ``suppress_bounded`` is the record-by-record reading, for the rare rows (a full buffer) where every
release depends on all changes before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from engine.frames.clocks import BEFORE_ALL_TIME, I64, Bools

FROM_BEFORE: Final = -1
"""Source of an episode whose latest change is the one in the index."""


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


@dataclass(frozen=True, slots=True)
class Course:
    """When entries leave during a batch.

    Attributes:
        since: buffer time of an entry that each change would make.
        until: see ``Steps``.
        lasts: see ``Steps``.
        before: no entry that leaves between two changes stands behind this: the positions of the changes, and of the end.
        reached: gives the positions where entries of these buffer times leave between two changes.
        closed_to: windows that end then or before have closed.
    """

    since: I64
    until: I64
    lasts: I64
    before: I64
    reached: Callable[[I64], I64]
    closed_to: int

    def first(self, count: int) -> Course:
        """Return the part up to the place of the change behind the first ones, and without it."""
        cut = self.since[:count], self.until[: 2 * count + 1], self.lasts[:count], self.before[: count + 1]
        return Course(*cut, self.reached, BEFORE_ALL_TIME)

    def behind(self, count: int) -> Course:
        """Return the part from there on."""
        cut = self.since[count:], self.until[2 * count :], self.lasts[count:] - count, self.before[count:]
        return Course(*cut, self.reached, self.closed_to)


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
    episodes = by_key(episodes)
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


def by_key(episodes: Episodes) -> Episodes:
    """Put episodes in the order of their keys; those of one key stay as they stand."""
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
