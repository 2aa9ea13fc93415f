"""How far many log feeds reach, in one statement: whether there is something to read is asked for hundreds of queries at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from psycopg.rows import tuple_row

from engine.connectors.postgres import Connection
from engine.connectors.sequences import LANE_PARTITION

_ENDS_SQL = """
SELECT f.name, f.next_sequence, (SELECT jsonb_object_agg(h.partition, h.next_offset) FROM log.head h WHERE h.feed_id = f.id)
FROM log.feed f WHERE f.name = ANY(%s)
"""


def feed_ends(connection: Connection, names: Collection[str]) -> dict[str, Mapping[str, int]]:
    """Return partition (as positions have it) → next offset, by feed; feeds that are not there are left out.

    Args:
        connection: in autocommit mode.
        names: of log feeds.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute(_ENDS_SQL, (list(names),)).fetchall()
    return {
        name: (heads or {}) if next_sequence is None else {str(LANE_PARTITION): next_sequence}
        for name, next_sequence, heads in rows
    }
