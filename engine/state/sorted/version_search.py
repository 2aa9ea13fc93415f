"""Finding versions among those of the touched keys, as of an event time and as of a position in the total order.

All versions are known at the end of a batch, but a probe may only see what was put before its own position. So a probe's version
is found by time first (one binary search), and then walked down past versions put later; this is what makes the answer
independent of where batches are cut.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from engine.frames.clocks import AFTER_ALL_TIME, I64
from engine.frames.frames import KEY_HASH, POS, TS
from engine.state.sorted.sorted_search import U64, expand, search

SINGLE_STEPS: Final = 3
"""Steps taken one by one before the sparse table is built: most probes meet none or one version put later."""

MAX_LISTED: Final = 1 << 21
"""Versions looked through at once by ``between``, beyond one probe's: bounds its memory where most were put too late to count."""

MAX_COMPOSITE: Final = 1 << 62
"""Composite keys stay below the sign bit with room for one more key."""


class VersionSearch:
    """The versions of some keys, sorted by (key, time, position), or by (key, position) for an unversioned table.

    Args:
        frame: versions with ``_key_hash``, ``_ts``, ``_pos``; every key in ``hashes``. What agrees in key and time stands in the
            order of ``_pos``, for an unversioned table what agrees in key.
        hashes: the distinct keys, ascending.
        first_new: position from which on versions belong to this batch; all others are older than any probe.
        is_by_time: False ignores event times: the latest by arrival counts.
        keys: index into ``hashes`` of each version, where it is known.
    """

    def __init__(self, frame: pl.DataFrame, hashes: U64, first_new: int, *, is_by_time: bool, keys: I64 | None = None) -> None:
        if keys is None:
            keys = search(hashes, frame.get_column(KEY_HASH).to_numpy())
        times = frame.get_column(TS).to_numpy() if is_by_time else np.zeros(frame.height, np.int64)
        positions = frame.get_column(POS).to_numpy()
        self._scale(times, len(hashes))
        composite = self._composite(keys, times)
        order = np.argsort(composite, kind="stable")  # segments are sorted already: a few runs to merge
        self._sorted = composite[order]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=len(hashes)))])
        self.rows = order
        self.times = frame.get_column(TS).to_numpy()[order]
        self._positions = positions[order]
        self._has_new = bool((positions >= first_new).any())
        self._minima: list[I64] = [self._positions]

    def _scale(self, times: I64, key_count: int) -> None:
        """Choose how times enter the composite key: as offsets, or as ranks where offsets would not fit."""
        self._ranks: I64 | None = None
        self._low = int(times.min()) if len(times) else 0
        self._span = (int(times.max()) - self._low if len(times) else 0) + 2
        if (key_count + 1) * self._span >= MAX_COMPOSITE:
            self._ranks = np.unique(times)
            self._span = len(self._ranks) + 1

    def _composite(self, keys: I64, times: I64) -> I64:
        """Return key * span + place of the time, where place 0 lies before every version."""
        if self._ranks is not None:
            return keys * self._span + np.searchsorted(self._ranks, times, "right")
        return keys * self._span + np.clip(times - (self._low - 1), 0, self._span - 1)

    def as_of(self, keys: I64, times: I64, positions: I64) -> I64:
        """Find each probe's version: the greatest time <= ``times``, of those the last put, put before ``positions``.

        Args:
            keys: indexes into ``hashes``.
            times: as of when; ``AFTER_ALL_TIME`` for the latest.
            positions: places of the probes.

        Returns:
            Places in sorted order (see ``rows``), -1 for none.
        """
        if not len(self._sorted):
            return np.full(len(keys), -1)
        wanted = self._composite(keys, times)
        found = self._starts[keys + 1] - 1  # the key's last version answers most probes
        earlier = np.flatnonzero(self._sorted[found] > wanted)
        found[earlier] = search(self._sorted, wanted[earlier], "right") - 1
        return self._walk_down(found, self._starts[keys], positions)

    def latest(self, keys: I64, positions: I64) -> I64:
        """Find each key's version with the greatest time, put before ``positions``; -1 for none."""
        return self._walk_down(self._starts[keys + 1] - 1, self._starts[keys], positions)

    def next_times(self, keys: I64, times: I64, positions: I64) -> I64:
        """Return the time of each key's first version after ``times``, put before ``positions``; ``AFTER_ALL_TIME`` for none."""
        place = search(self._sorted, self._composite(keys, times), "right")
        stops = self._starts[keys + 1]
        result = np.full(len(keys), AFTER_ALL_TIME, np.int64)
        pending = np.flatnonzero(place < stops)
        while len(pending):
            is_seen = self._positions[place[pending]] < positions[pending]
            seen = pending[is_seen]
            result[seen] = self.times[place[seen]]
            pending = pending[~is_seen]
            place[pending] += 1
            pending = pending[place[pending] < stops[pending]]
        return result

    def between(self, keys: I64, after: I64, until: I64, positions: I64) -> tuple[I64, I64]:
        """List each probe's versions with ``after < time <= until``, put before its position; of equal times the last put.

        Returns:
            The probe and the place in sorted order of each version, ascending by probe, then by time.
        """
        starts = search(self._sorted, self._composite(keys, after), "right")
        stops = np.maximum(search(self._sorted, self._composite(keys, until), "right"), starts)
        totals = np.cumsum(stops - starts)
        cuts = np.searchsorted(totals, np.arange(MAX_LISTED, totals[-1] if len(totals) else 0, MAX_LISTED))
        parts = [self._earlier_places(chunk, starts, stops, positions) for chunk in np.split(np.arange(len(keys)), cuts)]
        return np.concatenate([probes for probes, _ in parts]), np.concatenate([places for _, places in parts])

    def _earlier_places(self, chunk: I64, starts: I64, stops: I64, positions: I64) -> tuple[I64, I64]:
        """List, for some probes, the places of ``[start, stop)`` put before each one's position; of equal times the last."""
        places = expand(starts[chunk], stops[chunk])
        probes = np.repeat(chunk, stops[chunk] - starts[chunk])
        is_seen = self._positions[places] < positions[probes]
        probes, places = probes[is_seen], places[is_seen]
        times = self.times[places]
        is_last = np.ones(len(places), np.bool_)
        is_last[:-1] = (probes[1:] != probes[:-1]) | (times[1:] != times[:-1])
        return probes[is_last], places[is_last]

    def of_key(self, key: int, position: int) -> I64:
        """Return the places of one key's versions put before ``position``, ascending by time, the last put of each time."""
        places = np.arange(self._starts[key], self._starts[key + 1])
        places = places[self._positions[places] < position]
        times = self.times[places]
        return places[np.append(times[1:] != times[:-1], True)] if len(places) else places

    def _walk_down(self, found: I64, starts: I64, positions: I64) -> I64:
        """Step down from each place past versions put at or after the probe's position."""
        result = np.where(found >= starts, found, -1)
        if not self._has_new:
            return result
        pending = np.flatnonzero(result >= 0)
        for _ in range(SINGLE_STEPS):
            pending = pending[self._positions[result[pending]] >= positions[pending]]
            if not len(pending):
                return result
            result[pending] -= 1
            is_in_key = result[pending] >= starts[pending]
            result[pending[~is_in_key]] = -1
            pending = pending[is_in_key]
        if len(pending):
            self._descend(result, pending, starts, positions)
        return result

    def _descend(self, result: I64, pending: I64, starts: I64, positions: I64) -> None:
        """Skip, in powers of two, runs whose smallest position is not before the probe's: O(log n) for each probe."""
        longest = int((result[pending] - starts[pending]).max()) + 1
        while (1 << len(self._minima)) <= longest:
            self._minima.append(self._doubled(len(self._minima)))
        places, low, wanted = result[pending], starts[pending], positions[pending]
        for level in range(len(self._minima) - 1, -1, -1):
            size = 1 << level
            fits = places - size + 1 >= low
            smallest = self._minima[level][np.where(fits, places, 0)]
            places = np.where(fits & (smallest >= wanted), places - size, places)
        result[pending] = np.where(places >= low, places, -1)

    def _doubled(self, level: int) -> I64:
        """Return for each place the minimum over the ``2**level`` places that end there; less where the array begins."""
        half, below = 1 << (level - 1), self._minima[level - 1]
        minima = below.copy()
        minima[half:] = np.minimum(below[half:], below[:-half])
        return minima
