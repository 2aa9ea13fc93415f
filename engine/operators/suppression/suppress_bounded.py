"""The changes of a full suppress buffer, handled one after the other (S4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

import numpy as np

from engine.frames.clocks import I64
from engine.operators.suppression.suppress_episodes import FROM_BEFORE, Bounds, Episodes, PendingEntries, Steps, by_key
from engine.state.sorted.sorted_search import U64

_CHUNK: Final = 512
"""Entries read at once from the queue's head by the record-by-record path; doubled each time."""


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
        return by_key(Episodes(codes, numbers[:, 0], released, numbers[:, 2], numbers[:, 3], numbers[:, 4]))


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
