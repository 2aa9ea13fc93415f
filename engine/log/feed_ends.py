"""The ends of many log feeds in one statement: hundreds of queries need them at once to find new data."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from psycopg.rows import tuple_row

from engine.log.sequences import LANE_PARTITION
from engine.postgres.postgres import Connection

_ENDS_SQL = """
SELECT f.name, h.partition, coalesce(f.next_sequence, h.next_offset)
FROM log.feed f LEFT JOIN log.head h ON h.feed_id = f.id AND f.next_sequence IS NULL WHERE f.name = ANY(%b::text[])
"""


def feed_ends(connection: Connection, names: Collection[str]) -> dict[str, Mapping[str, int]]:
    """Return partition (as positions have it) → next offset, by feed; missing feeds are left out.

    Args:
        connection: in autocommit mode.
        names: of log feeds.
    """
    ends: dict[str, dict[str, int]] = {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        for name, partition, end in cursor.execute(_ENDS_SQL, (list(names),)):
            own = ends.setdefault(name, {})
            if end is not None:
                own[str(LANE_PARTITION if partition is None else partition)] = end
    return dict(ends)
