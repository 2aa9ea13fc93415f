"""The segments of every structure: what is read of one, and what is written for the rows that a new task takes over.

A segment's rows stay in their order when some go elsewhere, and those of several tasks have no key in common. So a new task's segments
are those of one task before after those of another, each with fewer rows, and in the same runs; later merges put them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import polars as pl

from engine.frames.frames import KEY_HASH
from engine.operators.aggregation.group_store import HASH
from engine.operators.rescale.shares import Rows, Shares, Source
from engine.operators.windows.sessions.session_store import session_rows, session_segment
from engine.operators.windows.sliding.sliding_store import BY_TIME, sliding_segment, sorted_run
from engine.operators.windows.window_store import window_segment
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.hash_directory import without_directory
from engine.state.sorted.hash_segments import hash_segment
from engine.state.sorted.key_index import index_segment
from engine.state.sorted.segment_list import Segment
from engine.state.sorted.time_queue import QueueSegment, live, queue_segment

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """One structure's segments.

    Attributes:
        read: the rows of a segment that count, without what only serves finding them.
        write: saves rows in the order in which ``read`` gave them, and describes the segment.
    """

    read: Callable[[SegmentStore, Entry], pl.DataFrame]
    write: Callable[[SegmentStore, pl.DataFrame], Entry]


def moved(kind: Kind, sources: Sequence[Source], shares: Shares, rows: Rows) -> list[list[Entry]]:
    """Give each new task its rows of a structure.

    Args:
        kind: of the structure.
        sources: whose ``state`` is the list of a structure's segments.
        shares: what goes where.
        rows: see ``Rows``.

    Returns:
        The segments of each new task.
    """
    entries: list[list[Entry]] = [[] for _ in shares.stores]
    has_run = [False] * len(entries)
    for source in sources:
        for entry in source.state:
            frame = kind.read(source.store, entry)
            if not entry.get("is_continued"):
                has_run = [False] * len(entries)
            for place, part in enumerate(shares.split(frame, rows, source)):
                if part.height:
                    entries[place].append({**kind.write(shares.stores[place], part), "is_continued": has_run[place]})
                    has_run[place] = True
    return entries


def read_all(kind: Kind, sources: Sequence[Source]) -> list[tuple[Source, pl.DataFrame]]:
    """Return the rows of all segments, those of one source after those of another."""
    return [(source, kind.read(source.store, entry)) for source in sources for entry in source.state]


def _load(store: SegmentStore, entry: Entry) -> pl.DataFrame:
    return store.load(entry["segment"])


def _described(save: Callable[[SegmentStore, pl.DataFrame], Segment]) -> Callable[[SegmentStore, pl.DataFrame], Entry]:
    return lambda store, rows: save(store, rows).entry()


def _by_hash(column: str) -> Kind:
    return Kind(_load, _described(partial(hash_segment, column=column)))


INDEX: Final = Kind(lambda store, entry: without_directory(_load(store, entry)), _described(index_segment))
"""``KeyIndex``."""

QUEUE: Final = Kind(lambda store, entry: live(store, QueueSegment.of(entry)), _described(queue_segment))
"""``TimeQueue``."""

GROUPS: Final = _by_hash(HASH)
"""``GroupStore``."""

LATEST: Final = _by_hash(KEY_HASH)
"""``LatestIndex``."""

WINDOWS: Final = Kind(_load, _described(window_segment))
"""``WindowStore``."""

SESSIONS: Final = Kind(lambda store, entry: session_rows(_load(store, entry)), _described(session_segment))
"""``SessionStore``."""

SLIDING: Final = Kind(
    lambda store, entry: _load(store, entry).drop(BY_TIME),
    _described(lambda store, rows: sliding_segment(store, sorted_run(rows))),
)
"""``SlidingStore``."""
