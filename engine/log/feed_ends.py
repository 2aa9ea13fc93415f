"""The ends of many log feeds in one statement: hundreds of queries need them at once to find new data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from psycopg.rows import tuple_row

from engine.log.sequences import LANE_PARTITION
from engine.postgres.postgres import Connection

TOLD: Final = "told"
"""Stands beside a derived feed's partition for the time of its last mark, which rises also without rows (``engine.log.marks``)."""

_ENDS_SQL = """
SELECT f.name, h.partition, coalesce(f.next_sequence, h.next_offset), f.told_ms
FROM log.feed f LEFT JOIN log.head h ON h.feed_id = f.id AND f.next_sequence IS NULL WHERE f.name = ANY(%b::text[])
"""


def feed_ends(connection: Connection, names: Collection[str]) -> dict[str, Mapping[str, int]]:
    """Return partition (as positions have it) → next offset, by feed, and ``TOLD``; missing feeds are left out.

    Args:
        connection: in autocommit mode.
        names: of log feeds.
    """
    ends: dict[str, dict[str, int]] = {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        for name, partition, end, told_ms in cursor.execute(_ENDS_SQL, (list(names),)):
            own = ends.setdefault(name, {})
            if end is not None:
                own[str(LANE_PARTITION if partition is None else partition)] = end
            if told_ms is not None:
                own[TOLD] = told_ms
    return dict(ends)
