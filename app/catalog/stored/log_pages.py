"""The size of one read of a log: bounded in rows and in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

Connection = psycopg.AsyncConnection[Any]

_SIZES_SQL = """
SELECT base_offset, rows, octet_length(payload) FROM log.batch
WHERE feed_id = %(feed_id)s AND partition = %(partition)s AND base_offset + rows > %(start)s AND base_offset >= (
    SELECT coalesce(max(base_offset), 0) FROM log.batch
    WHERE feed_id = %(feed_id)s AND partition = %(partition)s AND base_offset <= %(start)s
)
ORDER BY base_offset LIMIT %(rows)s
"""


_NUMBERED_SIZES_SQL = """
SELECT sequence, max(sequence_rows), sum(octet_length(payload))::bigint FROM log.batch
WHERE feed_id = %(feed_id)s AND sequence > %(start)s - sequence_rows AND sequence >= (
    SELECT coalesce(max(sequence), 0) FROM log.batch WHERE feed_id = %(feed_id)s AND sequence <= %(start)s
)
GROUP BY sequence ORDER BY sequence LIMIT %(rows)s
"""


async def end_within(connection: Connection, wanted: Mapping[str, int], most_bytes: int, *, is_numbered: bool) -> int:
    """Return the end of a read of a feed within so many rows and, approximately, so many bytes; at least one row.

    Args:
        connection: to the database.
        wanted: ``feed_id``, ``partition``, ``start``, ``rows``.
        most_bytes: of batches as stored, which is uncompressed.
        is_numbered: whether to read by row numbers, over all partitions.
    """
    start, rows = wanted["start"], wanted["rows"]
    end, room = start, float(most_bytes)
    sizes = _NUMBERED_SIZES_SQL if is_numbered else _SIZES_SQL
    for base, batch_rows, size in await (await connection.execute(sizes, dict(wanted))).fetchall():
        row_bytes = size / batch_rows
        take = min(base + batch_rows - end, start + rows - end, max(int(room / row_bytes), 0 if end > start else 1))
        end += take
        room -= take * row_bytes
        if end < base + batch_rows:
            break
    return end
