"""The segments of every structure: what is read of one, and what is written for the rows that a new task takes over.

A segment's rows stay in their order when some go elsewhere, and those of several tasks have no key in common. So a new task's segments
are those of one task before after those of another, each with fewer rows; later merges put them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import polars as pl

from engine.core.aggregation.group_store import HASH
from engine.core.frames import KEY_HASH, TS
from engine.core.ports import SegmentStore
from engine.core.repartition.shares import Rows, Shares, Source
from engine.core.structures.hash_directory import without_directory
from engine.core.structures.segments import KeyIndex
from engine.core.structures.time_queue import TimeQueue
from engine.core.windows.session_store import DUE_END, DUE_ROW, END, SessionStore
from engine.core.windows.sliding_store import BY_TIME, sorted_run
from engine.core.windows.window_grid import node_windows
from engine.core.windows.window_store import NODE

Entry = dict[str, Any]
Prepare = Callable[[pl.DataFrame, Source], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Kind:
    """One structure's segments.

    Attributes:
        read: the rows of a segment that count, without what only serves finding them.
        write: saves rows in the order in which ``read`` gave them, and describes the segment.
    """

    read: Callable[[SegmentStore, Entry], pl.DataFrame]
    write: Callable[[SegmentStore, pl.DataFrame], Entry]


def moved(kind: Kind, sources: Sequence[Source], shares: Shares, rows: Rows, prepare: Prepare | None = None) -> list[list[Entry]]:
    """Give each new task its rows of a structure.

    Args:
        kind: of the structure.
        sources: whose ``state`` is the list of a structure's segments.
        shares: what goes where.
        rows: see ``Rows``.
        prepare: changes the rows of a segment before they are split.

    Returns:
        The segments of each new task.
    """
    entries: list[list[Entry]] = [[] for _ in shares.stores]
    for source in sources:
        for entry in source.state:
            frame = kind.read(source.store, entry)
            if prepare is not None:
                frame = prepare(frame, source)
            for own, store, part in zip(entries, shares.stores, shares.split(frame, rows, source), strict=True):
                if part.height:
                    own.append(kind.write(store, part))
    return entries


def read_all(kind: Kind, sources: Sequence[Source]) -> list[tuple[Source, pl.DataFrame]]:
    """Return the rows of all segments, those of one source after those of another."""
    return [(source, kind.read(source.store, entry)) for source in sources for entry in source.state]


class _Index(KeyIndex):
    def entry(self, rows: pl.DataFrame) -> Entry:
        return asdict(self._save(rows))


class _Queue(TimeQueue):
    def entry(self, rows: pl.DataFrame) -> Entry:
        return asdict(self._save(rows))


def _load(store: SegmentStore, entry: Entry) -> pl.DataFrame:
    return store.load(entry["segment"])


def _index_rows(store: SegmentStore, entry: Entry) -> pl.DataFrame:
    return without_directory(_load(store, entry))


def _index_entry(store: SegmentStore, rows: pl.DataFrame) -> Entry:
    return _Index(store, None, is_by_time=True).entry(rows)


def _queue_rows(store: SegmentStore, entry: Entry) -> pl.DataFrame:
    return _load(store, entry).slice(entry["consumed"])


def _queue_entry(store: SegmentStore, rows: pl.DataFrame) -> Entry:
    return _Queue(store, None).entry(rows)


def _by_hash(column: str) -> Callable[[SegmentStore, pl.DataFrame], Entry]:
    def write(store: SegmentStore, rows: pl.DataFrame) -> Entry:
        hashes = rows.get_column(column)
        bounds = {"min_hash": int(hashes.item(0)), "max_hash": int(hashes.item(-1))}
        return {"segment": store.save(rows), "rows": rows.height, **bounds}

    return write


def _window_entry(store: SegmentStore, rows: pl.DataFrame) -> Entry:
    last_window = int(node_windows(rows.get_column(NODE).to_numpy())[1].max())
    return {"segment": store.save(rows), "rows": rows.height, "last_window": last_window}


def _session_rows(store: SegmentStore, entry: Entry) -> pl.DataFrame:
    return _load(store, entry).drop(DUE_END, DUE_ROW)


def _session_entry(store: SegmentStore, rows: pl.DataFrame) -> Entry:
    taken = SessionStore(store, (), None)
    taken.append(rows, int(rows.get_column(END).to_numpy().min()))
    return taken.manifest()[0]


def _sliding_rows(store: SegmentStore, entry: Entry) -> pl.DataFrame:
    return _load(store, entry).drop(BY_TIME)


def _sliding_entry(store: SegmentStore, rows: pl.DataFrame) -> Entry:
    times = rows.get_column(TS).to_numpy()
    bounds = {"min_ts": int(times.min()), "max_ts": int(times.max())}
    return {"segment": store.save(sorted_run(rows)), "rows": rows.height, **bounds}


INDEX: Final = Kind(_index_rows, _index_entry)
"""``KeyIndex``."""

QUEUE: Final = Kind(_queue_rows, _queue_entry)
"""``TimeQueue``."""

GROUPS: Final = Kind(_load, _by_hash(HASH))
"""``GroupStore``."""

LATEST: Final = Kind(_load, _by_hash(KEY_HASH))
"""``LatestIndex``."""

WINDOWS: Final = Kind(_load, _window_entry)
"""``WindowStore``."""

SESSIONS: Final = Kind(_session_rows, _session_entry)
"""``SessionStore``."""

SLIDING: Final = Kind(_sliding_rows, _sliding_entry)
"""``SlidingStore``."""
