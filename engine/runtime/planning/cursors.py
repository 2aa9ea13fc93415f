"""A query's position: the *cursor* that travels with a batch and is committed with it, and the positions in it.

A cursor holds the next offset of each partition of every feed, the heads of partitions cut inside one event time, the wall clock of its batch
(T5), and the requests that the batch has brought to the tasks. For feeds whose records can be replaced, it holds the epochs under which
its positions were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from engine.commit.task_states import Cursor
from engine.errors import StateNewer
from engine.plan.model import Input
from engine.runtime.planning.admission import Admitted
from engine.runtime.planning.source_spec import SourceSpec
from engine.sources.connector_kinds import open_feed
from engine.sources.feeds import FeedReader

CURSOR_FORMAT = 1
"""Increased when a cursor's meaning changes."""

Positions = Mapping[str, Mapping[str, int]]
"""Feed → partition (text, as JSON has it) → next offset."""

Reach = dict[str, list[int | bool | None]]
"""Held derived feeds → how far their producers' sources have been read, and whether that is all (P5)."""

FeedInputs = tuple[FeedReader, tuple[Input, ...]]


def open_feeds(dsn: str, inputs: Sequence[Input]) -> list[FeedInputs]:
    """Open every feed once, with the inputs that read it."""
    readers: dict[str, list[Input]] = {}
    for item in inputs:
        readers.setdefault(item.feed.name, []).append(item)
    return [(open_feed(dsn, found[0].feed, [item.relation for item in found]), tuple(found)) for found in readers.values()]


def feeds_of(spec: SourceSpec) -> list[FeedInputs]:
    """Open a query's feeds, with that of its replays, which no input reads."""
    feeds = open_feeds(spec.dsn, spec.inputs)
    return feeds if spec.replays is None else [*feeds, (spec.replays, ())]


def start_positions(dsn: str, inputs: Sequence[Input]) -> Positions:
    """Return the start positions; of inputs that share a feed the earliest counts.

    A partition that appears during this call has no older records: it is read from its beginning.
    """
    positions: dict[str, dict[str, int]] = {}
    for reader, found in open_feeds(dsn, inputs):
        starts = [reader.starts(start) for start in {item.start for item in found}]
        positions[reader.feed.name] = {
            str(partition): min(start.get(partition, 0) for start in starts) for partition in sorted({*chain(*starts)})
        }
    return positions


def new_cursor(start: Positions, release: int, generation: int) -> Cursor:
    """Return the cursor of a query that has read nothing yet."""
    return {"format": CURSOR_FORMAT, "feeds": start, "now_ms": 0, "awake_ms": 0, "release": release, "generation": generation}


def require_readable(cursor: Cursor) -> None:
    """Refuse a cursor of a newer version.

    Raises:
        StateNewer: it has another format.
    """
    if cursor["format"] > CURSOR_FORMAT:
        raise StateNewer.of("the cursor", cursor["format"], CURSOR_FORMAT)


def lanes(feeds: Sequence[FeedInputs], partitions: Mapping[str, Mapping[Any, int]]) -> int:
    """Return how many lanes a query merges (``engine.operators.tasks.order``). Replayed late records have no place in the merge."""
    return sum(len(partitions.get(reader.feed.name, {})) for reader, inputs in feeds if inputs)


def heads_behind(start: Cursor, admitted: Admitted) -> Positions:
    """Return the heads after a batch: of partitions that it cuts inside one event time, and of those that it does not advance."""
    heads = {(feed, int(part)): head for feed, parts in start.get("heads", {}).items() for part, head in parts.items()}
    kept = {place: head for place, head in heads.items() if place not in admitted.ends} | admitted.heads
    behind: dict[str, dict[str, int]] = {}
    for (feed, partition), head in kept.items():
        behind.setdefault(feed, {})[str(partition)] = head
    return behind
