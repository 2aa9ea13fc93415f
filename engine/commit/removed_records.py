"""Records removed before a query read any record of their partition: it begins after them, and counts them.

Between the moment when a query begins, is forked or rewound, and its first look, retention may remove its first records. As nothing
was read after that position, reading begins with the existing records. The query's cursor names the partitions of which nothing was read
(``unread``), and where reading began instead (``skipped``). In a partition that was read, a gap is an error (``RecordsRemoved``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from engine.commit.task_states import Cursor
from engine.errors import RecordsRemoved, SourceUnavailable

UNREAD: Final = "unread"
"""Key of a cursor: feed → partitions of which nothing was read since the query began."""

UNREAD_SQL: Final = f"""cursor || jsonb_build_object('{UNREAD}', (
    SELECT jsonb_object_agg(f.key, (SELECT coalesce(jsonb_agg(p.key), '[]') FROM jsonb_each(f.value) p)) FROM jsonb_each(cursor -> 'feeds') f
))"""  # noqa: S608 - made of constants
"""``as_unread`` in Postgres, for a column ``cursor``."""

SKIPPED: Final = "skipped"
"""Key of a cursor: feed → partition → the offset at which reading should begin, and the offset at which it began."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The removed records of a partition.

    Attributes:
        feed: its name in positions.
        first: the offset at which reading should begin.
        stop: the first offset that exists.
    """

    feed: str
    partition: str
    first: int
    stop: int


def as_unread(cursor: Cursor) -> Cursor:
    """Return a cursor with the mark that nothing was read after its positions."""
    return {**cursor, UNREAD: {feed: sorted(parts) for feed, parts in cursor["feeds"].items()}}


@contextmanager
def removed_since_the_look() -> Iterator[None]:
    """Turn a removal after the last look into a retryable error: the next look decides whether reading may continue after the gap.

    Raises:
        SourceUnavailable: records were removed meanwhile.
    """
    try:
        yield
    except RecordsRemoved as error:
        raise SourceUnavailable(f"{error}. The next attempt looks at what is there") from error


def is_unread(cursor: Cursor, feed: str, partition: str) -> bool:
    """Whether nothing was read of a partition since the query began."""
    unread = cursor.get(UNREAD) or {}
    return partition not in cursor["feeds"].get(feed, {}) or partition in unread.get(feed, ())


def gaps_between(start: Cursor, end: Cursor) -> list[Gap]:
    """Return the gaps that the batch between two cursors leaves out."""
    before = start.get(SKIPPED, {})
    return [
        Gap(feed, partition, start["feeds"].get(feed, {}).get(partition, 0), stop)
        for feed, parts in end.get(SKIPPED, {}).items()
        for partition, (_, stop) in parts.items()
        if before.get(feed, {}).get(partition, (0, 0))[1] != stop
    ]


def gaps_of_cursor(start: Cursor, feeds: Mapping[str, Mapping[str, int]], gaps: list[Gap]) -> dict[str, Any]:
    """Return this module's fields of the cursor after a batch.

    Args:
        start: the cursor before it.
        feeds: the positions after it.
        gaps: what it leaves out.
    """
    skipped = {feed: dict(parts) for feed, parts in start.get(SKIPPED, {}).items()}
    for gap in gaps:
        parts = skipped.setdefault(gap.feed, {})
        parts[gap.partition] = [parts.get(gap.partition, (gap.first,))[0], gap.stop]
    begins = {(gap.feed, gap.partition): gap.stop for gap in gaps}
    unread: dict[str, list[str]] = {}
    for feed, positions in feeds.items():
        for partition, position in positions.items():
            first = begins.get((feed, partition), start["feeds"].get(feed, {}).get(partition, 0))
            if position == first and is_unread(start, feed, partition):
                unread.setdefault(feed, []).append(partition)
    return ({UNREAD: unread} if unread else {}) | ({SKIPPED: skipped} if skipped else {})
