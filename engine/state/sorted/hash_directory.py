"""Where in a sorted segment a hash must lie: a column of the segment itself, so that a search is one jump and not twenty.

A binary search in half a million rows takes nineteen steps, half of which the processor guesses wrong: about 60 ns for a key, also where
the keys come in ascending order. Hashes are spread evenly, so a table with as many buckets as rows says to within a row where each one
begins: 10 to 20 ns. The table is saved with the rows as one more column (4 bytes a row), is mapped with them, and so takes no memory of
the process. Where hashes are not spread evenly, as with many rows of one key, what two steps do not find is searched as before.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.frames.clocks import I64
from engine.frames.frames import KEY_HASH
from engine.state.sorted.sorted_search import U64, Runs, runs_of

DIRECTORY: Final = "_directory"
"""Row at which each bucket of hashes begins; the last column of a segment that has it."""

DIRECTORY_FROM: Final = 1 << 14
"""Rows from which on a segment has one: below, making it (6 ns a row) costs more than it saves until the segment is merged."""

STEPS: Final = 3
"""Rows looked at, beyond the first two of a bucket, before what is left is searched: one hash in a hundred where each is spread evenly."""

DENSE: Final = 2
"""Hashes per row from which on it is the rows that are searched among the hashes."""

_BITS: Final = 32
"""Bits of a hash, from the first that differs in the segment on, that choose its bucket: so times the rows they fit 64 bits."""


def with_directory(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the directory to rows that are sorted by hash, if they are many enough."""
    if frame.height < DIRECTORY_FROM:
        return frame
    own = frame.get_column(KEY_HASH).to_numpy()
    sizes = np.bincount(_buckets(own, own), minlength=len(own))
    return frame.with_columns(pl.Series(DIRECTORY, (np.cumsum(sizes) - sizes).astype(np.int32)))


def without_directory(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows alone."""
    return pl.DataFrame(frame.get_columns()[:-1]) if frame.columns[-1] == DIRECTORY else frame


def runs_in(frame: pl.DataFrame, hashes: U64) -> Runs:
    """Find the rows of some keys.

    Args:
        frame: sorted by hash; what ``with_directory`` returned, or without one.
        hashes: of the keys, distinct and ascending, at least one.
    """
    own = frame.get_column(KEY_HASH).to_numpy()
    if frame.columns[-1] != DIRECTORY or len(own) * DENSE < len(hashes):
        return runs_of(own, hashes)
    first = int(np.searchsorted(hashes, own[0], "left"))
    last = int(np.searchsorted(hashes, own[-1], "right"))
    if first == last:
        return Runs(*[np.empty(0, np.int64)] * 3)
    wanted = hashes[first:last]
    directory = frame.get_column(DIRECTORY).to_numpy()
    buckets = _buckets(own, wanted)
    places = directory.take(buckets).astype(np.int64)
    places += own.take(places) < wanted
    behind = np.flatnonzero(own.take(places) < wanted)
    for _ in range(STEPS):
        places[behind] += 1
        behind = behind[own.take(places.take(behind)) < wanted.take(behind)]
    if len(behind):
        places[behind] = np.searchsorted(own, wanted[behind])
    found = own.take(places)
    keys = np.flatnonzero(found == wanted)
    starts = places[keys]
    return Runs(keys + first, starts, _run_ends(own, directory, starts, wanted[keys], buckets[keys]))


def _run_ends(own: U64, directory: NDArray[np.int32], starts: I64, hashes: U64, buckets: I64) -> I64:
    """Return where the run of each hash ends: mostly behind one row, else mostly where the next bucket begins."""
    stops = starts + 1
    longer = np.flatnonzero(own.take(stops, mode="clip") == hashes)
    if len(longer):
        ends = directory.take(buckets[longer] + 1, mode="clip").astype(np.int64)
        ends[buckets[longer] + 1 == len(own)] = len(own)
        unsure = np.flatnonzero(own[ends - 1] != hashes[longer])
        ends[unsure] = np.searchsorted(own, hashes[longer[unsure]], "right")
        stops[longer] = ends
    return stops


def _buckets(own: U64, hashes: U64) -> I64:
    """Return the bucket of hashes that lie between the first and the last of ``own``: from 0 to one less than there are rows."""
    spare = _BITS - (int(own[-1]) - int(own[0])).bit_length()
    places = hashes - own[0]
    if spare < 0:
        places >>= np.uint64(-spare)
    else:
        places <<= np.uint64(spare)
    places *= np.uint64(len(own))
    places >>= np.uint64(_BITS)
    buckets: I64 = places.view(np.int64)
    return buckets
