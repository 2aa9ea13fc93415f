"""The unread batches of many logs, read at once: for a query with a few records, its own statements would cost more than the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from psycopg.rows import tuple_row

from engine.postgres.postgres import Connection

MOST_BATCHES: Final = 64
"""Bound of one partition: with this many batches the query has a backlog, and looks at it alone."""

_SQL: Final = """
SELECT w.place, h.start_offset, b.base_offset, b.rows, b.size, b.max_ts, b.marks
FROM unnest(%b::text[], %b::integer[], %b::bigint[]) WITH ORDINALITY AS w (feed, partition, start, place)
JOIN log.feed f ON f.name = w.feed JOIN log.head h ON h.feed_id = f.id AND h.partition = w.partition
CROSS JOIN LATERAL (
    SELECT base_offset, rows, octet_length(payload) AS size, max_ts, marks FROM log.batch
    WHERE feed_id = f.id AND partition = w.partition AND base_offset >= (
        SELECT coalesce(max(base_offset), 0) FROM log.batch
        WHERE feed_id = f.id AND partition = w.partition AND base_offset <= w.start
    ) AND base_offset + rows > w.start
    ORDER BY base_offset LIMIT %s
) b
ORDER BY w.place, b.base_offset
"""

LogBatch = tuple[int, int, int, int, list[int] | None]
"""Base offset, rows, size, greatest event time, marks."""


class LogPlace(NamedTuple):
    """A place in a source's log."""

    feed: str
    partition: int
    start: int


@dataclass(slots=True)
class Unread:
    """The batches after a place, in order; the partition begins at ``start_offset``."""

    start_offset: int
    batches: list[LogBatch] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class UnreadLook:
    """The result of one look at the logs.

    Attributes:
        ends: feed → partition (as positions have it) → next offset.
        unread: batches after places; for absent places they are unknown.
    """

    ends: Mapping[str, Mapping[str, int]]
    unread: Mapping[LogPlace, Unread]


def unread_behind(connection: Connection, places: Sequence[LogPlace]) -> dict[LogPlace, Unread]:
    """Return the batches after places; places with none, or with many, are left out.

    Args:
        connection: in autocommit mode.
        places: in logs of sources.
    """
    found: dict[LogPlace, Unread] = {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        for place, start_offset, *batch in cursor.execute(_SQL, [*map(list, zip(*places, strict=True)), MOST_BATCHES]):
            found.setdefault(places[place - 1], Unread(start_offset)).batches.append(tuple(batch))
    return {place: unread for place, unread in found.items() if len(unread.batches) < MOST_BATCHES}
